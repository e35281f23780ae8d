"""One call of a kernel by itself, on memory that the caller owns: what operators stand on.

A program is many steps over one arena; an operation is the phases of a single call, whose operands
and results lie wherever the caller has them. From run to run only their addresses change, and where
a count is another one in every call (see `formula`), the numbers that follow from it: these are
`Tables`, made in microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from saccade.codegen.calling import COUNTER_WORDS
from saccade.errors import OutOfBoundsError
from saccade.kernels.base import Call, In, Launch, Operand, Out, Scratch, Temp, View
from saccade.runtime.cpu.driver import JOB_WORDS, driver
from saccade.runtime.cpu.formula import Formula, Number, larger, smaller
from saccade.runtime.cpu.team import Team
from saccade.runtime.cpu.workspace import Workspaces

__all__ = ["LinkedCode", "Operation", "Tables"]

LinkedCode = tuple[int, tuple[str, ...]]
"""Address of a phase's function, and the names of its checked accesses."""

# Words of a flight: the driver's job, the record of a fault, the status, the table of bases.
_TABLE, _COUNT, _BASES, _COUNTERS, _WIDTH, _FAULT = 0, 1, 2, 3, 5, 6
_RECORD = JOB_WORDS
_STATUS = _RECORD + 8
_ARENA = _STATUS + 1
_LINE = 64


class _Flight:
    """What a run in flight writes: its job, and the counters of its phases."""

    def __init__(self, operation: Operation) -> None:
        self.count = operation.phases
        self.words = array("q", bytes(8 * (_ARENA + 1 + operation.operands)))
        self.address, _ = self.words.buffer_info()
        width = operation.threads * COUNTER_WORDS
        self._memory = np.zeros(self.count * width + COUNTER_WORDS, np.int64)
        start = -self._memory.ctypes.data % _LINE // 8
        self.counters = self._memory[start : start + self.count * width]
        self.words[_COUNT] = self.count
        self.words[_BASES] = self.address + 8 * _ARENA
        self.words[_COUNTERS] = self.counters.ctypes.data
        self.words[_FAULT] = self.address + 8 * _RECORD
        if operation.report:
            self.words[_ARENA + operation.operands] = self.address + 8 * _STATUS


class Tables:
    """What the driver walks, for one count.

    Attributes:
        operation: Whose they are.
        address: Of the table: for each phase its code and its arguments, which follow.
        busy: How many threads find anything to do.
        nbytes: Of temporaries and scratch.
    """

    __slots__ = ("_words", "address", "busy", "nbytes", "operation")

    def __init__(self, operation: Operation, words: array[int], busy: int, nbytes: int) -> None:
        self.operation, self.busy, self.nbytes, self._words = operation, busy, nbytes, words
        self.address, _ = words.buffer_info()
        for phase, start in enumerate(operation.starts):
            words[2 * phase + 1] = self.address + 8 * start


class Operation:
    """The phases of a call; any number of runs at once.

    Args:
        call: Operands and results; none of them constant.
        launches: Its phases. What depends on the count of a formula is a `Number`.
        codes: Their functions.
        threads: The widest team that will run it.
        workspaces: Where temporaries and scratch come from.
        report: Whether the last result is one int32 that runs return, and nobody gives memory for.
        formula: Where the numbers come from.

    Attributes:
        phases: How many there are.
        operands: Number of operands and results, the report included.
        starts: Where each phase's arguments start in `Tables`, in words.
    """

    def __init__(
        self,
        call: Call,
        launches: Sequence[Launch],
        codes: Sequence[LinkedCode],
        threads: int,
        workspaces: Workspaces,
        *,
        report: bool = False,
        formula: Formula | None = None,
    ) -> None:
        self.phases, self.threads, self.report = len(launches), threads, report
        self.operands = len(call.inputs) + len(call.outputs)
        self._call, self._workspaces, self._formula = call, workspaces, formula
        self._accesses = [accesses for _, accesses in codes]
        most = reduce(larger, (launch.chunks for launch in launches), 0)
        self._busy = smaller(threads, most)
        self._temps, self._shared = _place_temps(launches)
        self._nbytes = self._shared
        blocks = [[*self._refs(launch.operands), *launch.integers] for launch in launches]
        words: list[Any] = [word for address, _ in codes for word in (address, 0)]
        self.starts = []
        for block in blocks:
            self.starts.append(len(words))
            words += block
        # Numbers are put in place for each count; the formula's are all there is to compute then.
        self._open = [(i, word.place) for i, word in enumerate(words) if isinstance(word, Number)]
        if formula is not None:
            sizes: tuple[Any, ...] = (self._busy, self._nbytes)
            own = [size.place for size in sizes if isinstance(size, Number)]
            formula.keep([*own, *(place for _, place in self._open)])
        self._words = array("q", [0 if isinstance(word, Number) else word for word in words])
        self._idle: list[_Flight] = []

    def tables(self, count: int = 0) -> Tables | None:
        """The tables for a count; None where the formula does not hold for it."""
        words = self._words[:]
        if self._formula is None:
            return Tables(self, words, self._busy, self._nbytes)
        values = self._formula.at(count)
        if values is None:
            return None
        for at, place in self._open:
            words[at] = values[place]
        busy, nbytes = (
            values[n.place] if isinstance(n, Number) else n for n in (self._busy, self._nbytes)
        )
        return Tables(self, words, busy, nbytes)

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
        self._nbytes = larger(self._nbytes, scratch)
        return found

    def run(self, tables: Tables, pointers: Sequence[int], team: Team | None) -> int:
        """Do it with operands, then results, at these addresses.

        Args:
            tables: Those of the count.
            pointers: Addresses, without that of the report.
            team: Who does it; the calling thread alone where None.

        Returns:
            The report, else 0.

        Raises:
            OutOfBoundsError: If checked code leaves a buffer.
        """
        try:
            flight = self._idle.pop()
        except IndexError:
            flight = _Flight(self)
        block = self._workspaces.take(tables.nbytes) if tables.nbytes else None
        words = flight.words
        try:
            words[_TABLE] = tables.address
            at = _ARENA
            if block is not None:
                words[at] = block.address
            for pointer in pointers:
                at += 1
                words[at] = pointer
            if team is None:
                words[_WIDTH] = 1
                driver().walk(flight.address, 0)
            else:
                flight.counters.fill(0)
                team.run(flight)
            if words[_RECORD]:
                self._raise(words)
            return words[_STATUS]
        finally:
            if block is not None:
                self._workspaces.give_back(block)
            self._idle.append(flight)

    def _raise(self, words: array[int]) -> NoReturn:
        access, offset, length = words[_RECORD : _RECORD + 3]
        words[_RECORD] = 0
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
