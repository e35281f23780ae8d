"""Memory of large results: what one caller has let go of is the next result's.

The C library gives every array of 32 MB fresh pages, at 0.12 ms a megabyte and more: 5 of the 80 ms
that a segmentation of 770x610 pixels takes (two cores of a Xeon).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.runtime.workspace import MemoryBlock, fresh_block, populate
from saccade.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saccade.ir import Array

__all__ = ["Results"]

_LEAST = 8 << 20
"""Bytes; smaller arrays mostly get pages that the C library kept."""
_KEPT = 256 << 20
"""Bytes that may wait for the next result, unless told otherwise."""
_LOOSE = 4
"""Times its own size that the memory of a result may have."""


class Results:
    """Arrays for callers to keep, whose memory comes back when the last view of one is gone.

    Args:
        keep: Bytes that may wait for the next result.
    """

    def __init__(self, keep: int = _KEPT) -> None:
        self._keep = keep
        self._idle: list[MemoryBlock] = []  # the one that came back last at the end
        self._lock = Lock()

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """A row-major array with anything in it.

        Raises:
            MemoryError: If the system does not give it.
        """
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        if nbytes < _LEAST:
            return np.empty(shape, dtype)
        try:
            lease = _Lease(self, self._take(nbytes) or fresh_block(nbytes), nbytes)
        except OSError as error:
            raise MemoryError(str(error)) from error
        return np.asarray(lease).view(dtype).reshape(shape)

    def _take(self, nbytes: int) -> MemoryBlock | None:
        with self._lock:
            for i, block in reversed([*enumerate(self._idle)]):
                if nbytes <= block.nbytes <= _LOOSE * nbytes:
                    return self._idle.pop(i)
        return None

    def expect(self, nbytes: int) -> None:
        """Have memory with pages there for a result of so many bytes.

        Raises:
            OSError: If the system does not give it.
        """
        if nbytes >= _LEAST:
            block = self._take(nbytes) or fresh_block(nbytes)
            populate(block.address, nbytes)
            self.give_back(block)

    def give_back(self, block: MemoryBlock) -> None:
        """Called wherever an array goes, be it amid `_take`: memory is then let go instead."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._idle.append(block)
            while sum(idle.nbytes for idle in self._idle) > self._keep:
                self._idle.pop(0)
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Let go of what waits, unless somebody is about to take it."""
        if self._lock.acquire(blocking=False):
            self._idle.clear()
            self._lock.release()


class _Lease:
    """What an array's memory belongs to while there is a view of it."""

    def __init__(self, results: Results, block: MemoryBlock, nbytes: int) -> None:
        self._results, self._block = results, block
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (block.address, False),
        }  # fmt: skip

    def __del__(self) -> None:
        self._results.give_back(self._block)
