"""Blocks of pixels to channels and back: pixel_shuffle and its relatives.

    pixel_shuffle     [*, C·r², H, W] -> [*, C, H·r, W·r], channels ordered (c, y, x) in a block
    depth_to_space    the same; mode "DCR" orders channels (y, x, c) as ONNX does by default, "CRD"
                      (c, y, x) as `pixel_shuffle`
    pixel_unshuffle, space_to_depth    their inverses

One pass over memory in either layout (see `kernels.movement.copy`); a result is stored as its
operand is, channels-last included. Any dtype. Each one's gradient is its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from saccade.errors import OperandError
from saccade.ir.pixel_maps import depth_to_space as spread_map
from saccade.ir.pixel_maps import space_to_depth as gather_map
from saccade.opdefs import Move
from saccade.ops._execute import Operator
from saccade.ops._parts import countable, parts
from saccade.ops._plan import Described
from saccade.ops._register import Gradient, define
from saccade.ops._tensors import DTYPES, empty_like, fake_like, refuse_type

__all__ = ["depth_to_space", "pixel_shuffle", "pixel_unshuffle", "space_to_depth"]

_MODES = ("CRD", "DCR")
_SHUFFLES = {"CRD": "pixel_shuffle (depth_to_space, CRD)"}
_UNSHUFFLES = {"CRD": "pixel_unshuffle (space_to_depth, CRD)"}
"""What errors call an operator that does not know by which name it was called."""


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """[*, C·r², H, W] -> [*, C, H·r, W·r], as `torch.nn.functional.pixel_shuffle`.

    Args:
        x: Of any dtype and strides, with any number of leading axes.
        upscale_factor: r.

    Raises:
        OperandError: If x has less than three axes, or channels that r² does not divide.
    """
    return _of_parts("pixel_shuffle", _SPREAD, x, upscale_factor, "CRD")


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """[*, C, H·r, W·r] -> [*, C·r², H, W], the inverse of `pixel_shuffle`.

    Raises:
        OperandError: If x has less than three axes, or rows or columns that r does not divide.
    """
    return _of_parts("pixel_unshuffle", _GATHER, x, downscale_factor, "CRD")


def depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """ONNX DepthToSpace: [*, C·b², H, W] -> [*, C, H·b, W·b].

    Args:
        x: Of any dtype and strides, with any number of leading axes.
        blocksize: b.
        mode: "DCR" takes channels for (y, x, c), "CRD" for (c, y, x).

    Raises:
        OperandError: If x has less than three axes, or channels that b² does not divide.
    """
    return _of_parts("depth_to_space", _SPREAD, x, blocksize, mode)


def space_to_depth(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """ONNX SpaceToDepth: [*, C, H·b, W·b] -> [*, C·b², H, W], the inverse of `depth_to_space`.

    Raises:
        OperandError: If x has less than three axes, or rows or columns that b does not divide.
    """
    return _of_parts("space_to_depth", _GATHER, x, blocksize, mode)


def _of_parts(
    name: str,
    operator: Any,  # noqa: ANN401 - torch.ops carries no types
    x: Tensor,
    block: int,
    mode: str,
) -> Tensor:
    """What an operator gives; of complex numbers, of their real and imaginary parts."""
    if not isinstance(x, Tensor):
        refuse_type(name, "x", x)
    # Kernels know no complex elements; PyTorch differentiates through both parts.
    if x.is_complex():
        return torch.complex(*(operator(part, block, mode) for part in (x.real, x.imag)))
    result: Tensor = operator(x, block, mode)
    return result


def _spread_shape(x: Tensor, block: int, mode: str) -> tuple[int, ...]:
    name = _SHUFFLES.get(mode, "depth_to_space")
    _check(name, x, block, mode)
    *batch, c, h, w = x.shape
    if c % block**2:
        raise OperandError(f"{name}: {c} channels are no multiple of {block}²")
    return (*batch, c // block**2, h * block, w * block)


def _gather_shape(x: Tensor, block: int, mode: str) -> tuple[int, ...]:
    name = _UNSHUFFLES.get(mode, "space_to_depth")
    _check(name, x, block, mode)
    *batch, c, h, w = x.shape
    if h % block or w % block:
        raise OperandError(f"{name}: {h}x{w} pixels are no whole blocks of {block}x{block}")
    return (*batch, c * block**2, h // block, w // block)


def _check(name: str, x: Tensor, block: int, mode: str) -> None:
    if x.dim() < 3:
        raise OperandError(f"{name}: x must have three axes or more, is {list(x.shape)}")
    if block <= 0:
        raise OperandError(f"{name}: the block size must be positive, is {block}")
    if mode not in _MODES:
        raise OperandError(f"{name}: mode {mode!r} is neither DCR nor CRD")


def spread_into(x: Tensor, out: Tensor, block: int, mode: str) -> None:
    """Depth to space into a result that is there: rank 4 on both sides, any strides."""
    _in_parts(_SPREAD_ON_MEMORY, x, out, block, mode)


def gather_into(x: Tensor, out: Tensor, block: int, mode: str) -> None:
    """Space to depth into a result that is there: rank 4 on both sides, any strides."""
    _in_parts(_GATHER_ON_MEMORY, x, out, block, mode)


def _in_parts(on_memory: Operator, x: Tensor, out: Tensor, block: int, mode: str) -> None:
    if countable(x):  # as nearly all are
        on_memory([x], (block, mode), [out])
        return
    for part, result in parts((x, 0), (out, 0)):
        on_memory([part], (block, mode), [result])


def _spread(x: Tensor, block: int, mode: str) -> Tensor:
    out = empty_like(x, _spread_shape(x, block, mode))
    spread_into(_flat(x), _flat(out), block, mode)
    return out


def _gather(x: Tensor, block: int, mode: str) -> Tensor:
    out = empty_like(x, _gather_shape(x, block, mode))
    gather_into(_flat(x), _flat(out), block, mode)
    return out


def _describe_spread(operands: Sequence[Tensor], block: int, mode: str) -> Described:
    (x,) = operands
    shape = _spread_shape(x, block, mode)
    return Described(
        Move(spread_map(tuple(x.shape), block, shape[1], mode)), [empty_like(x, shape)]
    )


def _describe_gather(operands: Sequence[Tensor], block: int, mode: str) -> Described:
    (x,) = operands
    shape = _gather_shape(x, block, mode)
    return Described(
        Move(gather_map(tuple(x.shape), block, shape[2], shape[3], mode)), [empty_like(x, shape)]
    )


def _flat(x: Tensor) -> Tensor:
    """[N, C, H, W]."""
    # Of a fresh result this is a view: unless it has rank 4 it is contiguous. A size of -1 would be
    # ambiguous where there are no elements.
    rank4 = x if x.dim() == 4 else x.reshape(prod(x.shape[:-3]), *x.shape[-3:])
    return rank4 if x.dtype in DTYPES else rank4.view(torch.uint8)  # eight-bit floats


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    del output
    _, ctx.block, ctx.mode = inputs


def _spread_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:  # noqa: ANN401
    return (space_to_depth(grad, ctx.block, ctx.mode), None, None)


def _gather_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:  # noqa: ANN401
    return (depth_to_space(grad, ctx.block, ctx.mode), None, None)


def _leading(
    operator: Any,  # noqa: ANN401 - torch.ops carries no types
    _info: object,
    dims: tuple[int, None, None],
    x: Tensor,
    block: int,
    mode: str,
) -> tuple[Tensor, int]:
    """The rule for `vmap`: the batch is one more leading axis."""
    return operator(x.movedim(dims[0], 0), block, mode), 0


_SPREAD_ON_MEMORY = Operator("depth_to_space", _describe_spread)
_GATHER_ON_MEMORY = Operator("space_to_depth", _describe_gather)
_SPREAD = define(
    "depth_to_space(Tensor x, int blocksize, str mode) -> Tensor",
    _spread,
    lambda x, block, mode: fake_like(x, _spread_shape(x, block, mode)),
    gradient=Gradient(_keep, _spread_backward),
    batched=_leading,
)
_GATHER = define(
    "space_to_depth(Tensor x, int blocksize, str mode) -> Tensor",
    _gather,
    lambda x, block, mode: fake_like(x, _gather_shape(x, block, mode)),
    gradient=Gradient(_keep, _gather_backward),
    batched=_leading,
)
