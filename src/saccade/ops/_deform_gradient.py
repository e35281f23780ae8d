"""The gradients of `deform_conv2d`: an operator that makes those that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from saccade.kernels.base import View
from saccade.opdefs import DeformConv2dGradient
from saccade.ops._deform_checks import Pair
from saccade.ops._execute import execute
from saccade.ops._register import Gradient, define_gradient
from saccade.ops._tensors import empty_like, fake_like

__all__ = ["GRADIENT", "PARAMETERS", "linear"]

PARAMETERS = "int[] stride, int[] padding, int[] dilation, SymInt groups, SymInt offset_groups"
"""The numbers in the schemas of the operator and of its gradient."""

_NAMES = ("x", "weight", "offset", "bias", "mask")


def linear(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where its rows do not follow each other as its pixels do."""
    _, _, height, width = tensor.shape
    _, _, down, along = tensor.stride()
    return tensor if height <= 1 or width <= 1 or down == width * along else tensor.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    del output
    x, weight, offset, _, mask, *ctx.parameters = inputs
    ctx.save_for_backward(x, weight, offset, mask)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    x, weight, offset, mask = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:5])
    grads = _BACKWARD(grad, x, weight, offset, mask, wanted, *ctx.parameters)
    found = [g if want else None for g, want in zip(grads, wanted, strict=True)]
    return (*found, *[None] * len(ctx.parameters))


def _backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,
    wanted: Sequence[bool], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int, offset_groups: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of x, weights, offset, bias and mask; tensors without elements for the others."""
    results = _gradients(empty_like, x, weight, offset, mask, wanted)
    inputs = [linear(grad), linear(x), weight, linear(offset)]
    if mask is not None:
        inputs.append(linear(mask))
    order = [name for name in DeformConv2dGradient.WANTED if name in results]
    parameters = (
        tuple(stride), tuple(padding), tuple(dilation), groups, offset_groups, mask is not None,
        tuple(order),
    )  # fmt: skip
    if order:
        execute(_describe_gradient, parameters, inputs, [results[name] for name in order])
    return _in_order(results, x)


def _gradients(
    make: Any, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,  # noqa: ANN401
    wanted: Sequence[bool],
) -> dict[str, Tensor]:  # fmt: skip
    """Fresh tensors for the gradients that are wanted."""
    likes = {"x": x, "weight": weight, "offset": offset, "bias": weight, "mask": mask}
    return {
        name: make(like, like.shape[:1] if name == "bias" else like.shape)
        for (name, like), want in zip(likes.items(), wanted, strict=True)
        if want and like is not None
    }


def _in_order(results: dict[str, Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """All gradients, those that nobody wants without elements: operators return no None."""
    return tuple(results[name] if name in results else x.new_empty(0) for name in _NAMES)


def _describe_gradient(
    _inputs: tuple[View, ...], stride: Pair, padding: Pair, dilation: Pair, groups: int,
    offset_groups: int, mask: bool, wanted: tuple[str, ...],
) -> DeformConv2dGradient:  # fmt: skip
    return DeformConv2dGradient(
        stride, (*padding, *padding), dilation, groups, offset_groups, mask, wanted
    )


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,
    wanted: Sequence[bool], *_: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    del grad
    results = _gradients(fake_like, x, weight, offset, mask, wanted)
    return _in_order(results, x)


_BACKWARD = define_gradient(
    "_deform_conv2d_backward(Tensor grad, Tensor x, Tensor weight, Tensor offset, Tensor? mask, "
    f"bool[] wanted, {PARAMETERS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)
GRADIENT = Gradient(_keep, _differentiate)
"""Of the forward operator."""
