"""Memory that calls need while they run and that nobody looks at afterwards.

It is kept for the next call: fresh pages cost more than most operators (0.25 ms a megabyte).
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from saccade.errors import OutOfMemoryError
from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["HUGE_PAGE", "MemoryBlock", "Workspaces", "advise_huge_pages", "fresh_block", "populate"]

HUGE_PAGE = 2 << 20
"""Bytes."""
_KEPT = 512 << 20  # bytes of memory that waits for the next call, unless told otherwise
_SMALL = 256 << 10  # bytes; calls that need no more are so short that a search would be noticed
_MADV_HUGEPAGE, _MADV_POPULATE_WRITE = 14, 23  # Linux's numbers
_libc = ctypes.CDLL(None, use_errno=True)


def advise_huge_pages(address: int, nbytes: int) -> None:
    """Ask that the whole huge pages within a range be made so; refused advice changes nothing."""
    first = -(-address // HUGE_PAGE) * HUGE_PAGE
    last = (address + nbytes) // HUGE_PAGE * HUGE_PAGE
    if last > first:
        _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _MADV_HUGEPAGE)


def populate(address: int, nbytes: int) -> None:
    """Have the pages of a range there, with what they hold; systems that cannot change nothing.

    Piece by piece: meanwhile no other thread can map or unmap memory.
    """
    at = address - address % mmap.PAGESIZE
    while at < address + nbytes:
        piece = min(HUGE_PAGE - at % HUGE_PAGE, address + nbytes - at)
        if _libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(piece), _MADV_POPULATE_WRITE):
            return
        at += piece


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Memory from a cache line's start on.

    Attributes:
        address: Where it starts.
        nbytes: Its size; pages of it that nobody ever touched take up nothing.
        memory: What keeps it alive.
        used: Bytes that were asked for at most.
    """

    address: int
    nbytes: int
    memory: Array
    used: int

    def array(self, nbytes: int) -> Array:
        """Its first bytes."""
        start = self.address - self.memory.ctypes.data
        return self.memory[start : start + nbytes]


class Workspaces:
    """Blocks of memory for calls in flight.

    Args:
        keep: Bytes of large blocks that may lie idle. (There are as many small ones as there ever
            were small calls at once.)
        reserve: Times what is asked for that a large block has addresses for. A call that needs
            more than the last one finds its pages there, and touches only the others for the first
            time.
    """

    def __init__(self, keep: int = _KEPT, reserve: int = 1) -> None:
        self._keep = keep
        self._reserve = reserve
        self._small: list[MemoryBlock] = []  # all of one size
        self._idle: list[MemoryBlock] = []  # the smallest first
        self._newest: tuple[ref[Array], int] | None = None  # memory with addresses to grow into
        self._lock = Lock()

    def take(self, nbytes: int) -> MemoryBlock:
        """At least `nbytes`, with anything in them.

        Raises:
            OutOfMemoryError: If the system does not give them.
        """
        if nbytes <= _SMALL:
            try:
                return self._small.pop()  # a single step, which needs no lock
            except IndexError:
                return fresh_block(_SMALL)
        with self._lock:
            for i, block in enumerate(self._idle):
                if block.nbytes >= nbytes:
                    return replace(self._idle.pop(i), used=max(block.used, nbytes))
            if self._idle:
                self._idle.pop()  # outgrown
        if self._reserve > 1:
            with suppress(OSError, MemoryError):  # where addresses are scarce
                block = fresh_block(nbytes, reserve=self._reserve)
                self._newest = ref(block.memory), block.address
                return block
        try:
            return fresh_block(nbytes)
        except (OSError, MemoryError) as error:
            raise OutOfMemoryError(
                f"this call needs {nbytes} bytes of memory while it runs, which the system does "
                "not give: use smaller operands"
            ) from error

    def expect(self, nbytes: int) -> None:
        """Have the pages there that a call for so many bytes will find, whoever uses them now."""
        memory = self._newest and self._newest[0]()
        if self._newest is not None and memory is not None and len(memory) >= nbytes:
            populate(self._newest[1], nbytes)

    def give_back(self, block: MemoryBlock) -> None:
        """Let others have it."""
        if block.nbytes == _SMALL:
            self._small.append(block)
            return
        with self._lock:
            self._idle.append(block)
            self._idle.sort(key=lambda idle: idle.nbytes)
            while sum(idle.used for idle in self._idle) > self._keep:
                self._idle.pop()

    def clear(self) -> None:
        """Release what lies idle."""
        with self._lock:
            self._small.clear()
            self._idle.clear()

    def shrink(self, most: int) -> None:
        """Release what lies idle and is larger than anybody asks for; all of it for 0 bytes.

        Does nothing while somebody takes or gives back: a finalizer may ask, on the very thread.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._idle = [block for block in self._idle if block.used < 2 * most + HUGE_PAGE]
            if not most:
                self._small.clear()
                self._idle.clear()
        finally:
            self._lock.release()


def fresh_block(nbytes: int, reserve: int = 1) -> MemoryBlock:
    """Memory that nobody had before; much of it asks for huge pages.

    Args:
        nbytes: At least so many.
        reserve: Times so many that there are addresses for, if that is much.
    """
    if nbytes < HUGE_PAGE:
        memory = np.empty(nbytes + 64, np.uint8)
        address = memory.ctypes.data
        return MemoryBlock(address + -address % 64, nbytes, memory, nbytes)
    # Of this process alone: a mapping is by default shared with its forks.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapped = mmap.mmap(-1, reserve * nbytes + HUGE_PAGE, flags=flags)
    memory = np.frombuffer(mapped, np.uint8)
    address = memory.ctypes.data
    advise_huge_pages(address, len(memory))
    return MemoryBlock(address, len(memory), memory, nbytes)
