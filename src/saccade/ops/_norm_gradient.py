"""What flows back to x from a p-norm, as an operator of its own, which has a gradient, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.opdefs import VectorNormGrad
from saccade.ops._execute import Operator
from saccade.ops._norm_slopes import flow_back
from saccade.ops._parts import countable, parts
from saccade.ops._plan import Described
from saccade.ops._register import Gradient, define
from saccade.ops._tensors import empty_as

__all__ = ["norm_gradient", "outermost"]


def _describe(
    operands: Sequence[Tensor], p: float, axes: tuple[int, ...], keepdim: bool
) -> Described:
    return Described(VectorNormGrad(p, axes, keepdim), [empty_as(operands[1])])


def outermost(x: Tensor, axes: Sequence[int]) -> int:
    """The axis along which parts are apart in memory: one that is kept, if there is any."""
    kept = [axis for axis in range(x.dim()) if axis not in axes]
    strides = x.stride()
    return max(kept or axes, key=lambda axis: x.shape[axis] * abs(strides[axis]))


def _gradient(
    grad: Tensor,
    x: Tensor,
    norm: Tensor,
    ties: Tensor | None,
    p: float,
    axes: list[int],
    keepdim: bool,
) -> Tensor:
    if p == 0:
        return empty_as(x).zero_()
    how = (p, tuple(axes), keepdim)
    if countable(x):
        known = [] if ties is None else [ties]
        return _ON_MEMORY([grad, x, norm, *known], how)[0]
    axis, out = outermost(x, axes), empty_as(x)
    place: int | None = axis if keepdim else axis - sum(other < axis for other in axes)
    if axis in axes:
        place = None
    cut = list(parts((grad, place), (x, axis), (norm, place), (out, axis)))
    for *operands, result in cut:
        _ON_MEMORY(operands, how, [result])
    if place is None and math.isinf(p):
        _share_ties([(part, result) for _, part, _, result in cut], norm)
    return out


def _share_ties(cut: Sequence[tuple[Tensor, Tensor]], norm: Tensor) -> None:
    """What each part divided by its own number of extremes, by that of all parts."""
    ties = torch.stack([(part.abs() == norm).sum() for part, _ in cut])
    shares = ties / ties.sum().clamp(min=1)
    for share, (_, result) in zip(shares.unbind(), cut, strict=True):
        result.mul_(share)


def _keep_first(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    del output
    ctx.how = inputs[4:]
    ctx.save_for_backward(*inputs[:3])


def _backward_twice(ctx: Any, flow: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return *flow_back(flow, *ctx.saved_tensors, *ctx.how), None, None, None, None


def _batched_gradient(
    operator: Any,  # noqa: ANN401
    info: Any,  # noqa: ANN401
    dims: tuple[int | None, ...],
    *arguments: Any,  # noqa: ANN401
) -> tuple[Tensor, int]:
    def whole(t: Tensor | None, dim: int | None) -> Tensor | None:
        # What has no batch is the same for each part of it, and takes no memory.
        if t is None:
            return None
        return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)

    tensors = map(whole, arguments[:4], dims[:4])
    p, axes, keepdim = arguments[4:]
    return operator(*tensors, p, [axis + 1 for axis in axes], keepdim), 0


_ON_MEMORY = Operator("vector_norm_backward", _describe)
norm_gradient = define(
    "_vector_norm_backward(Tensor grad, Tensor x, Tensor norm, Tensor? ties, float ord, int[] dim,"
    " bool keepdim) -> Tensor",
    _gradient,
    lambda grad, x, *_: torch.empty_like(x),
    gradient=Gradient(_keep_first, _backward_twice),
    batched=_batched_gradient,
)
