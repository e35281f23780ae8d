"""Runs operators on tensors: finds what a call has in common with those before it, and runs that.

Calls with equal parameters, dtypes, strides and shapes of tensors, and number of threads have been
checked already: they share a plan (`_plan`). So do those that differ in a count, such as the number
of boxes. The threads are those of PyTorch's own pool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.ops._library import library
from saccade.ops._plan import Described, Plan, keep

__all__ = ["Operator", "release_memory"]

_PLANS = 1024  # kept of an operator

_address, _strides = Tensor.data_ptr, Tensor.stride


class Operator:
    """An operator on tensors in memory.

    Args:
        name: For messages.
        describe: `describe(operands, *parameters)` checks a call. What it gives follows from the
            parameters and from dtypes, shapes and strides of the operands.
        counted: Number of the first operand whose first axis is the count, as is that of all after
            it. None of the results' strides and nothing of the `Op` depends on it.
    """

    def __init__(
        self, name: str, describe: Callable[..., Described], *, counted: int | None = None
    ) -> None:
        self._name, self._describe = name, describe
        self._counted = sys.maxsize if counted is None else counted
        self._plans: dict[Hashable, Plan] = {}

    def __call__(
        self,
        operands: Sequence[Tensor],
        parameters: tuple[Hashable, ...],
        into: Sequence[Tensor] = (),
    ) -> Sequence[Tensor]:
        """The results.

        Args:
            operands: CPU tensors of any strides.
            parameters: Whatever else decides what the operator does.
            into: Where results go, of any strides, overlapping nothing else; fresh tensors without.

        Raises:
            OperandError: If the tensors do not fit, or boxes name pictures that are not there.
            OptionError: If no kernel takes the call.
            CompileError: If its kernel cannot be compiled.
        """
        key, count = self._key(operands, parameters, into)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(operands, parameters, into, count)
            keep(self._plans, _PLANS, key, plan)
        results = into or plan.results(count)
        if plan.hollow:
            return results
        operation = plan.operation(count)
        if plan.dense:
            operands = _made_dense(operands, plan.dense)
        missing = operation.run(count, [*map(_address, operands), *map(_address, results)])
        if missing:
            raise OperandError(
                f"{self._name}: rois batch index must be in [0, batch_size), is not in "
                f"{missing} of them"
            )
        return results

    def _key(
        self,
        operands: Sequence[Tensor],
        parameters: tuple[Hashable, ...],
        into: Sequence[Tensor],
    ) -> tuple[Hashable, int]:
        """What plans are known by, and the count; -1 where there is none."""
        key: list[Hashable] = [torch.get_num_threads(), parameters, *map(_strides, operands)]
        fixed, counted = operands[: self._counted], operands[self._counted :]
        count = -1
        for tensor in fixed:
            key += (tensor.dtype, tensor.shape)
        for tensor in counted:
            first, *rest = tensor.shape or (-1,)
            if first != count != -1:  # `describe` says what that means
                return (*key[:2], *[(t.dtype, t.stride(), t.shape) for t in operands]), -1
            count = first
            key += (tensor.dtype, *rest)
        for tensor in into:
            key += (tensor.dtype, tensor.shape, tensor.stride())
        return tuple(key), count

    def _plan(
        self,
        operands: Sequence[Tensor],
        parameters: tuple[Hashable, ...],
        into: Sequence[Tensor],
        count: int,
    ) -> Plan:
        call = self._describe(operands, *parameters)
        for given, fresh in zip(into, call.results, strict=bool(into)):
            if (given.dtype, given.shape) != (fresh.dtype, fresh.shape):
                raise OperandError(
                    f"{self._name}: results are {fresh.dtype} {list(fresh.shape)}, not "
                    f"{given.dtype} {list(given.shape)}"
                )
        operands = _made_dense(operands, call.dense)
        results = into or call.results
        return Plan(call, operands, results, self._counted, count, torch.get_num_threads())


def _made_dense(operands: Sequence[Tensor], numbers: Sequence[int]) -> list[Tensor]:
    return [t.contiguous() if i in numbers else t for i, t in enumerate(operands)]


def release_memory() -> None:
    """Give back what operators keep for their next call (up to 512 MiB)."""
    library().workspaces.clear()
