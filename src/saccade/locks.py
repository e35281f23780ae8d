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
from functools import cache, partial
from importlib import import_module
from threading import get_ident
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["Lock", "cached_property", "forkless", "preload", "preload_hooks"]

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
        # A lock that nobody holds cannot be released, so another one takes its place.
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
        # One step, in which the first value wins. Later reads find it in the instance before they
        # come here, as there is no `__set__`.
        value: T = instance.__dict__.setdefault(self._name, self._function(instance))
        return value


# Weak, so that locks go with what they guard.
_locks = weakref.WeakSet[Lock]()

# Kept, as `preload` puts another one in its place for a while.
_register_at_fork = os.register_at_fork

forkless = threading.RLock()
"""Hold this around what must not be cut in two by a fork; keep it short."""


def preload(*modules: str) -> None:
    """Import modules that code which knows nothing of forks is going to import.

    Hooks that they register for forks become those of `_register`.
    """
    with forkless:
        # Read under the lock: another thread's `preload` has put the system's own back by then.
        register = os.register_at_fork
        os.register_at_fork = _register  # for as long as this takes
        try:
            for module in modules:
                import_module(module)
        finally:
            os.register_at_fork = register


@cache
def preload_hooks() -> None:
    """Import what registers hooks for forks, before any import that a fork may wait long for.

    And come before the hooks of all that others have imported: forks run the latest first. One that
    waits for an import while it holds the lock of `logging` would never see that import ask for a
    logger and go on.
    """
    preload("logging", "concurrent.futures.thread")
    _register()
    import_module("logging").getLogger("saccade")  # once a fork has ended that has its lock now


def _register(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """As `os.register_at_fork`, for hooks that forks run while they hold `forkless`.

    And in pairs: a fork that has begun before this runs no hook for after it, as it ran none for
    before it.
    """
    # A thread that is not in it when its fork ends had begun before this was registered.
    forking = set[int]()  # threads

    def begin() -> None:
        forkless.acquire()
        forking.add(get_ident())
        if before is not None:
            before()

    def end(after: Callable[[], object] | None) -> None:
        begun = get_ident() in forking
        forking.discard(get_ident())
        if after is not None and begun:
            after()
        if begun:
            forkless.release()

    def end_in_child() -> None:
        begun = get_ident() in forking
        forking.clear()
        if after_in_child is not None:  # which renews locks, whoever held them
            after_in_child()
        if begun:
            forkless.release()

    _register_at_fork(
        before=begin, after_in_parent=partial(end, after_in_parent), after_in_child=end_in_child
    )


def _renew() -> None:
    for lock in _locks:
        lock.renew()
    # Held by the thread that forked, the only one that there is here.
    forkless.release()


os.register_at_fork(
    before=forkless.acquire, after_in_parent=forkless.release, after_in_child=_renew
)
