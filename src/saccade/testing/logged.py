"""What the logger `saccade` warns of, for tests."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["warned"]


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def warned(match: str | None) -> Iterator[list[str]]:
    """The texts of warnings so far.

    Args:
        match: A pattern that one of them has to fit; None if there may be none at all.

    Raises:
        AssertionError: At the end, if none fits, or there are some.
    """
    handler, log = _Kept(), logging.getLogger("saccade")
    log.addHandler(handler)
    try:
        yield handler.texts
    finally:
        log.removeHandler(handler)
    if match is None:
        assert not handler.texts, handler.texts
    else:
        assert any(re.search(match, text) for text in handler.texts), (match, handler.texts)
