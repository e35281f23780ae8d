"""Memory that calls need while they run and that nobody looks at afterwards.

It is kept for the next call: fresh pages cost more than most operators (0.25 ms a megabyte).
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

import numpy as np

from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["HUGE_PAGE", "Workspaces", "advise_huge_pages"]

HUGE_PAGE = 2 << 20
_MADV_HUGEPAGE = 14
_libc = ctypes.CDLL(None, use_errno=True)


def advise_huge_pages(address: int, nbytes: int) -> None:
    """Ask that the whole huge pages within a range be made so; refused advice changes nothing."""
    first = -(-address // HUGE_PAGE) * HUGE_PAGE
    last = (address + nbytes) // HUGE_PAGE * HUGE_PAGE
    if last > first:
        _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _MADV_HUGEPAGE)


class Workspaces:
    """Blocks of memory for calls in flight.

    Args:
        keep: Bytes that may lie idle.
    """

    def __init__(self, keep: int = 512 << 20) -> None:
        self._keep = keep
        self._idle: list[Array] = []  # the smallest first
        self._lock = Lock()

    def take(self, nbytes: int) -> Array:
        """At least `nbytes`, at a cache line's start, with anything in them."""
        with self._lock:
            for i, block in enumerate(self._idle):
                if len(block) >= nbytes:
                    return self._idle.pop(i)
            if self._idle:
                self._idle.pop()  # outgrown
        if nbytes < HUGE_PAGE:
            memory = np.empty(nbytes + 64, np.uint8)
            start = -memory.ctypes.data % 64
            return memory[start : start + nbytes]
        block = np.frombuffer(mmap.mmap(-1, nbytes + HUGE_PAGE), np.uint8)
        advise_huge_pages(block.ctypes.data, len(block))
        return block

    def give_back(self, block: Array) -> None:
        """Let others have it."""
        with self._lock:
            self._idle.append(block)
            self._idle.sort(key=len)
            while sum(map(len, self._idle)) > self._keep:
                self._idle.pop()

    def clear(self) -> None:
        """Release what lies idle."""
        with self._lock:
            self._idle.clear()
