"""Runs operators on tensors: finds what a call has in common with those before it, and runs that.

Calls with equal parameters, dtypes, strides and shapes of tensors, and number of threads or
GPU have been checked already: they share a plan (`_plan`). So do those that differ in a count, such
as the number of boxes. The threads are those of PyTorch's own pool, the stream is its current one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

from saccade.errors import ModelError, OperandError
from saccade.ir import DType
from saccade.ir.op import TensorType
from saccade.ops._library import library
from saccade.ops._places import place_of
from saccade.ops._plan import Described, OperatorPlan, Ready
from saccade.ops._tensors import DTYPES, PLAIN, bad_boxes, plain

__all__ = ["Operator", "release_memory"]

K = TypeVar("K")
V = TypeVar("V")

_KEPT = 1024  # of an operator: plans, and calls

# Functions in C, which `map` calls without a frame of Python for each operand.
_address, _strides, _kind = Tensor.data_ptr, Tensor.stride, attrgetter("dtype", "shape")


class Operator:
    """An operator on tensors in memory.

    Args:
        name: For messages.
        describe: `describe(operands, *parameters)` checks a call. What it gives follows from the
            parameters and from dtypes, shapes and strides of the operands.
        counted: Number of the first operand whose first axis is the count, as is that of all after
            it. None of the results' strides and nothing of the `Op` depends on it.
        products: Whether it multiplies matrices, which on a GPU may round as PyTorch's do.
    """

    def __init__(
        self,
        name: str,
        describe: Callable[..., Described],
        *,
        counted: int | None = None,
        products: bool = False,
    ) -> None:
        self._name, self._describe, self._products = name, describe, products
        # Without a count: behind every operand.
        self._counted = sys.maxsize if counted is None else counted
        # Threads that make the same entry at the same time do it twice; nothing else is shared.
        self._ready: dict[Hashable, Ready] = {}
        self._plans: dict[Hashable, OperatorPlan] = {}

    def __call__(
        self,
        operands: Sequence[Tensor],
        parameters: tuple[Hashable, ...],
        into: Sequence[Tensor] = (),
    ) -> Sequence[Tensor]:
        """The results.

        Args:
            operands: Tensors on one device, of any strides.
            parameters: Whatever else decides what the operator does.
            into: Where results go, of any strides, overlapping nothing else; fresh tensors without.

        Raises:
            OperandError: If the tensors do not fit, or boxes name images that are not there; on a
                GPU those of an earlier call.
            OptionError: If no kernel takes the call.
            CompileError: If its kernel cannot be compiled.
        """
        tensors = (*operands, *into)
        if not PLAIN.issuperset(map(type, tensors)):
            operands, into = plain(self._name, operands), plain(self._name, into)
            tensors = (*operands, *into)
        home = tensors[0].is_cpu
        place = torch.get_num_threads() if home else place_of(tensors, products=self._products)
        # `_prepare` relies on this order: dtypes and shapes last, those of `into` at the very end.
        key = (
            place, parameters, len(into), *map(_strides, tensors),
            *map(_kind, tensors),
        )  # fmt: skip
        # Whole calls first: finding a plan takes a key without the count, which costs more.
        ready = self._ready.get(key)
        if ready is None:
            ready = self._prepare(key, operands, parameters, into)
            _keep(self._ready, key, ready)
        results = into or ready.results()
        if ready.operation is None:
            return results
        if ready.dense:
            operands = _made_dense(operands, ready.dense)
        addresses = [*map(_address, operands), *map(_address, results)]
        # Tensors without elements have no address, and rightly: a closer look, but only then.
        if 0 in addresses:
            if tensors[0].is_meta:  # compiled, which is all that was asked for
                return results
            self._check_memory(operands)
        missing = ready.operation.run(ready.number, addresses)
        if missing:
            raise bad_boxes(self._name, missing)
        return results

    def _prepare(
        self,
        key: tuple[Any, ...],
        operands: Sequence[Tensor],
        parameters: tuple[Hashable, ...],
        into: Sequence[Tensor],
    ) -> Ready:
        """A call that was not seen before, by the plan of those that differ in the count only."""
        fixed = len(key) - len(into) - max(len(operands) - self._counted, 0)
        counted = key[fixed : len(key) - len(into)]
        counts = {shape[0] if shape else -1 for _, shape in counted}
        # Counts that differ: `describe` says what that means.
        count = counts.pop() if len(counts) == 1 else -1
        if count >= 0:
            rest = [(dtype, shape[1:]) for dtype, shape in counted]
            key = (*key[:fixed], *rest, *key[fixed + len(rest) :])
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(key[0], operands, parameters, into, count)
            _keep(self._plans, key, plan)
        return plan.at(count)

    def _plan(
        self,
        place: object,
        operands: Sequence[Tensor],
        parameters: tuple[Hashable, ...],
        into: Sequence[Tensor],
        count: int,
    ) -> OperatorPlan:
        call = self._describe(operands, *parameters)
        self._check_meaning(call, operands)
        # Without `into` there is nothing to compare, and the lengths differ.
        for given, fresh in zip(into, call.results, strict=bool(into)):
            if (given.dtype, given.shape) != (fresh.dtype, fresh.shape):
                raise OperandError(
                    f"{self._name}: results are {fresh.dtype} {list(fresh.shape)}, not "
                    f"{given.dtype} {list(given.shape)}"
                )
        # Kernels get copies of these, so that the plan has to be for the copies' strides.
        operands = _made_dense(operands, call.dense)
        results = into or call.results
        return OperatorPlan(call, operands, results, self._counted, count, place)

    def _check_meaning(self, call: Described, operands: Sequence[Tensor]) -> None:
        """Hold operands and results against what the operator says of them.

        Kernels believe sizes: they read and write what follows from them.
        """
        results = [TensorType(DTYPES[t.dtype], tuple(t.shape)) for t in call.results]
        if call.report:
            results.append(TensorType(DType.I32, (1,)))
        try:
            types = [TensorType(DTYPES[t.dtype], tuple(t.shape)) for t in operands]
            wanted = list(call.op.infer(types))
        except KeyError as error:
            raise OperandError(f"{self._name}: operands of {error}") from error
        except ModelError as error:
            raise OperandError(f"{self._name}: {error}") from error
        if results != wanted:
            raise OperandError(f"{self._name}: operands give {wanted}, not {results}")

    def _check_memory(self, operands: Sequence[Tensor]) -> None:
        """Refuse tensors whose elements are nowhere; those without elements may be."""
        for number, tensor in enumerate(operands, 1):
            if tensor.numel() and not _address(tensor):
                raise OperandError(f"{self._name}: operand {number} has no memory")


def _keep(table: dict[K, V], key: K, value: V) -> None:
    """Add to a table, which is emptied when it is full."""
    if len(table) >= _KEPT:
        table.clear()
    table[key] = value


def _made_dense(operands: Sequence[Tensor], numbers: Sequence[int]) -> list[Tensor]:
    return [t.contiguous() if i in numbers else t for i, t in enumerate(operands)]


def release_memory() -> None:
    """Give back what operators keep for their next call (up to 512 MiB)."""
    library().workspaces.clear()
