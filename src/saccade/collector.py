"""Python's cyclic garbage collector, put off while a plan is made.

Planning allocates thousands of small frozen values that are live at once and form no cycles. With
the collector running, they are traversed several times and age, until a full collection walks all
that the process holds, for several times as long as the planning takes.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from saccade.locks import Lock

__all__ = ["put_off"]

_lock = Lock()
_inside = Counter[int]()
"""How many times each thread is inside; only those that are."""
_was_on = False


@contextmanager
def put_off() -> Iterator[None]:
    """No automatic collection until the last thread that is inside leaves.

    The collector is process-wide, so other threads' garbage waits as well, for some milliseconds.
    Where it was off when the first thread entered it stays off; whoever switches it meanwhile may
    see that undone.
    """
    global _was_on  # noqa: PLW0603 - the collector is one for the process
    thread = threading.get_ident()
    # Whatever is switched off is so by someone who is inside, at every moment: see `_end_others`.
    with _lock:
        if not _inside:
            _was_on = gc.isenabled()
        _inside[thread] += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            if _inside.total() == 1 and _was_on:
                gc.enable()
            _inside[thread] -= 1
            if not _inside[thread]:
                del _inside[thread]


def _end_others() -> None:
    """Threads that a forked child does not have never leave."""
    thread = threading.get_ident()
    # The thread that forked may itself be inside, and leaves as usual.
    others = [other for other in _inside if other != thread]
    for other in others:
        del _inside[other]
    if others and not _inside and _was_on:
        gc.enable()


os.register_at_fork(after_in_child=_end_others)
