"""Memory of inputs and results: what callers have let go of is the next one's.

A buffer may be given back while work that uses it still waits on a stream: whoever gets it next
waits for what was on those streams until then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from saccade.locks import Lock

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.driver import CudaDriver
    from saccade.backends.cuda.runtime.memory import Secure

__all__ = ["Block", "Buffers", "Lease"]

_LEAST, _PAGE = 512, 2 << 20
"""Bytes that sizes are rounded up to, of less than a page of the GPU and of more."""
_LOOSE = 2
"""Times its own size that the memory of a buffer may have."""
_KEPT = 1 << 30
"""Bytes that may wait for the next buffer, unless told otherwise."""


@dataclass(eq=False, slots=True)
class Block:
    """A piece of the GPU's memory.

    Attributes:
        address: At a multiple of 256.
        nbytes: Its size.
        streams: Where it is or was used.
    """

    address: int
    nbytes: int
    streams: set[int] = field(default_factory=set)


class Lease:
    """Somebody's hold of a block, which goes back with it."""

    def __init__(self, buffers: Buffers, block: Block) -> None:
        self._buffers, self.block = buffers, block

    def __del__(self) -> None:
        self._buffers.give_back(self.block)


class Buffers:
    """The buffers of a GPU.

    Args:
        driver: Of the GPU.
        secure: See `memory.Secure`.
        keep: Bytes that may wait for the next buffer.
    """

    def __init__(self, driver: CudaDriver, secure: Secure, keep: int = _KEPT) -> None:
        self._driver, self._secure, self._keep = driver, secure, keep
        # Finalizers append here without the lock, which their own thread may hold.
        self._returned: deque[Block] = deque()
        self._idle: list[Block] = []  # the one that came back last at the end
        self._event: int | None = None
        self._lock = Lock()

    def lease(self, nbytes: int, stream: int) -> Lease:
        """Memory to be used on a stream, with anything in it.

        Raises:
            OutOfMemoryError: If the GPU has none.
        """
        unit = _LEAST if nbytes < _PAGE else _PAGE
        # Never 0, which the driver refuses to allocate.
        size = max(1, -(-nbytes // unit)) * unit
        with self._lock:
            self._collect()
            block = self._fitting(size, stream)
            if block is not None:
                self._order(block, stream)
        if block is None:
            # Not under the lock: `secure` may clear these very buffers to make room.
            block = Block(self._secure(partial(self._driver.allocate, size)), size)
        block.streams = {stream}
        return Lease(self, block)

    def give_back(self, block: Block) -> None:
        """Called wherever the last view goes, on any thread: asks the driver nothing."""
        self._returned.append(block)

    def clear(self) -> None:
        """Give back what waits, unless somebody is about to take it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._collect(keep=0)
        finally:
            self._lock.release()

    def _collect(self, keep: int | None = None) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        excess = sum(block.nbytes for block in self._idle) - (self._keep if keep is None else keep)
        while self._idle and excess > 0:
            block = self._idle[0]
            # `free` wants that whoever uses the memory has ended.
            for stream in block.streams:
                self._driver.wait_stream(stream)
            self._driver.free(block.address)
            # Only once it is free: what fails is still known.
            self._idle.pop(0)
            excess -= block.nbytes

    def _fitting(self, size: int, stream: int) -> Block | None:
        fits = [b for b in reversed(self._idle) if size <= b.nbytes <= _LOOSE * size]
        if not fits:
            return None
        # What was used on this stream alone need not be waited for.
        block = next((b for b in fits if b.streams == {stream}), fits[0])
        self._idle.remove(block)
        return block

    def _order(self, block: Block, stream: int) -> None:
        """Let the stream wait for whatever may still use the block."""
        for other in block.streams - {stream}:
            if self._event is None:
                self._event = self._driver.make_event()
            # One event does for all: a wait holds to what it was recorded for at that time.
            self._driver.record(self._event, other)
            self._driver.order(stream, self._event)
