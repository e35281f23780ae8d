"""Runs operators on tensors: finds what a call has in common with those before it, and runs that.

Equal calls (parameters; dtypes, strides and sizes of the operands; number of threads) share a plan:
their operands have been checked, and what their results look like is known. A count, such as the
number of boxes, is no part of that: from one count to the next, tables of a few integers are made
anew. The threads are those of PyTorch's own pool.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.ir import DType, Op
from saccade.kernels.base import View
from saccade.locks import Lock
from saccade.ops._library import library
from saccade.ops._tensors import in_huge_pages, view_of
from saccade.runtime.cpu.formula import Formula, Number
from saccade.runtime.cpu.openmp import OpenMpTeam, openmp_library
from saccade.runtime.cpu.operation import Operation, Tables
from saccade.runtime.cpu.team import FutexTeam, Team, shared_team
from saccade.runtime.cpu.workspace import HUGE_PAGE

__all__ = ["Described", "Operator", "execute", "release_memory"]

_PLANS = 1024  # kept of an operator
_COUNTS = 16  # kept of a plan
_TRACES = 16  # of a plan: where comparisons come out in more ways, counts are made one by one
_CPU = torch.device("cpu")  # whatever the default device is
_REPORT = View(DType.I32, (1,), (1,))


@dataclass(frozen=True, slots=True)
class Described:
    """A call whose operands fit.

    Attributes:
        op: What to do.
        results: Fresh ones.
        counted: Whether their first axes are the count, or it and a constant.
        report: Whether the operator has one more result, an int32 that says how many boxes name a
            picture that is not there.
        dense: Operands that have to be made contiguous before.
    """

    op: Op
    results: Sequence[Tensor]
    counted: bool = False
    report: bool = False
    dense: tuple[int, ...] = ()


class Operator:
    """An operator on tensors in memory.

    Args:
        name: For messages.
        describe: `describe(operands, *parameters)` checks a call. What it gives follows from the
            parameters and from dtypes, sizes and strides of the operands.
        counted: Number of the first operand whose first axis is the count, as is that of all after
            it. None of the results' strides and nothing of the `Op` depends on it.
    """

    def __init__(
        self, name: str, describe: Callable[..., Described], *, counted: int | None = None
    ) -> None:
        self._name, self._describe = name, describe
        self._counted = sys.maxsize if counted is None else counted
        self._plans: OrderedDict[Hashable, _Plan] = OrderedDict()
        self._lock = Lock()

    def __call__(self, operands: list[Tensor], parameters: tuple[Hashable, ...]) -> list[Tensor]:
        """The results.

        Args:
            operands: CPU tensors of any strides.
            parameters: Whatever else decides what the operator does.

        Raises:
            OperandError: If the operands do not fit, or boxes name pictures that are not there.
            OptionError: If no kernel takes the call.
            CompileError: If its kernel cannot be compiled.
        """
        key, count = self._key(operands, parameters)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(key, operands, parameters, count)
        tables = plan.tables.get(count)
        if tables is None:
            tables = plan.at(count)
        for i in plan.dense:
            operands[i] = operands[i].contiguous()
        results = plan.results(count)
        if tables.busy:
            missing = _run(tables, [t.data_ptr() for t in (*operands, *results)])
            if missing:
                raise OperandError(
                    f"{self._name}: rois batch index must be in [0, batch_size), is not in "
                    f"{missing} of them"
                )
        return results

    def _key(
        self, operands: Sequence[Tensor], parameters: tuple[Hashable, ...]
    ) -> tuple[Hashable, int]:
        """What plans are known by, and the count; -1 where there is none."""
        key: list[Hashable] = [torch.get_num_threads(), parameters]
        count = -1
        for number, tensor in enumerate(operands):
            shape = tensor.shape
            if number < self._counted:
                key += (tensor.dtype, tensor.stride(), shape)
                continue
            key += (tensor.dtype, tensor.stride(), shape[1:])
            if not shape or shape[0] != count != -1:
                # Counts that differ: `describe` says what that means.
                return (*key[:2], *[(t.dtype, t.stride(), t.shape) for t in operands]), -1
            count = shape[0]
        return tuple(key), count

    def _plan(
        self, key: Hashable, operands: list[Tensor], parameters: tuple[Hashable, ...], count: int
    ) -> _Plan:
        call = self._describe(operands, *parameters)
        operands = [t.contiguous() if i in call.dense else t for i, t in enumerate(operands)]
        counted = [i >= self._counted for i in range(len(operands))]
        plan = _Plan(call, operands, counted, count, torch.get_num_threads())
        plan.at(count)
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _PLANS:
                self._plans.popitem(last=False)
        return plan


class _Plan:
    """Calls that differ in their count only.

    Args:
        call: One of them.
        operands: Its operands.
        counted: Which of them have the count as their first axis.
        count: Its count; -1 for none.
        width: The widest team that will run it.

    Attributes:
        dense: As `Described` has it.
        tables: What was made for a count.
    """

    def __init__(
        self,
        call: Described,
        operands: Sequence[Tensor],
        counted: Sequence[bool],
        count: int,
        width: int,
    ) -> None:
        self.dense = call.dense
        self.tables: dict[int, Tables] = {}
        self._op, self._report, self._width = call.op, call.report, width
        of_results = [call.counted and count >= 0] * len(call.results)
        self._inputs = [
            _Shape(t, c and count >= 0, count) for t, c in zip(operands, counted, strict=True)
        ]
        self._outputs = [_Shape(t, c, count) for t, c in zip(call.results, of_results, strict=True)]
        self._operations: list[Operation] = []
        self._traces = 0
        self._lock = Lock()

    def results(self, count: int) -> list[Tensor]:
        """Fresh ones."""
        return [shape.empty(count) for shape in self._outputs]

    def at(self, count: int) -> Tables:
        """The tables for a count that has none, and keep them."""
        for operation in self._operations:
            tables = operation.tables(count)
            if tables is not None:
                break
        else:
            tables = self._trace(count) or self._make(count).tables()
        assert tables is not None
        with self._lock:
            if len(self.tables) >= _COUNTS:
                del self.tables[next(iter(self.tables))]
            self.tables[count] = tables
        return tables

    def _trace(self, count: int) -> Tables | None:
        """The tables for a count, and the operation for those like it, if there is one."""
        if count < 0 or self._traces == _TRACES:
            return None
        self._traces += 1
        formula = Formula(count)
        try:
            operation = self._make(formula.count, formula)
        except TypeError:  # `UntraceableError`, or of what does not take a number at all
            return None
        self._operations.append(operation)
        return operation.tables(count)

    def _make(self, count: int | Number, formula: Formula | None = None) -> Operation:
        ins, outs = (
            tuple(s.view(count) for s in shapes) for shapes in (self._inputs, self._outputs)
        )
        if self._report:
            outs += (_REPORT,)
        return library().make(
            self._op, ins, outs, self._width, report=self._report, formula=formula
        )


class _Shape:
    """How an operand or a result lies, for any count.

    Args:
        tensor: One of them.
        counted: Whether its first axis is the count, or it and a constant.
        count: The count.
    """

    def __init__(self, tensor: Tensor, counted: bool, count: int) -> None:
        self._view, self._dtype, self._counted = view_of(tensor), tensor.dtype, counted
        self._size, self._strides = self._view.shape, self._view.strides
        self._rest = self._size[1:]
        self._more = self._size[0] - count if counted else 0
        self._bytes_of_one = prod(self._rest) * tensor.dtype.itemsize

    def view(self, count: int | Number) -> View:
        """The view for a count, which may be that of a formula."""
        if not self._counted:
            return self._view
        extent: Any = count + self._more  # a number does as well
        return replace(self._view, shape=(extent, *self._rest))

    def empty(self, count: int) -> Tensor:
        """A fresh tensor."""
        size = (count + self._more, *self._rest) if self._counted else self._size
        fresh = torch.empty_strided(size, self._strides, dtype=self._dtype, device=_CPU)
        return fresh if size[0] * self._bytes_of_one < HUGE_PAGE else in_huge_pages(fresh)


def execute(
    describe: Callable[..., Op],
    parameters: tuple[Hashable, ...],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Do an operator: `outputs` are written, `inputs` only read.

    Args:
        describe: `describe(views of the inputs, *parameters)` gives the operator. A function of a
            module: it stands for the operator's name in the table of calls that were seen.
        parameters: Whatever else decides what the operator does.
        inputs: CPU tensors of any strides.
        outputs: The same, none of them overlapping anything else. Nothing happens where no result
            has an element.

    Raises:
        OptionError: If no kernel takes the call.
        CompileError: If its kernel cannot be compiled.
    """
    tensors = (*inputs, *outputs)
    width = torch.get_num_threads()
    key = (describe, parameters, width, *[(t.dtype, t.shape, t.stride()) for t in tensors])
    tables = _executed.get(key)
    if tables is None:
        ins, outs = (tuple(map(view_of, group)) for group in (inputs, outputs))
        operation = library().make(describe(ins, *parameters), ins, outs, width)
        tables = operation.tables()
        assert tables is not None
        with _lock:
            _executed[key] = tables
            while len(_executed) > _PLANS:
                _executed.popitem(last=False)
    if tables.busy:
        _run(tables, [t.data_ptr() for t in tensors])


_executed: OrderedDict[Hashable, Tables] = OrderedDict()
_lock = Lock()


def release_memory() -> None:
    """Give back what operators keep for their next call (up to 512 MiB)."""
    library().workspaces.clear()


def _run(tables: Tables, pointers: Sequence[int]) -> int:
    if tables.busy == 1:
        return tables.operation.run(tables, pointers, None)
    team = _teams.get(tables.busy) or _find_team(tables.busy)
    if isinstance(team, FutexTeam):
        with team.lock:
            return tables.operation.run(tables, pointers, team)
    return tables.operation.run(tables, pointers, team)


def _find_team(width: int) -> Team:
    """PyTorch's own threads; ours where PyTorch has no OpenMP, or lost it by a fork."""
    known = openmp_library()
    team: Team = shared_team(width) if known is None else OpenMpTeam(known, width)
    _teams[width] = team
    return team


_teams: dict[int, Team] = {}

os.register_at_fork(after_in_child=_teams.clear)
