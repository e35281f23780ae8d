"""What one run of a program needs beside its code: segments as the driver reads them, counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.runtime.driver import JOB_WORDS
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
        self.table = np.empty((self.count, 2), np.int64)
        self.table[:, 0] = np.array(used, np.int64)[native.phases[:, 0]]
        self.table[:, 1] = self._arguments.ctypes.data + 8 * native.phases[:, 1]
        self.codes = [tables.codes[i] for i in sorted(set(native.phases[:, 0].tolist()))]


class NativeJob:
    """One segment within one run state."""

    def __init__(self, segment: Segment, threads: int, bases: Array, fault: Array) -> None:
        self.count = segment.count
        self.counters = np.zeros(segment.count * threads * COUNTER_WORDS, np.int64)
        self.words = np.zeros(JOB_WORDS, np.int64)
        self.words[:4] = (
            segment.table.ctypes.data,
            segment.count,
            bases.ctypes.data,
            self.counters.ctypes.data,
        )
        self.words[6] = fault.ctypes.data
        self.address = self.words.ctypes.data


class RunState:
    """Bases and counters of one run in flight, and outputs of unknown length."""

    def __init__(
        self, tables: ProgramTables, constants: Sequence[Array], segments: Sequence[Segment | Host]
    ) -> None:
        self.bases = np.zeros(tables.constant_base + len(constants), np.int64)
        self.bases[tables.constant_base :] = [c.ctypes.data for c in constants]
        self.fault = np.zeros(8, np.int64)
        self.host_clock: Array | None = None
        """[steps of the plan, (start, end)] by the profile's clock, where one is to be kept."""
        # Memory for the most that there could be; the caller gets a copy of what there is.
        self.full_outputs = {
            i: np.empty(*tables.outputs[i]) for i in {cut[0] for cut in tables.cuts}
        }
        self.jobs = [
            None if isinstance(s, Host) else NativeJob(s, tables.threads, self.bases, self.fault)
            for s in segments
        ]
