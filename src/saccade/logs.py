"""The logger `saccade`: programs set it up as they do others, or `SACCADE_LOG` does."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

from saccade.locks import preload

if TYPE_CHECKING:
    import logging

__all__ = ["debug", "logger"]

_LEVELS = ("debug", "info", "warning", "error", "critical")


@cache
def logger() -> logging.Logger:
    """Python's logger of that name.

    Where `SACCADE_LOG` names a level (debug, info, warning, error, critical, or off) the logger has
    it, and says what it says on standard error, whatever a program sets up. Another word is told.
    """
    import logging  # noqa: PLC0415 - a warm start has nothing to say

    found = logging.getLogger("saccade")
    level = os.environ.get("SACCADE_LOG", "").strip().lower()
    if level in (*_LEVELS, "off"):
        off = logging.CRITICAL + 1
        found.setLevel(off if level == "off" else level.upper())
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        found.addHandler(handler)
        found.propagate = False
    elif level:
        found.warning("SACCADE_LOG=%s is none of %s, off", level, ", ".join(_LEVELS))
    return found


def debug(message: str, *values: object) -> None:
    """Tell at level debug what a start does; nothing is imported where nobody can be listening."""
    if "logging" in sys.modules or os.environ.get("SACCADE_LOG", "").strip().lower() == "debug":
        preload("logging")
        logger().debug(message, *values)
