"""A spinner on stderr for whatever takes over a second; silent when stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["working"]


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show `text` while the block runs; the block may call what it is given with a new text."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console  # noqa: PLC0415 - 50 ms, and a pipe needs none of it

    with Console(stderr=True).status(text) as status:
        yield status.update
