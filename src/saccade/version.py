"""The version of this package, without asking what is installed."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
