"""The phases of a plan as one CUDA graph over a table of bases."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cuda.ahead import AHEAD, ROWS
from saccade.backends.cuda.runtime.driver import KernelLaunch
from saccade.backends.cuda.runtime.tensor_maps import MAP_ALIGNMENT, MAP_BYTES, encode, words
from saccade.errors import LaunchError

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.compile import Cubin
    from saccade.backends.cuda.codegen.entry import Descriptor
    from saccade.backends.cuda.runtime.driver import CudaDriver, LaunchGraph
    from saccade.backends.cuda.runtime.tensor_maps import Encoders
    from saccade.ir import Array
    from saccade.kernels.base import Integers
    from saccade.plan import Phase, Ref

__all__ = ["Launched", "Launches", "PhaseCode", "RecordedGraph", "check_arguments"]

_WARP = 32  # threads
_SCRATCH = 2
"""Pointers that Triton's code takes behind its own: for the device's scratch and the profiler's."""
_GRAIN = 16  # bytes: what is asked for ahead is multiples of it
_MOST_AHEAD = 8 << 20
"""Bytes that a launch may ask the L2 cache for: more would push out what it reads itself."""


@dataclass(frozen=True, slots=True)
class PhaseCode:
    """A phase with chunks, its code, and the number of it among all phases of the plan.

    `others` are phases that are launched with it, as further rows of its grid.
    """

    number: int
    phase: Phase
    cubin: Cubin
    function: int
    others: tuple[PhaseCode, ...] = ()


Launched = tuple[Sequence[PhaseCode], Sequence[Sequence[int]]]
"""What is launched, and for each the numbers of the earlier ones that it waits for."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """An argument that is a tensor map: its place, the launch's number, the operand."""

    place: int
    launch: int
    ref: Ref
    descriptor: Descriptor
    integers: Integers


