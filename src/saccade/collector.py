"""Python's cyclic garbage collector, put off while a plan is made.

Planning allocates thousands of small frozen values that are live at once and form no cycles. With
the collector running, they are traversed several times and age, until a full collection walks all
that the process holds, for several times as long as the planning takes.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["put_off"]

_lock = threading.Lock()
_inside = 0
_was_on = False


@contextmanager
def put_off() -> Iterator[None]:
    """No automatic collection until the last thread that is inside leaves.

    The collector is process-wide, so other threads' garbage waits as well, for some milliseconds.
    Where it was off when the first thread entered it stays off; whoever switches it meanwhile may
    see that undone.
    """
    global _inside, _was_on  # noqa: PLW0603 - the collector is one for the process
    with _lock:
        if _inside == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_on:
                gc.enable()
