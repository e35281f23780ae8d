"""Arenas: what values and workspaces of a run lie in. Programs share them.

An arena has addresses for all memory of its GPU, and memory for as much of them as a program asked
for so far, so that growing copies nothing and graphs keep the addresses that they were made with.
Where the driver cannot reserve addresses it moves when it grows, and graphs are made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from saccade.backends.cuda.runtime.driver import no_room
from saccade.errors import OutOfMemoryError
from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.driver import CudaDriver

__all__ = ["Arena", "Arenas", "Secure"]

_MOST = 4
"""Arenas: as many runs on different streams may overlap; further ones wait their turn."""

Secure = Callable[[Callable[[], int]], int]
"""Does what takes memory; once more, after whatever lies idle was given back, if there is none."""


class Arena:
    """Memory of one run at a time; who enqueues a run holds `lock` meanwhile.

    Attributes:
        address: Where it begins.
        nbytes: Its size.
        lock: See above.
        stream: Where it was used last.
        event: Happens when that use has ended.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._parts: list[tuple[int, int, int]] = []
        self.nbytes = self.address = 0
        if driver.facts.virtual:
            self.address = driver.reserve(self._whole(driver.facts.memory))
        self.lock = Lock()
        self.stream: int | None = None
        self.event = driver.make_event()

    def grow(self, nbytes: int) -> int:
        """Have at least so many bytes; the address.

        Raises:
            OutOfMemoryError: If the GPU has none; smaller runs go on as before.
        """
        if nbytes <= self.nbytes:
            return self.address
        if self._driver.facts.virtual:
            start, more = self.address + self.nbytes, self._whole(nbytes - self.nbytes)
            facts = self._driver.facts
            if self.nbytes + more > self._whole(facts.memory):
                raise no_room(facts.name, more, self._driver.available(), facts.memory)
            self._parts.append((start, more, self._driver.back(start, more)))
            self.nbytes += more
        else:
            # First, so that old and new need not have room at once: nothing here outlives a run.
            self.clear()
            self.address = self._driver.allocate(nbytes)
            self.nbytes = nbytes
        return self.address

    def clear(self) -> None:
        """Give the memory back, once the last use has ended."""
        if not self.nbytes:
            return
        self._driver.wait_event(self.event)
        while self._parts:
            # Dropped from the list once it is done: what fails is still known.
            start, nbytes, handle = self._parts[-1]
            self._driver.unback(start, nbytes, handle)
            self._parts.pop()
            self.nbytes -= nbytes
        if self.nbytes:
            self._driver.free(self.address)
            self.nbytes = self.address = 0

    def _whole(self, nbytes: int) -> int:
        pages = self._driver.granularity
        return -(-nbytes // pages) * pages


class Arenas:
    """The few arenas of a GPU.

    Args:
        driver: Of the GPU.
        secure: See `Secure`.
    """

    def __init__(self, driver: CudaDriver, secure: Secure) -> None:
        self._driver, self._secure = driver, secure
        self._all: list[Arena] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._all)

    def take(self, nbytes: int, stream: int) -> Arena:
        """An arena for a run on a stream, which waits for the run before; its lock is held.

        Raises:
            OutOfMemoryError: If the GPU has not that much.
        """
        arena = self._pick(stream)
        try:
            try:
                if nbytes > arena.nbytes:
                    self._secure(partial(arena.grow, nbytes))
            except OutOfMemoryError:
                # Rather one that is in use than none.
                large = max(self._all, key=lambda other: other.nbytes)
                if large is arena or large.nbytes < nbytes:
                    raise
                arena.lock.release()
                arena = large
                arena.lock.acquire()
                # Others may have cleared it before the lock was had.
                arena.grow(nbytes)
            # On one stream runs follow each other anyway.
            if arena.stream not in (None, stream):
                self._driver.order(stream, arena.event)
        except BaseException:
            arena.lock.release()
            raise
        return arena

    def _pick(self, stream: int) -> Arena:
        """One that the stream need not wait for if there is one, or may be."""
        with self._lock:
            for arena in sorted(self._all, key=lambda other: other.stream != stream):
                if arena.lock.acquire(blocking=False):
                    if arena.stream == stream or self._driver.happened(arena.event):
                        return arena
                    arena.lock.release()
            if len(self._all) < _MOST:
                arena = Arena(self._driver)
                arena.lock.acquire()
                self._all.append(arena)
                return arena
        # Waits without `_lock`: others may find a free arena meanwhile.
        arena = self._all[hash(stream) % _MOST]
        arena.lock.acquire()
        return arena

    def give_back(self, arena: Arena, stream: int) -> None:
        """The run is on the stream; others may have the arena."""
        try:
            self._driver.record(arena.event, stream)
            arena.stream = stream
        finally:
            arena.lock.release()

    def clear(self) -> None:
        """Give back the memory of those that nobody holds."""
        for arena in self._all:
            if arena.lock.acquire(blocking=False):
                try:
                    arena.clear()
                finally:
                    arena.lock.release()
