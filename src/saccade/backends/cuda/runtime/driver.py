"""What the runtime asks of CUDA: a protocol over one GPU, so that tests have one of their own.

Addresses, streams, events and functions are plain integers, as the driver's own handles are. Each
call but `current` and `launch_placed` is made with the GPU's context current. What fails raises:

    OutOfMemoryError   the GPU, or the host's pinned memory, has no more
    DeviceError        anything else; after an error that takes the context with it (`lost`), each
                       further call raises it again at once
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from saccade.errors import OutOfMemoryError

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.tensor_maps import Encoders
    from saccade.ir import Array

__all__ = [
    "LEGACY_STREAM",
    "CudaDriver",
    "DeviceFacts",
    "FunctionFacts",
    "KernelLaunch",
    "LaunchGraph",
    "Multiprocessor",
    "PlacedLaunch",
    "gone",
    "no_room",
]

LEGACY_STREAM = 0
"""The stream that all others of the context wait for, unless they are made not to."""


def no_room(product: str, nbytes: int, free: int, total: int) -> OutOfMemoryError:
    """The error of a GPU with `free` of its `total` bytes free, where so many are asked for.

    `nbytes` is 0 where the driver asks for its own ends.
    """
    there = f"{product} has {free} of its {total} bytes of memory free"
    if not nbytes:
        return OutOfMemoryError(f"{there}, less than the driver needs")
    # Asked after the failure: by now enough may be free, or it lies in pieces.
    missing = max(nbytes - free, 0)
    return OutOfMemoryError(f"{there}, {nbytes} more are needed: {missing} are missing")


def gone(product: str, why: str) -> str:
    """What is said of a GPU that answers nothing any more."""
    return (
        f"{product} was lost ({why}): this process cannot use it any more, start a new one and "
        "see the system's log"
    )


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one multiprocessor has for the programs that are on it at the same time.

    Attributes:
        registers: Of 32 bits.
        shared: Bytes of shared memory.
        reserved: Bytes of it that each program takes beside its own.
        threads: How many it holds.
        programs: The same.
    """

    registers: int
    shared: int
    reserved: int
    threads: int
    programs: int


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """Loaded code as the driver describes it.

    Attributes:
        registers: Of a thread.
        local: Bytes of a thread's local memory: what was spilled, and its stack.
        shared: Bytes of a program's shared memory that the code itself asks for.
        programs: How many of them a multiprocessor runs at the same time.
    """

    registers: int
    local: int
    shared: int
    programs: int


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A GPU as the driver describes it.

    Attributes:
        ordinal: Which of this process's GPUs.
        name: The product's.
        arch: Compute capability times ten, 90 for `sm_90`.
        memory: Bytes of it.
        multiprocessors: How many it has.
        shared: Bytes of shared memory that a program may have.
        virtual: Whether addresses can be reserved apart from memory.
        dlpack: DLPack's type and number of the device.
        multiprocessor: What each of them has.
        cuda: Version of CUDA that the driver brings, 13000 for 13.0.
    """

    ordinal: int
    name: str
    arch: int
    memory: int
    multiprocessors: int
    shared: int
    virtual: bool
    dlpack: tuple[int, int]
    multiprocessor: Multiprocessor
    cuda: int = 0


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A launch with its arguments.

    Attributes:
        function: Handle of the code.
        programs: Of its grid, at least one.
        threads: Of a program.
        shared: Bytes of dynamic shared memory of a program.
        chained: Whether it may begin before the launch ahead of it has ended, as its code waits by
            itself (`griddepcontrol.wait`).
        values: int64, an argument each; those of 32 bits in the low half.
        table: int64, the address of each of the values.
        rows: How often the grid has the programs, one row after the other.
    """

    function: int
    programs: int
    threads: int
    shared: int
    chained: bool
    values: Array
    table: Array
    rows: int = 1


class PlacedLaunch(NamedTuple):
    """A launch as `cuLaunchKernelEx` reads it.

    Attributes:
        config: Address of its CUlaunchConfig, which names the stream.
        function: Handle of the code.
        table: Address of the addresses of its arguments.
    """

    config: int
    function: int
    table: int


