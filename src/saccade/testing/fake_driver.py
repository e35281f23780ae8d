"""A GPU without one: memory of this process, kernels in Triton's interpreter or in Python.

Work is put off for as long as may be: a stream runs only when somebody waits for it, or for an
event on it; `beside` lets other streams then run in between; a graph's launches run in the order
that is least like the given one and yet allowed. What is read before it was written,
freed before it was used, or overwritten while it is still on its way therefore shows, as do writes
beside a buffer, double frees and leaks.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import RLock, local

import numpy as np

from saccade.backends.cuda.ahead import ROWS
from saccade.backends.cuda.codegen.compile import Cubin, parameters_of
from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.runtime.driver import (
    DeviceFacts,
    FunctionFacts,
    KernelLaunch,
    LaunchGraph,
    Multiprocessor,
    PlacedLaunch,
    gone,
)
from saccade.errors import DeviceError
from saccade.kernels.cuda.base import Entry
from saccade.testing.fake_encoders import FakeEncoders
from saccade.testing.fake_memory import FAKE_PAGE, FakeMemory
from saccade.testing.fake_streams import (
    FakeCode,
    FakeEvent,
    FakeStream,
    HostKernel,
    PlayedGraph,
    latest_first,
)
from saccade.testing.triton import play_entry

__all__ = ["FakeDriver", "HostKernel"]

_LOW = (1 << 32) - 1
"""The lower half of a word."""


class FakeDriver:
    """A `CudaDriver`; the code that it loads is what `code` and `host_code` gave.

    Args:
        memory: Bytes that it has.
        virtual: Whether addresses can be reserved apart from memory.
        dlpack: What DLPack calls its memory: the host's by default, so that PyTorch's CPU tensors
            are on it.
        name: The product's.

    Attributes:
        memory: Of the GPU, and its faults.
        counts: How often each call was made.
        lost: See `lose`.
        beside: Whether streams run side by side, not one after the other.
        clock: Seconds, which events read.
    """

    def __init__(
        self,
        memory: int = 1 << 24,
        *,
        virtual: bool = True,
        dlpack: tuple[int, int] = (1, 0),
        name: str = "Fake GPU",
    ) -> None:
        each = Multiprocessor(65536, 228 << 10, 1 << 10, 2048, 32)
        self.facts = DeviceFacts(
            dlpack[1], name, 90, memory, 4, 227 << 10, virtual, dlpack, each, 13000
        )
        self.memory = FakeMemory(name, memory)
        self.lost: str | None = None
        self.counts: dict[str, int] = defaultdict(int)
        self.granularity = FAKE_PAGE
        self.encoders = FakeEncoders()
        self.beside, self._stepping = False, False
        self.clock: Callable[[], float] = time.perf_counter
        self._codes: dict[bytes, FakeCode] = {}
        self._functions: list[FakeCode] = []
        self._streams = {0: FakeStream()}
        self._events: list[FakeEvent] = []
        self._graphs: dict[int, PlayedGraph] = {}
        self._thread, self._lock = local(), RLock()

    def code(self, entry: Entry, *, rows: bool = False) -> Cubin:
        """An entry as code that is played in Triton's interpreter, row by row of a grid."""

        def kernel(programs: int, arguments: Mapping[str, int]) -> None:
            play_entry(entry, programs, arguments)

        pointers = [name for name, _ in (*entry.pointers, *entry.extra_pointers)]
        names = (*parameters_of(entry), *((ROWS,) if rows else ()))
        return self.host_code(pointers, names[len(pointers) :], kernel)

    def host_code(
        self,
        pointers: Sequence[str],
        integers: Sequence[str],
        kernel: HostKernel,
        descriptors: Sequence[Descriptor] = (),
    ) -> Cubin:
        """A kernel in Python as code; it is not given what descriptors say."""
        token, names = f"code {len(self._codes)}", (*pointers, *integers)
        mapped = sum(1 + len(one.sizes) + len(one.strides) for one in descriptors)
        self._codes[token.encode()] = FakeCode(names, len(pointers), kernel, mapped)
        taken = (*(one.name for one in descriptors), *names)
        return Cubin(token, token.encode(), taken, 4, 0, descriptors=tuple(descriptors))

    def lose(self, why: str = "a test says so") -> None:
        """From now on every call fails."""
        self.lost = gone(self.facts.name, why)

    @property
    def graphs(self) -> int:
        """Graphs that are there."""
        return len(self._graphs)

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        assert getattr(self._thread, "depth", 0), f"{name} without the GPU's context"
        with self._lock:
            if self.lost is not None:
                raise DeviceError(self.lost)
            self.counts[name] += 1
            yield

    @contextmanager
    def current(self) -> Iterator[None]:
        """As the protocol says, as all below."""
        if self.lost is not None:
            raise DeviceError(self.lost)
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

    def _run(self, stream: int, until: int | None = None) -> None:
        queue = self._streams[stream]
        # What waits now: more may be added meanwhile.
        until = queue.end if until is None else until
        while queue.done < until:
            self._step(queue)
            # Not from within such a step: streams would call each other up without end.
            if self.beside and not self._stepping:
                self._stepping = True
                for other in self._streams.values():
                    # A busy one waits inside a piece that the next must not overtake.
                    if other is not queue and other.waiting and not other.busy:
                        self._step(other)
                self._stepping = False

    def _step(self, queue: FakeStream) -> None:
        work = queue.waiting.popleft()
        queue.done += 1
        queue.busy += 1
        work()
        queue.busy -= 1

    def _put(self, stream: int, work: Callable[[], None]) -> None:
        self._streams[stream].waiting.append(work)

    def synchronize(self) -> None:
        with self._call("synchronize"):
            for stream in list(self._streams):
                self._run(stream)

    def load(self, code: bytes, symbol: str, shared: int) -> int:
        with self._call("load"):
            if code not in self._codes:
                raise DeviceError(f"{symbol} is code for another GPU than this {self.facts.name}")
            assert shared <= self.facts.shared
            self._functions.append(self._codes[code])
            return len(self._functions)

    def describe(self, function: int, threads: int, shared: int) -> FunctionFacts:
        with self._call("describe"):
            assert 0 < function <= len(self._functions) and threads > 0 and shared >= 0
            return FunctionFacts(96, 0, 1 << 10, 5)

    def available(self) -> int:
        return self.memory.total - self.memory.used

    def allocate(self, nbytes: int) -> int:
        with self._call("allocate"):
            return self.memory.allocate(nbytes)

    def free(self, address: int) -> None:
        with self._call("free"):
            self.memory.free(address)

    def reserve(self, nbytes: int) -> int:
        with self._call("reserve"):
            assert self.facts.virtual
            return self.memory.reserve(nbytes)

    def release(self, address: int, nbytes: int) -> None:
        with self._call("release"):
            self.memory.release(address, nbytes)

    def back(self, address: int, nbytes: int) -> int:
        with self._call("back"):
            return self.memory.back(address, nbytes)

    def unback(self, address: int, nbytes: int, handle: int) -> None:
        with self._call("unback"):
            self.memory.unback(address, nbytes, handle)

    def pin(self, nbytes: int) -> int:
        with self._call("pin"):
            return self.memory.pin(nbytes)

    def unpin(self, address: int) -> None:
        with self._call("unpin"):
            self.memory.unpin(address)

    def _move(self, target: int, source: int, nbytes: int, ours: int) -> None:
        self.memory.live(ours, nbytes, ours=True)
        for address in (target, source):
            if not self.memory.is_pinned(address):
                self.memory.live(address, nbytes)
        ctypes.memmove(target, source, nbytes)

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        with self._call("upload"):
            self._put(stream, lambda: self._move(target, source, nbytes, target))
            # As CUDA: what is not pinned has been read when the call returns.
            if not self.memory.is_pinned(source):
                self._run(stream)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        with self._call("download"):
            self._put(stream, lambda: self._move(target, source, nbytes, source))
            if not self.memory.is_pinned(target):
                self._run(stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        with self._call("copy"):  # the source may be another library's
            self._put(stream, lambda: self._move(target, source, nbytes, target))

    def copy_rows(self, target: int, source: int, rows: tuple[int, int, int], stream: int) -> None:
        count, nbytes, pitch = rows
        for i in range(count):
            self.copy(target + i * nbytes, source + i * pitch, nbytes, stream)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        def work() -> None:
            self.memory.live(address, nbytes, ours=True)
            ctypes.memset(address, byte, nbytes)

        with self._call("fill"):
            self._put(stream, work)

    def make_stream(self) -> int:
        with self._call("make_stream"):
            self._streams[len(self._streams)] = FakeStream()
            return len(self._streams) - 1

    def wait_stream(self, stream: int) -> None:
        with self._call("wait_stream"):
            self._run(stream)

    def make_event(self, *, timed: bool = False) -> int:
        del timed
        with self._call("make_event"):
            self._events.append(FakeEvent())
            return len(self._events) - 1

    def _event(self, number: int) -> FakeEvent:
        event = self._events[number]
        assert not event.freed, "an event is used after it was freed"
        return event

    def record(self, event: int, stream: int) -> None:
        with self._call("record"):
            found = self._event(event)

            def happen() -> None:
                found.time = self.clock()

            self._put(stream, happen)
            found.at = stream, self._streams[stream].end

    def order(self, stream: int, event: int) -> None:
        with self._call("order"):
            at = self._event(event).at
            if at is not None:
                # As the event stands now: it may be recorded again before this runs.
                self._put(stream, lambda: self._run(*at))

    def happened(self, event: int) -> bool:
        with self._call("happened"):
            at = self._event(event).at
            return at is None or self._streams[at[0]].done >= at[1]

    def wait_event(self, event: int) -> None:
        with self._call("wait_event"):
            at = self._event(event).at
            if at is not None:
                self._run(*at)

    def milliseconds(self, start: int, end: int) -> float:
        with self._call("milliseconds"):
            assert self.happened(start) and self.happened(end)
            return 1e3 * (self._event(end).time - self._event(start).time)

    def free_event(self, event: int) -> None:
        with self._call("free_event"):
            self._event(event).freed = True

    def _play(self, launch: KernelLaunch) -> None:
        code = self._functions[launch.function - 1]
        values = launch.values.tolist()[code.mapped :]
        assert len(values) == len(code.parameters) + 2 and values[-1] == 0
        scratch = values[-2:-1] if values[-2] else []  # checked code's table of buffers
        given = dict(zip(code.parameters, values, strict=False))
        for moved in code.rows(launch.rows, given, partial(self.memory.live, ours=True)):
            for address in [*(moved[name] for name in code.parameters[: code.pointers]), *scratch]:
                self.memory.live(address)
            code.kernel(launch.programs, moved)

    def _copied(self, launch: KernelLaunch) -> KernelLaunch:
        """With arguments of its own, read where the table says."""
        assert launch.programs > 0
        places = launch.table.tolist()
        values = np.array([ctypes.c_int64.from_address(at).value for at in places], np.int64)
        return replace(launch, values=values)

    def launch(self, launch: KernelLaunch, stream: int) -> None:
        with self._call("launch"):
            # A launch takes its arguments as they are now, whatever becomes of the table.
            copied = self._copied(launch)
            self._put(stream, lambda: self._play(copied))

    def launch_placed(self, launches: Sequence[PlacedLaunch]) -> None:
        with self.current():
            for config, function, table in launches:
                words = [ctypes.c_int64.from_address(config + 8 * i).value for i in range(7)]
                programs, threads, depth, shared, stream, _, chained = words
                assert programs >> 32 == depth >> 32 == threads & _LOW == depth & _LOW == 1
                code = self._functions[function - 1]
                size = len(code.parameters) + 2 + code.mapped
                values = np.zeros(size, np.int64)
                places = np.array(
                    [ctypes.c_int64.from_address(table + 8 * i).value for i in range(size)]
                )
                placed = KernelLaunch(
                    function, programs & _LOW, threads >> 32, shared, bool(chained), values, places
                )
                self.launch(placed, stream)

    def make_graph(
        self, launches: Sequence[KernelLaunch], waits: Sequence[Sequence[int]]
    ) -> LaunchGraph:
        with self._call("make_graph"):
            number = self.counts["make_graph"]
            copied = [self._copied(launch) for launch in launches]
            self._graphs[number] = PlayedGraph(copied, latest_first(waits))
            return LaunchGraph(number, number, tuple(range(len(launches))))

    def update(self, graph: LaunchGraph, index: int, launch: KernelLaunch) -> None:
        with self._call("update"):
            self._graphs[graph.executable].launches[index] = self._copied(launch)

    def launch_graph(self, graph: LaunchGraph, stream: int) -> None:
        with self._call("launch_graph"):
            played = self._graphs[graph.executable]
            # A copy: `update` changes later launches, not those on their way.
            launches, last = [played.launches[i] for i in played.order], played.last

            # As CUDA: a graph never runs beside itself, whatever the stream.
            if last is not None and last[0] != stream:
                self._put(stream, partial(self._run, *last))
            for launch in launches:
                self._put(stream, partial(self._play, launch))
            played.last = stream, self._streams[stream].end

    def free_graph(self, graph: LaunchGraph) -> None:
        with self._call("free_graph"):
            del self._graphs[graph.executable]
