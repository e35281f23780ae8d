"""A GPU's memory that is this process's: guards around blocks, freed ones that stay poisoned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from saccade.backends.cuda.runtime.driver import no_room
from saccade.ir import Array

__all__ = ["FAKE_PAGE", "FakeMemory"]

FAKE_PAGE = 1 << 16
"""Bytes that reserved addresses get memory in multiples of."""
_GUARD, _PATTERN, _FRESH, _FREED = 256, 0xA5, 0xFF, 0xDD


@dataclass(eq=False)
class _FakeBlock:
    """Bytes between guards; of reserved addresses only some have memory."""

    whole: Array
    start: int
    nbytes: int
    backed: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(nbytes: int, *, fresh: bool = True) -> _FakeBlock:
        # One guard more than two: the start is rounded up to a multiple of its size.
        whole = np.empty(nbytes + 3 * _GUARD, np.uint8)
        start = _GUARD + (-(whole.ctypes.data + _GUARD)) % _GUARD
        whole[:start] = whole[start + nbytes :] = _PATTERN
        if fresh:  # pages that nobody touches take up nothing
            whole[start : start + nbytes] = _FRESH
        return _FakeBlock(whole, whole.ctypes.data + start, nbytes)

    def holds(self, address: int, nbytes: int) -> bool:
        return self.start <= address and address + nbytes <= self.start + self.nbytes

    def has(self, address: int, nbytes: int) -> bool:
        """Whether there is memory at reserved addresses; neighbours count as one."""
        end = address + nbytes
        for start, size in sorted(self.backed.items()):
            if start <= address < start + size:
                address = min(end, start + size)
        return address == end

    def bytes_at(self, address: int, nbytes: int) -> Array:
        at = address - self.whole.ctypes.data
        return self.whole[at : at + nbytes]

    def check(self) -> None:
        at = self.start - self.whole.ctypes.data
        around = (self.whole[:at], self.whole[at + self.nbytes :])
        sound = all((guard == _PATTERN).all() for guard in around)
        assert sound, f"a write beside the {self.nbytes} bytes at {self.start:#x}"


class FakeMemory:
    """All of it.

    Args:
        product: Whose.
        total: Bytes.

    Attributes:
        total: Bytes that there are; may be lowered to let it run out.
        used: Bytes that are allocated.
        peak: The most that ever were.
    """

    def __init__(self, product: str, total: int) -> None:
        self._product = product
        self.total, self.used, self.peak = total, 0, 0
        self._blocks: dict[int, _FakeBlock] = {}
        self._freed: list[_FakeBlock] = []
        self._pinned: dict[int, _FakeBlock] = {}
        self._reserved: dict[int, _FakeBlock] = {}

    @property
    def blocks(self) -> int:
        """Allocations that are there."""
        return len(self._blocks)

    def check(self) -> None:
        """Look at all guards.

        Raises:
            AssertionError: If something wrote beside its buffer, or into one that was freed.
        """
        for block in (*self._blocks.values(), *self._pinned.values(), *self._reserved.values()):
            block.check()
        for block in self._freed:
            poisoned = (block.bytes_at(block.start, block.nbytes) == _FREED).all()
            assert poisoned, f"a write into {block.nbytes} bytes that were freed"

    def live(self, address: int, nbytes: int = 0, *, ours: bool = False) -> None:
        """Refuse addresses whose memory was freed, and unless it is `ours` none that is another's.

        Raises:
            AssertionError: If there is no memory.
        """
        where = f"{nbytes} bytes at {address:#x}"
        for block in self._reserved.values():
            if block.holds(address, 0):
                assert block.has(address, nbytes), f"{where} have no memory"
                return
        if any(block.holds(address, nbytes) for block in self._blocks.values()):
            return
        freed = any(b.start <= address < b.start + b.nbytes for b in self._freed)
        assert not freed and not ours, f"{where} are used after they were freed, or never were"

    def is_pinned(self, address: int) -> bool:
        """Whether copies may be on their way to or from the host's memory there."""
        return any(block.holds(address, 1) for block in self._pinned.values())

    def _grow(self, nbytes: int) -> None:
        if nbytes > self.total - self.used:
            raise no_room(self._product, nbytes, max(self.total - self.used, 0), self.total)
        self.used += nbytes
        self.peak = max(self.peak, self.used)

    def allocate(self, nbytes: int) -> int:
        """A block."""
        self._grow(nbytes)
        block = _FakeBlock.of(nbytes)
        self._blocks[block.start] = block
        return block.start

    def free(self, address: int) -> None:
        """Its end."""
        block = self._blocks.pop(address, None)
        assert block is not None, f"freed twice, or never allocated: {address:#x}"
        block.check()
        block.bytes_at(block.start, block.nbytes)[:] = _FREED
        # Kept, or another block could be given the same addresses.
        self._freed.append(block)
        self.used -= block.nbytes

    def reserve(self, nbytes: int) -> int:
        """Addresses."""
        assert nbytes % FAKE_PAGE == 0
        block = _FakeBlock.of(nbytes, fresh=False)
        self._reserved[block.start] = block
        return block.start

    def release(self, address: int, nbytes: int) -> None:
        """Their end."""
        block = self._reserved.pop(address)
        assert block.nbytes == nbytes and not block.backed

    def _around(self, address: int, nbytes: int) -> _FakeBlock:
        return next(b for b in self._reserved.values() if b.holds(address, nbytes))

    def back(self, address: int, nbytes: int) -> int:
        """Memory for addresses; its handle is the address."""
        block = self._around(address, nbytes)
        assert nbytes % FAKE_PAGE == 0 and address not in block.backed
        self._grow(nbytes)
        block.backed[address] = nbytes
        block.bytes_at(address, nbytes)[:] = _FRESH
        return address

    def unback(self, address: int, nbytes: int, handle: int) -> None:
        """Its end."""
        assert handle == address and self._around(address, nbytes).backed.pop(address) == nbytes
        self.used -= nbytes

    def pin(self, nbytes: int) -> int:
        """Memory of the host."""
        block = _FakeBlock.of(nbytes)
        self._pinned[block.start] = block
        return block.start

    def unpin(self, address: int) -> None:
        """Its end."""
        del self._pinned[address]
