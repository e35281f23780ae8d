"""The gradients of `deform_conv2d`: an operator that makes those that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from saccade.errors import OperandError
from saccade.opdefs import DeformConvGradient
from saccade.ops._deform_checks import Pair, result_shape
from saccade.ops._execute import Operator
from saccade.ops._plan import Described
from saccade.ops._register import Gradient, define_gradient
from saccade.ops._tensors import empty_like, fake_like

__all__ = ["GRADIENT", "PARAMETERS", "lying_apart"]

PARAMETERS = "int[] stride, int[] padding, int[] dilation, SymInt groups, SymInt offset_groups"
"""The numbers in the schemas of the operator and of its gradient."""

_NAMES = ("x", "weight", "offset", "bias", "mask")


def lying_apart(operands: Sequence[Tensor], *, weights: int) -> tuple[int, ...]:
    """Numbers of images whose rows do not follow each other as their pixels do.

    Args:
        operands: Images, but for the weights and a bias.
        weights: Number of the weights.
    """
    return tuple(
        i for i, t in enumerate(operands) if i != weights and t.dim() == 4 and _lies_apart(t)
    )


def _lies_apart(image: Tensor) -> bool:
    _, _, height, width = image.shape
    _, _, down, along = image.stride()
    # With a single row or column there is no second step that could differ.
    return height > 1 and width > 1 and down != width * along


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    del output
    # The bias's gradient is a sum of `grad`: its own values are not needed.
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
    operands = [grad, x, weight, offset]
    if mask is not None:
        operands.append(mask)
    asked = dict(zip(_NAMES, (*wanted[:4], wanted[4] and mask is not None), strict=True))
    order = tuple(name for name in DeformConvGradient.WANTED if asked[name])
    parameters = (order, tuple(stride), tuple(padding), tuple(dilation), groups, offset_groups)
    found = _ON_MEMORY(operands, parameters) if order else []
    return _in_order(dict(zip(order, found, strict=True)), x)


def _describe(
    operands: list[Tensor], order: tuple[str, ...], stride: Pair, padding: Pair, dilation: Pair,
    groups: int, offset_groups: int,
) -> Described:  # fmt: skip
    grad, x, weight, offset, *masks = operands
    mask = masks[0] if masks else None
    shape = result_shape(
        x, weight, offset, None, mask, stride, padding, dilation, groups, offset_groups
    )
    if grad.shape != shape:
        raise OperandError(
            f"deform_conv2d_backward: grad must be {list(shape)}, is {list(grad.shape)}"
        )
    results = _gradients(empty_like, x, weight, offset, mask, [name in order for name in _NAMES])
    op = DeformConvGradient(
        stride, (*padding, *padding), dilation, groups, offset_groups, mask is not None, order
    )
    results_in_order = [results[name] for name in order]
    return Described(op, results_in_order, dense=lying_apart(operands, weights=2))


def _gradients(
    make: Any, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,  # noqa: ANN401
    wanted: Sequence[bool],
) -> dict[str, Tensor]:  # fmt: skip
    """Fresh tensors for the gradients that are wanted."""
    # The bias is not at hand: it has the weights' dtype, and an element for each output.
    likes = {"x": x, "weight": weight, "offset": offset, "bias": weight, "mask": mask}
    return {
        name: make(like, like.shape[:1] if name == "bias" else like.shape)
        for (name, like), want in zip(likes.items(), wanted, strict=True)
        if want and like is not None
    }


def _in_order(results: dict[str, Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """All gradients, those that nobody wants without elements: operators return no None."""
    return tuple(results[name] if name in results else x.new_empty(0) for name in _NAMES)


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None,
    wanted: Sequence[bool], *_: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    del grad
    results = _gradients(fake_like, x, weight, offset, mask, wanted)
    return _in_order(results, x)


_ON_MEMORY = Operator("deform_conv2d_backward", _describe, products=True)
_BACKWARD = define_gradient(
    "_deform_conv2d_backward(Tensor grad, Tensor x, Tensor weight, Tensor offset, Tensor? mask, "
    f"bool[] wanted, {PARAMETERS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _fake_backward,
)
GRADIENT = Gradient(_keep, _differentiate)
"""Of the forward operator."""