class Launches:
    """The launches of a program, whose pointers and tensor maps follow a table of bases.

    Args:
        codes: The phases that there is something to do for, in order.
        bases: How many entries the table has.
        encoders: Make tensor maps.

    Attributes:
        each: The launches. Their arguments are this object's.
    """

    def __init__(self, codes: Sequence[PhaseCode], bases: int, encoders: Encoders) -> None:
        sizes = [_words(code.cubin) for code in codes]
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self._values = np.zeros(int(starts[-1]), np.int64)
        # Addresses of the values, which are changed in place and never replaced.
        self._table = self._values.ctypes.data + 8 * np.arange(len(self._values), dtype=np.int64)
        self._encoders = encoders
        self._mapped: list[_Mapped] = []
        self._rows: list[tuple[int, PhaseCode]] = []  # place of the table's address
        self._readers: list[set[int]] = [set() for _ in range(bases)]
        pointers: list[tuple[int, int, int]] = []  # place, base, offset
        for i, code in enumerate(codes):
            # Whoever comes next begins with its weights in the L2 cache.
            ahead = _weights(codes[i + 1]) if i + 1 < len(codes) else None
            pointers += self._fill(i, code, int(starts[i]), ahead)
        table = np.array(pointers, np.int64).reshape(-1, 3)
        self._places, self._of, self._offsets = table[:, 0], table[:, 1], table[:, 2]
        self._bases = np.zeros(bases, np.int64)
        # Tensor maps are longer than the 8 bytes of a value, and aligned: they lie apart.
        self._memory = np.zeros(MAP_BYTES * len(self._mapped) + MAP_ALIGNMENT, np.uint8)
        first = self._memory.ctypes.data + -self._memory.ctypes.data % MAP_ALIGNMENT
        for i, one in enumerate(self._mapped):
            self._table[one.place] = first + MAP_BYTES * i
        self.each = [
            self._launch(code, int(start), size)
            # `starts` has one more: the end of all.
            for code, start, size in zip(codes, starts, sizes, strict=False)
        ]

    def _fill(
        self, number: int, code: PhaseCode, place: int, ahead: Ref | None
    ) -> list[tuple[int, int, int]]:
        """Integers, and what goes with tensor maps; for each pointer place, base and offset."""
        refs = {argument.name: argument.ref for argument in code.phase.arguments}
        described = {descriptor.name: descriptor for descriptor in code.cubin.descriptors}
        integers, pointers = {**code.phase.integers, **dict.fromkeys((*AHEAD, ROWS), 0)}, []
        if ahead is not None:
            address, whole, share = AHEAD
            grains = ahead.nbytes // _GRAIN
            refs[address], integers[whole] = ahead, _GRAIN * grains
            integers[share] = _GRAIN * -(-grains // code.phase.chunks)
        for name in code.cubin.parameters:
            if name in refs:
                self._readers[refs[name].base].add(number)
            if name in described:
                self._mapped.append(_Mapped(place, number, refs[name], described[name], integers))
                # Behind a map, Triton's code takes sizes and strides as parameters of their own.
                tail = [word.value for word in words(described[name], integers)]
                self._values[place + 1 : place + 1 + len(tail)] = tail
                place += len(tail)
            elif name in refs:
                pointers.append((place, refs[name].base, refs[name].offset))
            else:
                self._values[place] = integers[name]
            if name == ROWS:
                self._rows.append((place, code))
            place += 1
        return pointers

    def _launch(self, code: PhaseCode, start: int, size: int) -> KernelLaunch:
        values = self._values[start : start + size]
        cubin, table = code.cubin, self._table[start : start + size]
        threads, rows = _WARP * cubin.warps, 1 + len(code.others)
        return KernelLaunch(
            code.function, code.phase.chunks, threads, cubin.shared, cubin.chained, values, table,
            rows,
        )  # fmt: skip

    def place_rows(self, driver: CudaDriver, bases: Array, stream: int) -> int:
        """Bring to the GPU what code with rows reads, on a stream; its address, 0 if there is none.

        The memory is the caller's to free.

        Args:
            driver: Of the GPU.
            bases: A table of bases; operands lie as far apart in all that follow.
            stream: Who launches elsewhere waits for it.

        Raises:
            OutOfMemoryError: If there is no room.
        """
        tables = [_row_offsets(code, bases).ravel() for _, code in self._rows]
        if not tables:
            return 0
        content = np.concatenate(tables)
        address = at = driver.allocate(content.nbytes)
        driver.upload(address, content.ctypes.data, content.nbytes, stream)
        for (place, _), table in zip(self._rows, tables, strict=True):
            self._values[place] = at
            at += table.nbytes
        return address

    def point(self, bases: Array) -> list[int]:
        """Let arguments follow a table of bases (int64); the launches that this changes."""
        changed = np.flatnonzero(bases != self._bases)
        if not len(changed):
            return []
        self._bases[:] = bases
        self._values[self._places] = bases[self._of] + self._offsets
        moved = set(changed.tolist())
        for one in self._mapped:
            if one.ref.base in moved:
                address = int(bases[one.ref.base]) + one.ref.offset
                made = encode(one.descriptor, address, one.integers, self._encoders)
                ctypes.memmove(int(self._table[one.place]), ctypes.addressof(made), MAP_BYTES)
        return sorted(set[int]().union(*(self._readers[base] for base in changed)))


def _row_offsets(code: PhaseCode, bases: Array) -> Array:
    """How many bytes the operands of each row lie behind those of the first, see `ahead.ROWS`."""
    each = [
        {argument.name: argument.ref for argument in one.phase.arguments}
        for one in (code, *code.others)
    ]
    names = [name for name in code.cubin.parameters if name in each[0]]
    at = [[int(bases[refs[name].base]) + refs[name].offset for name in names] for refs in each]
    offsets: Array = np.array(at, np.int64) - np.array(at[0], np.int64)
    return offsets


def _weights(code: PhaseCode) -> Ref | None:
    """The largest packed constant of a launch, if it is to be asked for ahead."""
    packed = [one.ref for one in code.phase.arguments if one.role.value == "packed"]
    large = max(packed, key=lambda ref: ref.nbytes, default=None)
    return large if large is not None and large.nbytes <= _MOST_AHEAD else None


def check_arguments(code: PhaseCode) -> PhaseCode:
    """The same, whose arguments are those that its code takes.

    Raises:
        LaunchError: If they are not.
    """
    integers, cubin = code.phase.integers, code.cubin
    arguments = tuple(name for name, _, _ in code.phase.arguments)
    given = _given(arguments, tuple(integers), cubin.parameters, cubin.descriptors)
    if given is not None:
        raise LaunchError(
            f"{cubin.symbol} takes {', '.join(cubin.parameters)}, given are {', '.join(given)}"
        )
    for name, value in integers.items():
        # The code reads 32 bits: what is above would be cut off in silence.
        if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31:
            raise LaunchError(f"{cubin.symbol}: {name}={value} is no integer of 32 bits")
    return code


# A layer's launch has the same names at every size.
@lru_cache(maxsize=4096)
def _given(
    arguments: tuple[str, ...],
    integers: tuple[str, ...],
    parameters: tuple[str, ...],
    descriptors: tuple[Descriptor, ...],
) -> tuple[str, ...] | None:
    """What is given where that is not what the code takes, else None."""
    described = {name for one in descriptors for name in one.integers}
    parameters = tuple(name for name in parameters if name not in (*AHEAD, ROWS))
    # Integers that only tensor maps have are no parameters of the code.
    taken = [name for name in integers if name in parameters or name not in described]
    given = (*arguments, *taken)
    return given if sorted(given) != sorted(parameters) else None


def _words(cubin: Cubin) -> int:
    """How many parameters its code has, as Triton counts."""
    described = sum(len(one.sizes) + len(one.strides) for one in cubin.descriptors)
    return len(cubin.parameters) + described + _SCRATCH


class RecordedGraph:
    """A graph over one arena; one thread at a time.

    Args:
        driver: Of the GPU.
        codes: The phases that there is something to do for, at least one.
        waits: For each of them the numbers of the earlier ones that it waits for.
        bases: The table of bases to begin with, int64.
        stream: The first launch's.

    Raises:
        OutOfMemoryError: If there is no room for it.
    """

    def __init__(
        self,
        driver: CudaDriver,
        codes: Sequence[PhaseCode],
        waits: Sequence[Sequence[int]],
        bases: Array,
        stream: int,
    ) -> None:
        self._driver = driver
        self._launches = Launches(codes, len(bases), driver.encoders)
        self._launches.point(bases)
        self._offsets = self._launches.place_rows(driver, bases, stream)
        try:
            self._graph: LaunchGraph = driver.make_graph(self._launches.each, waits)
        except BaseException:
            # Of a lost GPU nothing can be freed, and trying would hide this error.
            if self._offsets and driver.lost is None:
                driver.free(self._offsets)
            raise

    def launch(self, bases: Array, stream: int) -> None:
        """Put it on a stream with this table of bases."""
        # A launch that is still running keeps the arguments that it began with.
        for index in self._launches.point(bases):
            self._driver.update(self._graph, index, self._launches.each[index])
        self._driver.launch_graph(self._graph, stream)

    def free(self) -> bool:
        """Give it back, once no run uses it; done."""
        self._driver.free_graph(self._graph)
        if self._offsets:
            self._driver.free(self._offsets)
        return True
