"""The phases of a plan as one CUDA graph over a table of bases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cuda.runtime.driver import KernelLaunch
from saccade.errors import LaunchError

if TYPE_CHECKING:
    from saccade.backends.cuda.codegen.compile import Cubin
    from saccade.backends.cuda.runtime.driver import CudaDriver, LaunchGraph
    from saccade.ir import Array
    from saccade.plan import Phase

__all__ = ["Launches", "PhaseCode", "RecordedGraph", "check_arguments"]

_WARP = 32  # threads
_SCRATCH = 2
"""Pointers that Triton's code takes behind its own: for the device's scratch and the profiler's."""


@dataclass(frozen=True, slots=True)
class PhaseCode:
    """A phase with chunks, its code, and the number of it among all phases of the plan."""

    number: int
    phase: Phase
    cubin: Cubin
    function: int


class Launches:
    """The launches of a program, whose pointers follow a table of bases.

    Args:
        codes: The phases that there is something to do for, in order.
        bases: How many entries the table has.

    Attributes:
        each: The launches. Their arguments are this object's.
    """

    def __init__(self, codes: Sequence[PhaseCode], bases: int) -> None:
        sizes = [len(code.cubin.parameters) + _SCRATCH for code in codes]
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self._values = np.zeros(int(starts[-1]), np.int64)
        self._table = self._values.ctypes.data + 8 * np.arange(len(self._values), dtype=np.int64)
        pointers: list[tuple[int, int, int]] = []  # place, base, offset
        self._readers: list[set[int]] = [set() for _ in range(bases)]
        for i, code in enumerate(codes):
            for place, base, offset in _placed(code, int(starts[i]), self._values):
                pointers.append((place, base, offset))
                self._readers[base].add(i)
        table = np.array(pointers, np.int64).reshape(-1, 3)
        self._places, self._of, self._offsets = table[:, 0], table[:, 1], table[:, 2]
        self._bases = np.zeros(bases, np.int64)
        self.each = [
            self._launch(code, int(start), size)
            for code, start, size in zip(codes, starts, sizes, strict=False)
        ]

    def _launch(self, code: PhaseCode, start: int, size: int) -> KernelLaunch:
        values = self._values[start : start + size]
        cubin, table = code.cubin, self._table[start : start + size]
        threads = _WARP * cubin.warps
        return KernelLaunch(
            code.function, code.phase.chunks, threads, cubin.shared, cubin.chained, values, table
        )

    def point(self, bases: Array) -> list[int]:
        """Let arguments follow a table of bases (int64); the launches that this changes."""
        changed = np.flatnonzero(bases != self._bases)
        if not len(changed):
            return []
        self._bases[:] = bases
        self._values[self._places] = bases[self._of] + self._offsets
        return sorted(set[int]().union(*(self._readers[base] for base in changed)))


def check_arguments(code: PhaseCode) -> PhaseCode:
    """The same, whose arguments are those that its code takes.

    Raises:
        LaunchError: If they are not.
    """
    integers, names = code.phase.integers, code.cubin.parameters
    given = (*(argument.name for argument in code.phase.arguments), *integers)
    if sorted(given) != sorted(names):
        raise LaunchError(
            f"{code.cubin.symbol} takes {', '.join(names)}, given are {', '.join(given)}"
        )
    for name, value in integers.items():
        if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31:
            raise LaunchError(f"{code.cubin.symbol}: {name}={value} is no integer of 32 bits")
    return code


def _placed(code: PhaseCode, start: int, values: Array) -> Iterator[tuple[int, int, int]]:
    """Fill the integers in; for each pointer its place, its base and its offset."""
    pointers = {a.name: a.ref for a in code.phase.arguments}
    for place, name in enumerate(code.cubin.parameters, start):
        if name in pointers:
            yield place, pointers[name].base, pointers[name].offset
        else:
            values[place] = code.phase.integers[name]


class RecordedGraph:
    """A graph over one arena; one thread at a time.

    Args:
        driver: Of the GPU.
        codes: The phases that there is something to do for, at least one.
        bases: The table of bases to begin with, int64.
    """

    def __init__(self, driver: CudaDriver, codes: Sequence[PhaseCode], bases: Array) -> None:
        self._driver = driver
        self._launches = Launches(codes, len(bases))
        self._launches.point(bases)
        self._graph: LaunchGraph = driver.make_graph(self._launches.each)

    def launch(self, bases: Array, stream: int) -> None:
        """Put it on a stream with this table of bases."""
        for index in self._launches.point(bases):
            self._driver.update(self._graph, index, self._launches.each[index])
        self._driver.launch_graph(self._graph, stream)

    def free(self) -> bool:
        """Give it back; done."""
        self._driver.free_graph(self._graph)
        return True
