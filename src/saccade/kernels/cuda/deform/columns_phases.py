"""What surrounds the products of deformable convolution: orders of axes before, sums behind."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, View
from saccade.kernels.cuda.base import ELEMENTS, CudaCall, element_of
from saccade.kernels.cuda.deform.gradient_config import (
    PREPARING,
    CudaDeformGradientConfig,
    GradientTile,
    copying_programs,
    packing_programs,
    phase_launch,
)
from saccade.kernels.cuda.deform.half_products import parts_of

__all__ = [
    "column_element",
    "packed_weights",
    "parts_in",
    "pixels_last",
    "prepared",
    "scale_slots",
    "strides_of",
    "sum_type",
    "summed",
]

_SUMS: GradientTile = (16, 128, 0, 4, 1)  # pixels and outputs
_SUMS_APART: GradientTile = (64, 32, 0, 4, 1)  # where the pixels are neighbours, not the outputs


def pixels_last(x: View) -> tuple[Operand, View]:
    """X with its channels as neighbours, or a copy that has them so."""
    if x.channels_last:
        return In(0), x
    n, c, h, w = x.shape
    size = max(16, n * c * h * w * x.dtype.itemsize)
    return Temp(0, size), x._replace(strides=(h * w * c, 1, w * c, c))


def scale_slots() -> Temp:
    """What scales float32 that is multiplied as halves."""
    return Temp(3, 16)


def parts_in(call: CudaCall) -> int:
    """Of each number of the products; 0 where it is whole."""
    return parts_of(call, call.inputs[0].dtype)


def column_element(call: CudaCall) -> str:
    """What Triton calls the elements of the columns and of the weights beside them."""
    return "fp16" if parts_in(call) else element_of(call.inputs[0])


def packed_weights(call: CudaCall) -> Temp:
    """The weights in the products' order."""
    return Temp(1, max(16, call.inputs[1].nbytes))


def sum_type(call: CudaCall) -> DType:
    """Of the products' sums."""
    return DType.F64 if call.inputs[0].dtype is DType.F64 else DType.F32


def prepared(call: CudaCall, last: Operand) -> Launch:
    """Weights in the products' order, and x, if its channels are no neighbours, to `last`."""
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    k, c, r, s = weight.shape
    packed = column_element(call)
    elements = (element_of(weight), packed, "i32", *(element_of(x),) * 3, packed, "i32")
    config = CudaDeformGradientConfig(
        "prepare", elements, PREPARING, parts=parts_in(call), taps=(r, s)
    )
    packing = packing_programs(weight)
    copying = 0 if x.channels_last else copying_programs(x, x.shape[0])
    # Nothing is cleared, and no gradient copied: any pointer will do.
    integers = {
        "packing": packing, "clearing": 0, "copying": copying, "cleared": 0, "outputs": k, "c": c,
        "columns": s, "first_image": 0, "all_channels": x.shape[1], "h": x.shape[2],
        "wd": x.shape[3], "p": y.shape[2], "q": y.shape[3], "plane": 0,
        **strides_of("w", "kcrs", weight), **strides_of("x", "nchw", x),
        **strides_of("s", "nkpq", x),
    }  # fmt: skip
    operands: dict[str, Operand] = {
        "w": In(1), "packed": packed_weights(call), "counts": scale_slots(), "x": In(0),
        "x_last": last, "grad": In(0), "grad_last": packed_weights(call), "slots": scale_slots(),
    }  # fmt: skip
    return phase_launch(config, operands, integers, packing + copying)


def summed(call: CudaCall, sums: Temp, splits: int, first: int, rows: int) -> Launch:
    """The result from parts of its sums.

    Args:
        call: The call.
        sums: The parts, [splits, rows, outputs].
        splits: How many there are.
        first: The first image that they are of.
        rows: Pixels of the result.
    """
    y = call.outputs[0]
    at = 3 if call.op.bias else 2  # what there is not, is not read
    bias = call.inputs[at]
    last = y.strides[1] == 1 or y.shape[1] == 1
    flat = y.strides[3] == 1 and y.strides[2] == y.shape[3] and not last
    flags = (call.op.bias, last, flat, y.dtype is DType.F64)
    tile = _SUMS if last else _SUMS_APART
    elements = (ELEMENTS[sum_type(call)], element_of(bias), element_of(y))
    config = CudaDeformGradientConfig("summed", elements, tile, flags)
    integers = {
        "pixels": rows, "first_image": first, "p": y.shape[2], "q": y.shape[3],
        "outputs": y.shape[1], "splits": splits, "b_k": bias.strides[0],
        **strides_of("y", "nkpq", y),
    }  # fmt: skip
    pixels = y.shape[2] * y.shape[3]
    programs = rows // max(1, pixels) * -(-pixels // tile[0]) * -(-y.shape[1] // tile[1])
    operands: dict[str, Operand] = {"parts": sums, "bias": In(at), "y": Out(0)}
    return phase_launch(config, operands, integers, programs)


def strides_of(prefix: str, axes: str, view: View) -> dict[str, int]:
    """Strides by what Triton functions call them."""
    return {f"{prefix}_{axis}": s for axis, s in zip(axes, view.strides, strict=True)}
