"""Plans: what calls of an operator have in common, found once and kept.

A plan is a call that was checked, whose kernel was chosen and compiled. A count, such as the number
of boxes, is no part of it: a call that differs in its count only takes a few integers of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor

from saccade.ir import DType, Op
from saccade.kernels.base import View
from saccade.ops._library import library
from saccade.ops._tensors import in_huge_pages, view_of
from saccade.runtime.cpu.formula import Formula, Number
from saccade.runtime.cpu.operation import Operation
from saccade.runtime.cpu.workspace import HUGE_PAGE

__all__ = ["Described", "Plan", "keep"]

K = TypeVar("K")
V = TypeVar("V")

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


class Plan:
    """Calls that differ in their count only.

    Args:
        call: One of them.
        operands: Its operands.
        results: Where its results go.
        counted: Number of the first operand whose first axis is the count, as is that of all after
            it.
        count: Its count; -1 for none.
        width: The widest team that will run it.

    Attributes:
        dense: Operands that have to be made contiguous before.
        hollow: Whether no result has an element, whatever the count: there is nothing to do.
    """

    def __init__(
        self,
        call: Described,
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
        counted: int,
        count: int,
        width: int,
    ) -> None:
        self.dense = call.dense
        self._op, self._report, self._width = call.op, call.report, width
        self._inputs = [
            _Shape(t, i >= counted and count >= 0, count) for i, t in enumerate(operands)
        ]
        self._outputs = [_Shape(t, call.counted and count >= 0, count) for t in results]
        self.hollow = all(shape.hollow for shape in self._outputs)
        self._large = min((shape.large for shape in self._outputs), default=sys.maxsize)
        self._operations: list[Operation] = []
        self._known: dict[int, Operation] = {}
        self._traces = 0

    def results(self, count: int) -> list[Tensor]:
        """Fresh ones."""
        found = [shape.empty(count) for shape in self._outputs]
        if count >= self._large:
            for fresh in found:
                in_huge_pages(fresh)
        return found

    def operation(self, count: int) -> Operation:
        """What does it for a count."""
        found = self._known.get(count)
        if found is None:
            fitting = (one for one in self._operations if one.fits(count))
            found = next(fitting, None) or self._trace(count) or self._make(count)
            keep(self._known, _COUNTS, count, found)
        return found

    def _trace(self, count: int) -> Operation | None:
        """The operation for a count and those like it, if there is one."""
        if count < 0 or self._traces == _TRACES:
            return None
        self._traces += 1
        formula = Formula(count)
        try:
            operation = self._make(formula.count, formula)
        except TypeError:  # `UntraceableError`, or of what does not take a number at all
            return None
        self._operations.append(operation)
        return operation

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

    Attributes:
        hollow: Whether it has no element, whatever the count.
        large: The least count for which it may be worth huge pages.
    """

    def __init__(self, tensor: Tensor, counted: bool, count: int) -> None:
        self._view, self._counted = view_of(tensor), counted
        self._size, self._strides = self._view.shape, self._view.strides
        self._rest = self._size[1:]
        self._more = self._size[0] - count if counted else 0
        nbytes = prod(self._rest if counted else self._size) * tensor.dtype.itemsize
        self.hollow = nbytes == 0
        if counted:
            self.large = HUGE_PAGE // max(nbytes, 1)
        else:
            self.large = -1 if nbytes >= HUGE_PAGE else sys.maxsize
        # Of all functions that make tensors, this one has the least to look at.
        self._make = torch.empty(0, dtype=tensor.dtype, device=_CPU).new_empty_strided

    def empty(self, count: int) -> Tensor:
        """A fresh tensor."""
        size = (count + self._more, *self._rest) if self._counted else self._size
        return self._make(size, self._strides)

    def view(self, count: int | Number) -> View:
        """The view for a count, which may be that of a formula."""
        if not self._counted:
            return self._view
        extent: Any = count + self._more  # a number does as well
        return replace(self._view, shape=(extent, *self._rest))


def keep(table: dict[K, V], most: int, key: K, value: V) -> None:
    """Add to a table, which is emptied when it is full.

    Threads that do it at the same time may do their work twice, but never harm.
    """
    if len(table) >= most:
        table.clear()
    table[key] = value