@dataclass(frozen=True, slots=True)
class LaunchGraph:
    """Launches, one after the other, that are launched as one.

    Attributes:
        graph: Handle of what they were recorded in.
        executable: Handle of what is launched.
        nodes: Handle of each launch.
    """

    graph: int
    executable: int
    nodes: tuple[int, ...]


class CudaDriver(Protocol):
    """One GPU."""

    @property
    def facts(self) -> DeviceFacts:
        """What it is."""

    @property
    def lost(self) -> str | None:
        """Why nothing more can be had of it, if that is so."""

    @property
    def encoders(self) -> Encoders:
        """The functions that make tensor maps."""

    def current(self) -> AbstractContextManager[None]:
        """Its context is this thread's within the block, and what was before, after it."""

    def synchronize(self) -> None:
        """Wait for everything."""

    def load(self, code: bytes, symbol: str, shared: int) -> int:
        """A function of a cubin, which stays loaded; it may have so much dynamic shared memory.

        Raises:
            DeviceError: If the code is for another GPU.
        """

    def describe(self, function: int, threads: int, shared: int) -> FunctionFacts:
        """Facts of loaded code, for programs of so many threads and bytes of dynamic memory."""

    def available(self) -> int:
        """Bytes of memory that nobody has."""

    def allocate(self, nbytes: int) -> int:
        """Memory, at a multiple of 256."""

    def free(self, address: int) -> None:
        """Give it back; whoever uses it must have ended."""

    @property
    def granularity(self) -> int:
        """Bytes that `reserve` and `back` take multiples of."""

    def reserve(self, nbytes: int) -> int:
        """Addresses without memory; only where `facts.virtual`."""

    def release(self, address: int, nbytes: int) -> None:
        """Give reserved addresses back, none of which has memory."""

    def back(self, address: int, nbytes: int) -> int:
        """Give reserved addresses memory; its handle."""

    def unback(self, address: int, nbytes: int, handle: int) -> None:
        """Take the memory away."""

    def pin(self, nbytes: int) -> int:
        """Memory of the host that copies run to and from by themselves."""

    def unpin(self, address: int) -> None:
        """Give it back."""

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy from the host; returns at once if that is pinned."""

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to the host; returns at once if that is pinned."""

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy within the GPU."""

    def copy_rows(self, target: int, source: int, rows: tuple[int, int, int], stream: int) -> None:
        """Copy the beginnings of rows, side by side: their number, bytes, bytes from row to row."""

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Set every byte."""

    def make_stream(self) -> int:
        """A stream that waits for no other."""

    def wait_stream(self, stream: int) -> None:
        """Wait for all that was put on it."""

    def make_event(self, *, timed: bool = False) -> int:
        """An event."""

    def record(self, event: int, stream: int) -> None:
        """It happens once all that is on the stream so far has ended."""

    def order(self, stream: int, event: int) -> None:
        """What is put on the stream from now on waits for what the event was last recorded for."""

    def happened(self, event: int) -> bool:
        """Whether it did."""

    def wait_event(self, event: int) -> None:
        """Wait until it has; at once if it was never recorded."""

    def milliseconds(self, start: int, end: int) -> float:
        """Between two timed events, which have both happened."""

    def free_event(self, event: int) -> None:
        """Give it back."""

    def launch(self, launch: KernelLaunch, stream: int) -> None:
        """Put one launch on the stream."""

    def launch_placed(self, launches: Sequence[PlacedLaunch]) -> None:
        """Put launches on their streams, with as little work as may be; whatever is current."""

    def make_graph(
        self, launches: Sequence[KernelLaunch], waits: Sequence[Sequence[int]]
    ) -> LaunchGraph:
        """Record launches, at least one.

        Args:
            launches: In an order in which they may run.
            waits: For each of them the numbers of the earlier ones that it waits for.
        """

    def update(self, graph: LaunchGraph, index: int, launch: KernelLaunch) -> None:
        """From its next launch on, the graph does this one with other arguments."""

    def launch_graph(self, graph: LaunchGraph, stream: int) -> None:
        """Put it on the stream; it waits for an earlier launch of its own on any stream."""

    def free_graph(self, graph: LaunchGraph) -> None:
        """Give it back."""
