"""One call of a kernel by itself, on memory that the caller owns: what operators stand on.

A program is many steps over one arena; an operation is the phases of a single call, whose operands
and results lie wherever the caller has them. Only their addresses change from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.codegen.calling import COUNTER_WORDS
from saccade.errors import OutOfBoundsError
from saccade.kernels.base import Call, In, Launch, Operand, Out, Scratch, Temp, View
from saccade.runtime.cpu.driver import JOB_WORDS
from saccade.runtime.cpu.team import Team
from saccade.runtime.cpu.workspace import Workspaces

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["LinkedCode", "Operation"]

LinkedCode = tuple[int, tuple[str, ...]]
"""Address of a phase's function, and the names of its checked accesses."""


class _Flight:
    """The tables of one run in flight."""

    def __init__(self, operation: Operation) -> None:
        self.count = operation.count
        self.bases = np.zeros(1 + operation.operands, np.int64)
        self.fault = np.zeros(8, np.int64)
        self.counters = np.zeros(self.count * operation.threads * COUNTER_WORDS, np.int64)
        self.words = np.zeros(JOB_WORDS, np.int64)
        self.address = self.words.ctypes.data
        self.words[:4] = (
            operation.table.ctypes.data,
            self.count,
            self.bases.ctypes.data,
            self.counters.ctypes.data,
        )
        self.words[6] = self.fault.ctypes.data


class Operation:
    """The phases of one call; any number of runs at once.

    Args:
        call: Operands and results; none of them constant.
        launches: Its phases.
        codes: Their functions.
        threads: The widest team that will run it.
        workspaces: Where temporaries and scratch come from.

    Attributes:
        count: Number of phases.
        operands: Number of operands and results.
        table: What the driver walks.
        busy: How many threads find anything to do.
    """

    def __init__(
        self,
        call: Call,
        launches: Sequence[Launch],
        codes: Sequence[LinkedCode],
        threads: int,
        workspaces: Workspaces,
    ) -> None:
        self.count, self.threads = len(launches), threads
        self.operands = len(call.inputs) + len(call.outputs)
        self.busy = min(threads, max((launch.chunks for launch in launches), default=0))
        self._call, self._workspaces = call, workspaces
        self._accesses = [accesses for _, accesses in codes]
        self._temps, self._shared = _place_temps(launches)
        self._nbytes = self._shared
        words = [[*self._refs(launch.operands), *launch.integers] for launch in launches]
        self._arguments = np.array([w for block in words for w in block], np.int64)
        starts = np.cumsum([0, *map(len, words)])[:-1]
        self.table = np.empty((self.count, 2), np.int64)
        self.table[:, 0] = [address for address, _ in codes]
        self.table[:, 1] = self._arguments.ctypes.data + 8 * starts
        self._idle: list[_Flight] = []

    def _refs(self, operands: Sequence[Operand]) -> list[int]:
        """For each pointer parameter its base, its offset and its length in bytes."""
        found: list[int] = []
        scratch = self._shared  # phases follow each other and share it
        for operand in operands:
            if isinstance(operand, In):
                found += (1 + operand.index, 0, _nbytes(self._call.inputs[operand.index]))
            elif isinstance(operand, Out):
                base = 1 + len(self._call.inputs) + operand.index
                found += (base, 0, _nbytes(self._call.outputs[operand.index]))
            elif isinstance(operand, Temp):
                found += (0, self._temps[operand.index], operand.nbytes)
            elif isinstance(operand, Scratch):
                # Whole lines, so that the next thread's block is aligned too.
                found += (0, scratch, _lines(operand.nbytes))
                scratch += self.threads * _lines(operand.nbytes)
            else:
                raise TypeError(f"an operation has no packed constants: {operand}")
        self._nbytes = max(self._nbytes, scratch)
        return found

    def run(self, pointers: Sequence[int], team: Team) -> None:
        """Do it with operands, then results, at these addresses.

        Raises:
            OutOfBoundsError: If checked code leaves a buffer.
        """
        try:
            flight = self._idle.pop()
        except IndexError:
            flight = _Flight(self)
        block = self._workspaces.take(self._nbytes) if self._nbytes else None
        try:
            flight.bases[1:] = pointers
            flight.bases[0] = 0 if block is None else block.ctypes.data
            flight.counters.fill(0)
            team.run(flight)
            if flight.fault[0]:
                self._raise(flight.fault)
        finally:
            if block is not None:
                self._workspaces.give_back(block)
            self._idle.append(flight)

    def _raise(self, fault: Array) -> None:
        access, offset, length = (int(v) for v in fault[:3])
        fault[:] = 0
        names = {name for known in self._accesses for name in known[access - 1 : access]}
        where = ", ".join(sorted(names)) or f"number {access}"
        raise OutOfBoundsError(
            f"{self._call.op.family}: access {where} reached element {offset} of a buffer of "
            f"{length}"
        )


def _place_temps(launches: Sequence[Launch]) -> tuple[dict[int, int], int]:
    """Where each temporary lies, and the bytes of all of them."""
    offsets: dict[int, int] = {}
    total = 0
    for operand in (o for launch in launches for o in launch.operands):
        if isinstance(operand, Temp) and operand.index not in offsets:
            offsets[operand.index] = total
            total += _lines(operand.nbytes)
    return offsets, total


def _nbytes(view: View) -> int:
    return view.extent * view.dtype.itemsize


def _lines(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
