"""Locks that survive `fork`, and what forks wait for.

A forked child has one thread. A lock that another thread held stays held in it for ever, and what
the lock guards may be half done. `Lock` is simply free again in the child: it is for state that is
consistent at any time (dictionaries that are only added to). `forkless` is for what a child could
not go on with: `fork` waits until nobody holds it.

- LLVM has a lock of its own, which cannot be freed.
- A module whose import was cut in two stays half made, and whoever imports it waits for ever. So
  imports inside of functions stand within `with forkless`, or behind a `preload` of what they need.
- Sockets to children of ours must be known to whoever closes them in the child (`processes`).

Whoever holds a `Lock` may take `forkless`. Whoever holds `forkless` takes no lock that others hold
while they wait for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["Lock", "cached_property", "forkless", "preload"]

T = TypeVar("T")


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


class cached_property(Generic[T]):  # noqa: N801 - named as the one that it stands in for
    """As in `functools`, where Python 3.11 holds a lock of all instances while it computes.

    Threads that ask at the same time compute it more than once, and get the same value.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._function(instance))
        return value


_locks = weakref.WeakSet[Lock]()

forkless = threading.RLock()
"""Hold this around what must not be cut in two by a fork; keep it short."""


def preload(*modules: str) -> None:
    """Import modules that code which knows nothing of forks is going to import."""
    with forkless:
        for module in modules:
            import_module(module)


def _renew() -> None:
    for lock in _locks:
        lock.renew()
    forkless.release()


os.register_at_fork(
    before=forkless.acquire, after_in_parent=forkless.release, after_in_child=_renew
)
