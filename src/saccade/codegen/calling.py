"""Sizes of the calling convention, for those who call kernels but emit none."""

from __future__ import annotations

__all__ = ["CONTEXT_WORDS", "COUNTER_WORDS"]

CONTEXT_WORDS = 6
COUNTER_WORDS = 8
"""Words from one thread's counter to the next one's: a cache line."""
