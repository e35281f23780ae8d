"""The one way in which commands print: names come from files, which anyone may have written."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from saccade.errors import printable

__all__ = ["say", "say_all"]

_LONGEST = 10_000  # characters of a line


def say(line: str, stream: TextIO | None = None) -> None:
    """Print one line, on stdout if not elsewhere.

    What a terminal would obey is escaped, line breaks included.
    """
    print(printable(line, _LONGEST), file=stream or sys.stdout)


def say_all(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        say(line)
