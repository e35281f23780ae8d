"""One call of a kernel by itself, on memory that the caller owns: what operators stand on.

A program is many steps over one arena; an operation is the phases of a single call, whose operands
and results lie wherever the caller has them. From run to run only their addresses change, and where
a count is another one in every call (see `trace`), the numbers that follow from it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import reduce
from struct import Struct
from typing import Any, NamedTuple, NoReturn

import numpy as np

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.runtime.driver import JOB_WORDS, PHASE_WORDS, driver
from saccade.backends.cpu.runtime.openmp import run_on_pool
from saccade.backends.cpu.runtime.workspace import Workspaces
from saccade.backends.cpu.target import ALIGNMENT
from saccade.backends.trace import (
    Replay,
    SymbolicNumber,
    SymbolicTrace,
    larger,
    smaller,
)
from saccade.errors import OutOfBoundsError
from saccade.kernels.base import Launch, Packing, Temp, View
from saccade.kernels.bind import Binder, Ref
from saccade.kernels.cpu.base import CpuCall

__all__ = ["LinkedCode", "Operation"]


class LinkedCode(NamedTuple):
    """Address of a phase's function, its parameters, and the names of its checked accesses."""

    address: int
    parameters: Parameters
    accesses: tuple[str, ...]


# Words of an execution context: the driver's job, the record of a fault, the status, the table of
# bases, the table of phases, their arguments.
_TABLE, _COUNT, _BASES, _COUNTERS, _WIDTH, _FAULT = 0, 1, 2, 3, 5, 6
_RECORD = JOB_WORDS
_STATUS = _RECORD + 8
_ARENA = _STATUS + 1


class _ExecutionContext:
    """What a run reads and writes: its job, its arguments, and the counters of its phases.

    Attributes:
        filled: The count that its arguments are for; they stay as they are for the next run.
        busy: How many threads find anything to do then.
        nbytes: Of temporaries and scratch then.
    """

    def __init__(self, operation: Operation) -> None:
        self.filled: int | None = None
        self.busy = self.nbytes = 0
        self.count = operation.phases
        self.words = words = operation.words[:]
        self.address, _ = words.buffer_info()
        width = operation.threads * COUNTER_WORDS
        self._memory = np.zeros(self.count * width + COUNTER_WORDS, np.int64)
        start = -self._memory.ctypes.data % ALIGNMENT // 8
        self.counters = self._memory[start : start + self.count * width]
        words[_TABLE] = self.address + 8 * operation.table
        words[_COUNT] = self.count
        words[_BASES] = self.address + 8 * _ARENA
        words[_COUNTERS] = self.counters.ctypes.data
        words[_FAULT] = self.address + 8 * _RECORD
        for phase, start in enumerate(operation.starts):
            words[operation.table + PHASE_WORDS * phase + 1] = self.address + 8 * start
        if operation.report:
            words[operation.table - 1] = self.address + 8 * _STATUS

    def fill(self, fill: Replay, count: int) -> bool:
        """Put the arguments for a count in place; False where they do not follow from it."""
        sizes = fill(self.words, count)
        if sizes is None:
            return False
        self.busy, self.nbytes = sizes
        self.filled = count
        return True


