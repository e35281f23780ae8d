"""The second derivative of a p-norm, by ordinary operations of PyTorch, which have more of them.

The first one is dx = shape(x) · grad · scale(norm), one scale for each result; what flows back to
its three operands follows from the slopes of shape and scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["flow_back"]


def flow_back(
    flow: Tensor, grad: Tensor, x: Tensor, norm: Tensor, p: float, axes: Sequence[int], kept: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What flows back to gradient, x and norm, of what flows back to dx.

    Args:
        flow: Like x.
        grad: Operand of the first derivative, as are the next two.
        x: What the norm is of.
        norm: The norm.
        p: Any power but 0.
        axes: Axes that the norm went over.
        kept: Whether gradient and norm have them, as axes of 1.
    """
    dtype = norm.dtype
    wide, flow = x.to(dtype), flow.to(dtype)
    result = norm.shape
    if not kept:
        # In rising order, or axes would come back at the wrong places.
        for axis in axes:
            grad, norm = grad.unsqueeze(axis), norm.unsqueeze(axis)
    shape, slope = _shape(wide, norm, p)
    scale, change = _scale(wide, norm, p, axes)
    through = _sum(flow * shape, axes)
    return (
        (through * scale).to(grad.dtype).reshape(result),
        (flow * slope * (grad * scale)).to(x.dtype),
        (through * grad * change).reshape(result),
    )


def _sum(values: Tensor, axes: Sequence[int]) -> Tensor:
    # No axes would mean all of them to `sum`.
    return values.sum(tuple(axes), keepdim=True) if axes else values


def _shape(x: Tensor, norm: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """What the scale is multiplied by, and its slope; that of |x|^(p-1) counts as 0 at 0."""
    if p == 2:
        return x, torch.ones_like(x)
    if p == 1:
        return x.sgn(), torch.zeros_like(x)
    if math.isinf(p):
        return x.sgn() * (x.abs() == norm), torch.zeros_like(x)
    # Powers of 0 may be infinite, and `where` alone would let their products with 0 be NaN.
    size = torch.where(x == 0, 1.0, x.abs())
    nothing = torch.zeros_like(x)
    shape = torch.where(x == 0, nothing, x.sgn() * size.pow(p - 1))
    return shape, torch.where(x == 0, nothing, (p - 1) * size.pow(p - 2))


def _scale(x: Tensor, norm: Tensor, p: float, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What the gradient is multiplied by for each result, and its slope; 0 where the norm is."""
    nothing = torch.zeros_like(norm)
    if p == 1:
        return torch.ones_like(norm), nothing
    if math.isinf(p):
        ties = _sum((x.abs() == norm).to(x.dtype), axes)
        # A norm that is NaN equals no element.
        return 1 / ties.clamp(min=1), nothing
    # See `size` in `_shape`.
    safe = torch.where(norm == 0, 1.0, norm)
    scale = torch.where(norm == 0, nothing, safe.pow(1 - p))
    return scale, torch.where(norm == 0, nothing, (1 - p) * safe.pow(-p))
