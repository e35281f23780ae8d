"""Plans: what calls of an operator have in common, found once and kept.

A plan is a call that was checked, whose kernel was chosen and compiled. A count, such as the number
of boxes, is no part of it: a call that differs in its count only takes a few integers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.backends.cpu.runtime.workspace import HUGE_PAGE
from saccade.backends.trace import SymbolicNumber, SymbolicTrace
from saccade.errors import OperandError
from saccade.ir import DType, Op
from saccade.kernels.base import View
from saccade.ops._places import ReadyOperation, library_at
from saccade.ops._tensors import in_huge_pages, view_of

__all__ = ["Described", "OperatorPlan", "Ready"]

_TRACES = 16  # of a plan: where comparisons come out in more ways, counts are made one by one
_REPORT = View(DType.I32, (1,), (1,))


@dataclass(frozen=True, slots=True)
class Described:
    """A call whose operands fit.

    Attributes:
        op: What to do.
        results: Fresh ones.
        counted: Whether their first axes are the count, or it and a constant.
        report: Whether the operator has one more result, an int32 that says how many boxes name an
            image that is not there.
        dense: Operands that have to be made contiguous before.
    """

    op: Op
    results: Sequence[Tensor]
    counted: bool = False
    report: bool = False
    dense: tuple[int, ...] = ()


class Ready(NamedTuple):
    """A call that only waits for its operands.

    Attributes:
        operation: What does it; None where no result has an element.
        number: Its count; -1 for none.
        dense: Operands that have to be made contiguous before.
        fresh: For each result what makes it, its size and its strides.
        large: Whether any may be worth huge pages.
    """

    operation: ReadyOperation | None
    number: int
    dense: tuple[int, ...]
    fresh: Sequence[tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]]
    large: bool

    def results(self) -> list[Tensor]:
        """Fresh ones.

        Raises:
            OperandError: If there is no memory for them.
        """
        try:
            found = [make(size, strides) for make, size, strides in self.fresh]
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # a GPU's allocator has its own, which says all
                raise
            shapes = ", ".join(str(list(size)) for _, size, _ in self.fresh)
            raise OperandError(f"there is no memory for results of {shapes}: {error}") from error
        if self.large:
            for result in found:
                in_huge_pages(result)
        return found


class OperatorPlan:
    """Calls that differ in their count only.

    Args:
        call: One of them.
        operands: Its operands.
        results: Where its results go.
        counted: Number of the first operand whose first axis is the count, as is that of all after
            it.
        count: Its count; -1 for none.
        place: Where it runs: the widest team that will, or a GPU's library.
    """

    def __init__(
        self,
        call: Described,
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
        counted: int,
        count: int,
        place: object,
    ) -> None:
        self._op, self._report, self._dense, self._place = call.op, call.report, call.dense, place
        self._inputs = [
            _OperandShape(t, i >= counted and count >= 0, count) for i, t in enumerate(operands)
        ]
        self._outputs = [_OperandShape(t, call.counted and count >= 0, count) for t in results]
        self._operations: list[ReadyOperation] = []
        self._traces = 0

    def at(self, count: int) -> Ready:
        """The call for a count."""
        fresh = [(shape.make, shape.size(count), shape.strides) for shape in self._outputs]
        # By the widest element, 8 bytes: `in_huge_pages` looks at the true size.
        host = isinstance(self._place, int)
        large = host and any(8 * prod(size) >= HUGE_PAGE for _, size, _ in fresh)
        return Ready(self._operation(count), count, self._dense, fresh, large)

    def _operation(self, count: int) -> ReadyOperation | None:
        if all(shape.hollow for shape in self._outputs):
            return None
        for operation in self._operations:
            if operation.fits(count):
                return operation
        # What serves one count is not kept here: `Operator` keeps it under that call's own key.
        return self._trace(count) or self._make(count)

    def _trace(self, count: int) -> ReadyOperation | None:
        """The operation for a count and those like it, if there is one."""
        if count < 0 or self._traces == _TRACES:
            return None
        # Failures count as well, or a kernel that cannot be traced would be tried with every count.
        self._traces += 1
        trace = SymbolicTrace(count)
        try:
            operation = self._make(trace.count, trace)
        except TypeError:  # `UntraceableError`, or of what does not take a number at all
            return None
        self._operations.append(operation)
        return operation

    def _make(
        self, count: int | SymbolicNumber, trace: SymbolicTrace | None = None
    ) -> ReadyOperation:
        ins, outs = (
            tuple(s.view(count) for s in shapes) for shapes in (self._inputs, self._outputs)
        )
        if self._report:
            outs += (_REPORT,)
        threads = self._place if isinstance(self._place, int) else 1
        return library_at(self._place).make(
            self._op, ins, outs, threads, report=self._report, trace=trace
        )


class _OperandShape:
    """How an operand or a result lies, for any count.

    Args:
        tensor: One of them.
        counted: Whether its first axis is the count, or it and a constant.
        count: The count.

    Attributes:
        hollow: Whether it has no element, whatever the count.
        make: `make(size, strides)` gives a fresh tensor of its type.
        strides: Whatever the count.
    """

    def __init__(self, tensor: Tensor, counted: bool, count: int) -> None:
        self._view, self._counted = view_of(tensor), counted
        self._size, self.strides = self._view.shape, self._view.strides
        self._rest = self._size[1:]
        self._more = self._size[0] - count if counted else 0
        self.hollow = 0 in (self._rest if counted else self._size)
        # Of all functions that make tensors, this one has the least to look at.
        # The device is said: there may be another default.
        self.make = torch.empty(0, dtype=tensor.dtype, device=tensor.device).new_empty_strided

    def size(self, count: int) -> tuple[int, ...]:
        """For a count."""
        return (count + self._more, *self._rest) if self._counted else self._size

    def view(self, count: int | SymbolicNumber) -> View:
        """The view for a count, which may be that of a trace."""
        if not self._counted:
            return self._view
        extent: Any = count + self._more  # a number does as well
        return self._view._replace(shape=(extent, *self._rest))