class Operation:
    """The phases of a call; any number of runs at once.

    Args:
        call: Operands and results; none of them constant.
        launches: Its phases. What depends on the count of a trace is a `SymbolicNumber`.
        codes: Their functions.
        threads: The widest team that will run it.
        workspaces: Where temporaries and scratch come from.
        report: Whether the last result is one int32 that runs return, and nobody gives memory for.
        trace: Where the numbers come from.

    Attributes:
        phases: How many there are.
        words: Of an execution context, as far as they are the same for all.
        table: Which of them is the first of the table of phases.
        starts: Where each phase's arguments start.
    """

    def __init__(
        self,
        call: CpuCall,
        launches: Sequence[Launch],
        codes: Sequence[LinkedCode],
        threads: int,
        workspaces: Workspaces,
        *,
        report: bool = False,
        trace: SymbolicTrace | None = None,
    ) -> None:
        self.phases, self.threads, self.report = len(launches), threads, report
        self._call, self._workspaces = call, workspaces
        self._walk = driver().walk
        self._accesses = [code.accesses for code in codes]
        self._checked = any(self._accesses)
        most = reduce(larger, (launch.chunks for launch in launches), 0)
        self._busy = smaller(threads, most)
        binder = Binder(threads, alignment=ALIGNMENT, align_each=True, larger=larger)
        memory = _CallMemory(call, binder, launches, checked=self._checked)
        self._nbytes = memory.nbytes
        operands = len(call.inputs) + len(call.outputs)
        self._put = Struct(f"{1 + operands - report}q").pack_into
        self.table = _ARENA + 1 + operands
        words: list[Any] = [0] * self.table
        words += [word for code in codes for word in (code.address, 0, True)]
        self.starts = []
        for launch, code in zip(launches, codes, strict=True):
            self.starts.append(len(words))
            words += code.parameters.words(binder.phase(launch, memory))
        # Numbers are put in place for each count.
        places = {at: word for at, word in enumerate(words) if isinstance(word, SymbolicNumber)}
        sizes = (self._busy, self._nbytes)
        self._fill: Replay = (lambda *_: sizes) if trace is None else trace.replay(places, sizes)
        self.words = array("q", [0 if isinstance(word, SymbolicNumber) else word for word in words])
        self._idle: list[_ExecutionContext] = []

    def fits(self, count: int) -> bool:
        """Whether it can run for a count: always without a trace."""
        context = self._context()
        try:
            return context.fill(self._fill, count)
        finally:
            self._idle.append(context)

    def _context(self) -> _ExecutionContext:
        try:
            return self._idle.pop()
        except IndexError:
            return _ExecutionContext(self)

    def run(self, count: int, pointers: Sequence[int]) -> int:
        """Do it with operands, then results, at these addresses.

        Args:
            count: One that fits.
            pointers: Addresses, without that of the report.

        Returns:
            The report, else 0.

        Raises:
            OutOfBoundsError: If checked code leaves a buffer.
        """
        context = self._context()
        words, block = context.words, None
        try:
            if context.filled != count:
                context.fill(self._fill, count)
            if context.nbytes:
                block = self._workspaces.take(context.nbytes)
            self._put(words, 8 * _ARENA, 0 if block is None else block.address, *pointers)
            if context.busy == 1:
                words[_WIDTH] = 1
                self._walk(context.address, 0)
            elif context.busy:
                context.counters.fill(0)
                run_on_pool(context, context.busy)
            else:
                words[_STATUS] = 0
            if words[_RECORD]:
                self._raise(words)
            return words[_STATUS]
        finally:
            if block is not None:
                self._workspaces.give_back(block)
            self._idle.append(context)

    def _raise(self, words: array[int]) -> NoReturn:
        access, offset, length = words[_RECORD : _RECORD + 3]
        words[_RECORD] = 0
        names = {name for known in self._accesses for name in known[access - 1 : access]}
        where = ", ".join(sorted(names)) or f"number {access}"
        raise OutOfBoundsError(
            f"{self._call.op.family}: access {where} reached element {offset} of a buffer of "
            f"{length}"
        )


class _CallMemory:
    """Memory of a call: the caller's arrays, then temporaries and scratch of a workspace.

    Lengths that only checked code looks at are 0 without it: fewer numbers to put in place.
    """

    def __init__(
        self, call: CpuCall, binder: Binder, launches: Sequence[Launch], *, checked: bool
    ) -> None:
        self._call, self._checked = call, checked
        self._temps: dict[int, int] = {}
        needed, total = binder.workspace(launches), 0
        for index, nbytes in needed.temps.items():
            self._temps[index] = total
            total += binder.aligned(nbytes)
        self._scratch = total  # phases follow each other and share it
        self.nbytes = total + needed.scratch

    def input(self, index: int) -> Ref:
        return Ref(1 + index, 0, self._length(self._call.inputs[index]))

    def output(self, index: int) -> Ref:
        call = self._call
        return Ref(1 + len(call.inputs) + index, 0, self._length(call.outputs[index]))

    def packed(self, packing: Packing) -> Ref:
        raise TypeError(f"an operation has no packed constants: {packing}")

    def temp(self, operand: Temp) -> Ref:
        return Ref(0, self._temps[operand.index], operand.nbytes if self._checked else 0)

    def scratch(self, before: int, nbytes: int) -> Ref:
        return Ref(0, self._scratch + before, nbytes)

    def _length(self, view: View) -> int:
        return view.extent * view.dtype.itemsize if self._checked else 0
