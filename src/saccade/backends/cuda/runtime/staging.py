"""Copies between the host's memory and the GPU's, by way of memory that the GPU can reach."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.driver import CudaDriver

__all__ = ["Staging"]

_CHUNK, _CHUNKS = 4 << 20, 2
"""Bytes of a chunk, and how many: one is filled while the other one is on its way."""


class Staging:
    """A few pinned chunks, for one thread at a time."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        start = driver.pin(_CHUNK * _CHUNKS)
        self._chunks = [(start + i * _CHUNK, driver.make_event()) for i in range(_CHUNKS)]

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Put a copy from the host on a stream; the source may change once this returns."""
        for number, at in enumerate(range(0, nbytes, _CHUNK)):
            size = min(_CHUNK, nbytes - at)
            chunk, event = self._chunks[number % _CHUNKS]
            # The chunk's last copy may still be on its way, be it from an earlier call.
            self._driver.wait_event(event)
            ctypes.memmove(chunk, source + at, size)
            self._driver.upload(target + at, chunk, size, stream)
            self._driver.record(event, stream)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host what is there once everything on the stream has ended; waits for it."""
        waiting: list[tuple[int, int, int, int]] = []
        for number, at in enumerate(range(0, nbytes, _CHUNK)):
            # The chunk that comes next has to be emptied before it is filled again.
            if len(waiting) == _CHUNKS:
                self._arrive(*waiting.pop(0))
            size = min(_CHUNK, nbytes - at)
            chunk, event = self._chunks[number % _CHUNKS]
            # An earlier upload, on whatever stream, may still read the chunk.
            self._driver.wait_event(event)
            self._driver.download(chunk, source + at, size, stream)
            self._driver.record(event, stream)
            waiting.append((target + at, chunk, size, event))
        for one in waiting:
            self._arrive(*one)

    def _arrive(self, target: int, chunk: int, size: int, event: int) -> None:
        self._driver.wait_event(event)
        ctypes.memmove(target, chunk, size)
