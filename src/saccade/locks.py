"""Locks that survive `fork`.

A forked child has one thread. A lock that another thread held stays held in it for ever, and what
the lock guards may be half done. `Lock` is simply free again in the child: it is for state that is
consistent at any time (dictionaries that are only added to). `forkless` is held while LLVM works,
whose own lock cannot be freed: `fork` waits for it.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["Lock", "forkless"]


class Lock:
    """A mutex that is free in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; whether that was possible."""
        return self._lock.acquire(blocking)

    def release(self) -> None:
        """Let go."""
        self._lock.release()

    def renew(self) -> None:
        """Be free, whoever held it."""
        self._lock = threading.Lock()


_locks = weakref.WeakSet[Lock]()

forkless = threading.RLock()
"""Hold this around what must not be cut in two by a fork; keep it short."""


def _renew() -> None:
    for lock in _locks:
        lock.renew()
    forkless.release()


os.register_at_fork(
    before=forkless.acquire, after_in_parent=forkless.release, after_in_child=_renew
)
