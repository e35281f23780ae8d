"""The one way in which commands print: names come from files, which anyone may have written.

With `--quiet`, and where the figures go to standard output (`--json -`), nothing else goes there:
a command runs with its standard output replaced, and prints as always.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

from saccade.errors import printable
from saccade.tables import paragraph

__all__ = [
    "is_quiet", "note", "say", "say_all", "say_fitted", "silenced", "standard_output",
    "usable_streams",
]  # fmt: skip

_LONGEST = 10_000  # characters of a line


class _Silence(io.TextIOBase):
    """Standard output of a command that prints nothing.

    Attributes:
        behind: The stream that it stands before.
        quiet: Whether remarks on stderr are unwanted, too.
    """

    def __init__(self, behind: TextIO, quiet: bool) -> None:
        self.behind, self.quiet = behind, quiet

    def write(self, text: str) -> int:
        return len(text)


def usable_streams() -> None:
    """Have standard streams that whatever is printed can be written to.

    What an encoding lacks (a µ in ASCII) becomes a question mark. Where a stream is closed,
    nothing is written.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # This takes the descriptor, too: no file that is opened later may be in its place.
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end
            setattr(sys, name, nowhere)
    # That of errors replaces by itself.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextmanager
def silenced(quiet: bool) -> Iterator[None]:
    """Let nothing that the block prints be seen; with `quiet`, no remark or progress either."""
    with redirect_stdout(_Silence(sys.stdout, quiet)):
        yield


def is_quiet() -> bool:
    """Whether only errors, warnings and what was asked for by name are to be seen."""
    return isinstance(sys.stdout, _Silence) and sys.stdout.quiet


def standard_output() -> TextIO:
    """The stream itself, also where commands print nothing."""
    return sys.stdout.behind if isinstance(sys.stdout, _Silence) else sys.stdout


def say(line: str, stream: TextIO | None = None) -> None:
    """Print one line, on stdout if not elsewhere.

    What a terminal would obey is escaped, line breaks included.
    """
    print(printable(line, _LONGEST), file=stream or sys.stdout)


def note(line: str) -> None:
    """Print a remark on stderr, which is not there with `--quiet`."""
    if not is_quiet():
        say(line, sys.stderr)


def say_all(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        say(line)


def say_fitted(lines: Iterable[str]) -> None:
    """Print lines on stdout, each broken between words into as many as the terminal needs."""
    for line in lines:
        say_all(paragraph(printable(line, _LONGEST)))
