"""The sum of two convolutions on Hopper, by the code of `conv2d.hopper`: one ring, then the other.

`y = epilogue(first(x, w) + second(x2, w2))`

Layouts, element types and refusals are those of `conv2d.hopper` for either convolution. Floor: the
operations of both, or the bytes of both images and of y; as two steps, what the first one gives
would be written and read besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial

from saccade.backends.cuda.codegen.entry import Descriptor
from saccade.backends.cuda.fusions import Conv2dSum
from saccade.kernels.base import In, Launch, Operand, Packed, Variant, per_call
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.kernels.cuda.conv2d.hopper import (
    HopperConfig,
    HopperOperands,
    constants_of,
    filters_map,
    functions_of,
    hopper_launch,
    pixels_map,
    refuse_vectors,
    upper_of,
)
from saccade.kernels.cuda.conv2d.hopper_tiles import HopperTile, step_depth
from saccade.kernels.cuda.conv2d.hopper_times import hopper_times
from saccade.kernels.cuda.epilogue import integers_of, pointers_of

__all__ = ["CONV2D_HOPPER_SUM", "HopperSumConfig"]

_INTEGERS = ("rows", "k", "p", "q", "channels", "steps", "y_n", "y_p", "y_q", "steps2")
_SECOND = ("n", "h", "wd", "c", "filters", "depth", "x_n", "x_h", "x_w")
"""Integers of the second convolution's tensor maps; behind their names here stands a 2."""


@dataclass(frozen=True)
class HopperSumConfig(HopperConfig):
    """What the code depends on: the first convolution's config, and what the second adds to it.

    Attributes:
        stride2: Of the second one, rows then columns.
    """

    stride2: tuple[int, int] = (1, 1)


@per_call
def _halves(call: CudaCall) -> tuple[CudaCall, CudaCall]:
    """Both convolutions as calls: the first with the epilogue, the second bare."""
    op: Conv2dSum = call.op
    x, w, x2, w2, *operands = call.inputs
    known = call.constant
    first = replace(call, op=op.first, inputs=(x, w, *operands), constant=(*known[:2], *known[4:]))
    return first, replace(call, op=op.second, inputs=(x2, w2), constant=known[2:4])


def _supports(call: CudaCall) -> str | None:
    first, second = _halves(call)
    for half in (first, second):
        reason = refuse_vectors(half)
        if reason is not None:
            return reason
    if first.inputs[0].dtype is not second.inputs[0].dtype:
        return "element types"
    if step_depth(first.inputs[0].shape[1]) != step_depth(second.inputs[0].shape[1]):
        return "steps of different depths"
    return None


def _variants(call: CudaCall) -> Iterator[Variant]:
    first, second = _halves(call)
    for micros, _, tile in hopper_times(first, second.inputs[0]):
        yield Variant(micros, partial(_launches, call, tile), (tile.depth, False))


def _launches(call: CudaCall, tile: HopperTile) -> tuple[Launch, ...]:
    first, second = _halves(call)
    launch = hopper_launch(first, tile, taps_inner=False)
    assert isinstance(launch.config, HopperConfig)
    made = HopperOperands.of(second, tile.depth)
    upper_h, upper_w = upper_of(second)
    integers = {
        **launch.integers, **{f"{name}2": made.integers[name] for name in _SECOND},
        "upper_h2": upper_h, "upper_w2": upper_w,
        "steps2": -(-second.inputs[0].shape[1] // tile.depth),
    }  # fmt: skip
    weights = made.operands["w"]
    assert isinstance(weights, Packed)
    operands = {
        **{name: _moved(operand) for name, operand in launch.operands.items()},
        "x2": In(2), "w2": Packed(weights.packing._replace(inputs=(3,))),
    }  # fmt: skip
    known = {field.name: getattr(launch.config, field.name) for field in fields(launch.config)}
    config = HopperSumConfig(**known, stride2=call.op.second.stride)
    return (replace(launch, config=config, operands=operands, integers=integers),)


def _moved(operand: Operand) -> Operand:
    """An operand of the first convolution's call as one of the whole: two come between."""
    return In(operand.index + 2) if isinstance(operand, In) and operand.index >= 2 else operand


def _entry(config: HopperSumConfig) -> Entry:
    tile = config.tile
    weights = filters_map(config.element, tile.columns, tile.depth)
    pixels = replace(pixels_map(config), lower=(0, 0), steps=config.stride2)
    constants = {
        **constants_of(config), "STRIDE2_H": config.stride2[0], "STRIDE2_W": config.stride2[1],
        "PERSISTENT": tile.persistent,
    }  # fmt: skip
    return Entry(
        "conv2d.hopper_sum_code:convolve_sum",
        (("y", config.element),),
        _INTEGERS,
        constants,
        functions_of(config),
        pointers_of(config.epilogue),
        integers_of(config.epilogue),
        warps=tile.warps,
        descriptors=(pixels_map(config), weights, _second(pixels), _second(weights)),
        gluon=True,
    )


def _second(described: Descriptor) -> Descriptor:
    """The same of the second convolution's operand, by the names of its integers."""

    def named(sizes: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return tuple(f"{one}2" if isinstance(one, str) else one for one in sizes)

    return replace(
        described, name=f"{described.name}2", sizes=named(described.sizes),
        strides=named(described.strides), upper=named(described.upper),
    )  # fmt: skip


CONV2D_HOPPER_SUM = CudaKernel(
    "conv2d.hopper_sum", (Conv2dSum,), HopperSumConfig, _supports, _variants, _entry
)
