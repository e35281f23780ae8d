"""What one run of a program needs beside its code: segments as the driver reads them, counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.runtime.driver import JOB_WORDS, driver
from saccade.backends.cpu.runtime.tables import Host, Native, ProgramTables

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["NativeJob", "RunState", "Segment"]


class Segment:
    """A run of native steps as the driver reads it, the same for every run."""

    def __init__(self, native: Native, tables: ProgramTables, addresses: Mapping[str, int]) -> None:
        self.count = len(native.phases)
        self._arguments = np.array(native.arguments, np.int64)  # a copy is aligned
        used = [addresses[code.symbol] for code in tables.codes]
        self.table = native.phases.copy()
        self.table[:, 0] = np.array(used, np.int64)[native.phases[:, 0]]
        self.table[:, 1] = self._arguments.ctypes.data + 8 * native.phases[:, 1]
        self.codes = [tables.codes[i] for i in sorted(set(native.phases[:, 0].tolist()))]


class NativeJob:
    """One segment within one run state.

    Args:
        segment: The segment.
        threads: Width of the team.
        bases: The table of bases.
        fault: Where a fault is recorded.
        own: Whether arguments of phases may be replaced: others share the segment's table.
    """

    def __init__(
        self, segment: Segment, threads: int, bases: Array, fault: Array, *, own: bool = False
    ) -> None:
        self.count = segment.count
        self.counters = np.zeros(segment.count * threads * COUNTER_WORDS, np.int64)
        self.words = np.zeros(JOB_WORDS, np.int64)
        self._segment, self._threads = segment, threads
        self._table = segment.table.copy() if own else segment.table
        self._replaced: dict[int, list[int]] = {}
        self._clock: Array | None = None
        self.words[:4] = (
            self._table.ctypes.data,
            segment.count,
            bases.ctypes.data,
            self.counters.ctypes.data,
        )
        self.words[6] = fault.ctypes.data
        self.address = self.words.ctypes.data

    def clocked(self, clock: Array) -> None:
        """Have runs note when each phase starts and ends on each thread: [phases, threads, 2]."""
        self._clock = clock
        self.words[7] = clock.ctypes.data

    def between(self, first: int, end: int) -> None:
        """Have the next run do these phases alone; there must be any."""
        self.words[0] = self._table.ctypes.data + self._table.strides[0] * first
        self.words[1] = end - first
        self.words[3] = self.counters.ctypes.data + 8 * first * self._threads * COUNTER_WORDS
        if self._clock is not None:
            self.words[7] = self._clock.ctypes.data + self._clock.strides[0] * first

    def skip(self, phase: int) -> None:
        """Note that a phase has nothing to do, which takes no time."""
        if self._clock is not None:
            self._clock[phase] = driver().clock()

    def replace(self, number: int, phase: int, address: int) -> None:
        """Give a phase another argument block, under a number that `restore` knows it by."""
        self._table[phase, 1] = address
        self._replaced.setdefault(number, []).append(phase)

    def restore(self, number: int) -> None:
        """Give phases the blocks back that they had at first."""
        for phase in self._replaced.pop(number, ()):
            self._table[phase, 1] = self._segment.table[phase, 1]


class RunState:
    """Bases and counters of one run in flight, and outputs of unknown length.

    The last of the bases is 0, from where offsets are addresses.
    """

    def __init__(
        self, tables: ProgramTables, constants: Sequence[Array], segments: Sequence[Segment | Host]
    ) -> None:
        self.bases = np.zeros(tables.constant_base + len(constants) + 1, np.int64)
        self.bases[tables.constant_base : -1] = [c.ctypes.data for c in constants]
        self.fault = np.zeros(8, np.int64)
        self.host_clock: Array | None = None
        """[steps of the plan, (start, end)] by the profile's clock, where one is to be kept."""
        self.all_rows = False
        """Whether steps compute all rows, however few there are."""
        # Memory for the most that there could be; the caller gets a copy of what there is.
        self.full_outputs = {
            i: np.empty(*tables.outputs[i]) for i in {cut[0] for cut in tables.cuts}
        }
        self.jobs = [
            None
            if isinstance(s, Host)
            else NativeJob(s, tables.threads, self.bases, self.fault, own=bool(tables.counted))
            for s in segments
        ]
