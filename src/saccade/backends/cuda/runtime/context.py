"""What this process has on a GPU: its driver, memory, constants, streams and loaded code."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from saccade.backends.cuda.runtime.buffers import Buffers, Lease
from saccade.backends.cuda.runtime.constants import Constants
from saccade.backends.cuda.runtime.memory import Arenas
from saccade.backends.cuda.runtime.staging import Staging
from saccade.errors import DeviceError, OutOfMemoryError
from saccade.locks import Lock, forkless

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.compile import Cubin
    from saccade.backends.cuda.runtime.driver import CudaDriver
    from saccade.ir import Array

__all__ = ["DeviceContext", "elapsed", "open_device"]

_MOST_STREAMS = 8
"""Of our own: threads beyond share them."""

_opened: dict[int, DeviceContext] = {}
_opening = Lock()


class DeviceContext:
    """One GPU; programs of one process share it.

    Args:
        driver: Of the GPU.

    Attributes:
        driver: The same. Whoever calls it does so within `driver.current()`.
        arenas: Memory of runs.
        constants: Of all programs.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self.driver = driver
        self.arenas = Arenas(driver, self.secure)
        self.constants = Constants(driver, self.secure, self._upload_now)
        self._buffers = Buffers(driver, self.secure)
        self._functions: dict[tuple[str, int, bytes], int] = {}
        self._stagings: list[Staging] = []
        self._streams: list[int] = []
        self._thread, self._threads = threading.local(), count()
        self._retired: deque[Callable[[], bool]] = deque()
        self._programs: deque[None] = deque()  # as many as there are; finalizers take no lock
        self._bandwidth: float | None = None
        self._event: int | None = None
        self._lock = Lock()

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type and number of the device."""
        return self.driver.facts.dlpack

    def secure(self, take: Callable[[], int]) -> int:
        """Take memory; what lies idle is given back if there is none."""
        try:
            return take()
        except OutOfMemoryError:
            self._buffers.clear()
            self.arenas.clear()
            return take()

    def lease(self, nbytes: int, stream: int) -> Lease:
        """Memory for an input or a result, to be used on a stream.

        Raises:
            OutOfMemoryError: If the GPU has none.
        """
        return self._buffers.lease(nbytes, stream)

    def stream(self) -> int:
        """This thread's stream."""
        found: int | None = getattr(self._thread, "stream", None)
        if found is None:
            # One step of the interpreter: no two threads get the same number.
            number = next(self._threads) % _MOST_STREAMS
            with self._lock:
                while number >= len(self._streams):
                    self._streams.append(self.driver.make_stream())
            found = self._thread.stream = self._streams[number]
        return found

    def order(self, stream: int, before: Iterable[int]) -> None:
        """Let a stream wait for what is on others so far."""
        others = {other for other in before if other != stream}
        if not others:
            return
        with self._lock:
            if self._event is None:
                self._event = self.driver.make_event()
            # One event does for all: a wait holds to what it was recorded for at that time.
            for other in others:
                self.driver.record(self._event, other)
                self.driver.order(stream, self._event)

    def load(self, cubin: Cubin) -> int:
        """The function of a cubin, which is loaded once.

        Raises:
            DeviceError: If it is for another GPU.
        """
        # Shared memory counts, too: the driver is told its size as the function is loaded.
        # Python keeps the hash of bytes, so that a new size need not read its code again.
        key = cubin.symbol, cubin.shared, cubin.code
        found = self._functions.get(key)
        if found is None:
            found = self.driver.load(cubin.code, cubin.symbol, cubin.shared)
            self._functions[key] = found
        return found

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """Chunks of pinned memory for this thread alone."""
        try:
            # No lock: `pop` and `append` of lists are one step each.
            one = self._stagings.pop()
        except IndexError:
            one = Staging(self.driver)
        try:
            yield one
        finally:
            self._stagings.append(one)

    def _upload_now(self, address: int, array: Array) -> None:
        stream = self.stream()
        with self.staging() as chunks:
            chunks.upload(address, array.ctypes.data, array.nbytes, stream)
        # Programs read constants on any stream, none of which waits for this one.
        self.driver.wait_stream(stream)

    def bandwidth(self) -> float:
        """Bytes per microsecond from and to memory, as a large copy within it has them."""
        if self._bandwidth is None:
            self._bandwidth = measured_bandwidth(self)
            # What was copied is large, and nobody else wants buffers of that size.
            self._buffers.clear()
        return self._bandwidth

    def enter(self) -> None:
        """A program is being made."""
        self.tidy()
        self._programs.append(None)

    def retire(self, parts: Iterable[Callable[[], bool]]) -> None:
        """A program is gone: do away with its parts, now or with the next program.

        Args:
            parts: Each says whether it could be done.
        """
        self._programs.pop()
        self._retired.extend(parts)
        # Of a lost GPU, or in a forked child, nothing is left to free.
        with suppress(DeviceError), self.driver.current():
            self.tidy()

    def tidy(self) -> None:
        """Do away with what is left of programs; of all memory, if there is none any more."""
        if self._retired:
            # Runs that are only enqueued may still use what is freed here.
            self.driver.synchronize()
        # Each once: what cannot be done now goes to the end, for the next time.
        for _ in range(len(self._retired)):
            with suppress(IndexError):  # another thread was first
                part = self._retired.popleft()
                if not part():
                    self._retired.append(part)
        if not self._programs:
            self._buffers.clear()
            self.arenas.clear()


def measured_bandwidth(device: DeviceContext, most: int = 256 << 20, runs: int = 10) -> float:
    """Bytes per microsecond, read and written, of the fastest of some copies.

    Raises:
        OutOfMemoryError: If there is no room for two buffers.
    """
    driver, stream = device.driver, device.stream()
    nbytes = min(most, driver.available() // 8)
    leases = [device.lease(nbytes, stream) for _ in range(2)]
    target, source = (lease.block.address for lease in leases)
    start, end = (driver.make_event(timed=True) for _ in range(2))
    fastest = float("inf")
    for _ in range(runs):
        driver.record(start, stream)
        driver.copy(target, source, nbytes, stream)
        driver.record(end, stream)
        driver.wait_stream(stream)
        fastest = min(fastest, 1e3 * driver.milliseconds(start, end))
    driver.free_event(start)
    driver.free_event(end)
    return 2 * nbytes / max(fastest, 1e-3)


def elapsed(device: DeviceContext, call: Callable[[], object], runs: int) -> float:
    """Milliseconds of a call, the mean of so many on this thread's stream, by the GPU's clock.

    Raises:
        DeviceError: If it was lost.
    """
    driver = device.driver
    with driver.current():
        stream = device.stream()
        start, end = (driver.make_event(timed=True) for _ in range(2))
        driver.record(start, stream)
        for _ in range(runs):
            call()
        driver.record(end, stream)
        driver.wait_stream(stream)
        found = driver.milliseconds(start, end) / runs
        driver.free_event(start)
        driver.free_event(end)
    return found


def open_device(ordinal: int = 0) -> DeviceContext:
    """The GPU, opened once per process.

    Raises:
        DeviceError: If there is no GPU, no driver, or `cuda-bindings` is not installed.
    """
    with _opening:
        if ordinal not in _opened:
            with forkless:
                from saccade.backends.cuda.runtime.bindings import (  # noqa: PLC0415 - tests have another
                    BoundDriver,
                )
            _opened[ordinal] = DeviceContext(BoundDriver(ordinal))
        return _opened[ordinal]
