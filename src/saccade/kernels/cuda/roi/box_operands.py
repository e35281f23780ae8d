"""What kernels over boxes of images plan alike: the boxes' operands, and sizes of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.ir import DType
from saccade.kernels.base import In, Operand, View
from saccade.kernels.cuda.base import FLOATS, CudaCall, element_of

__all__ = [
    "BOX_INTEGERS", "CudaBoxes", "boxes_of", "channels_strides", "common_refusal", "exact_kind",
    "joined", "power_of_two", "reach", "unit",
]  # fmt: skip

BOX_INTEGERS = ("n", "count", "b_row", "b_step", "i_row")


@dataclass(frozen=True, slots=True)
class CudaBoxes:
    """The boxes of one call.

    Attributes:
        elements: What boxes and the images' numbers are stored in.
        split: Whether these are an operand of their own.
        operands: For the launch, by parameter name.
        integers: The same: how many images and boxes there are, and strides.
    """

    elements: tuple[str, str]
    split: bool
    operands: dict[str, Operand]
    integers: dict[str, int]


def boxes_of(call: CudaCall) -> CudaBoxes:
    """The boxes of a call of x, boxes [K, 5], or of x, boxes [K, 4] and images [K]."""
    x, boxes, *images = _lists(call)
    numbers = images[0] if images else boxes  # which nothing reads where there are none
    integers = {
        "n": x.shape[0], "count": boxes.shape[0],
        "b_row": boxes.strides[0], "b_step": boxes.strides[1], "i_row": numbers.strides[0],
    }  # fmt: skip
    return CudaBoxes(
        (element_of(boxes), element_of(numbers)),
        bool(images),
        {"boxes": In(1), "images": In(2 if images else 1)},
        integers,
    )


def _lists(call: CudaCall) -> tuple[View, ...]:
    """The operands without a number of boxes behind them (`RoiAlign.counted`)."""
    return call.inputs[: len(call.inputs) - getattr(call.op, "counted", False)]


def common_refusal(call: CudaCall) -> str | None:
    """Why no kernel over boxes takes a call."""
    kinds = (*FLOATS, DType.F64)
    if any(view.dtype not in kinds for view in (*call.inputs[:2], call.outputs[0])):
        return "element types"
    x, *lists = _lists(call)
    if max(*(view.extent for view in lists), *map(reach, (x, *call.outputs))) >= 1 << 31:
        return "2^31 elements or more of an image or box"
    return None


def reach(view: View) -> int:
    """Elements of one image or box, or from one to the next: what 32 bits have to count."""
    return max(view._replace(shape=(1, *view.shape[1:])).extent, abs(view.strides[0]))


def exact_kind(call: CudaCall) -> bool:
    """Whether places are computed in float64."""
    return DType.F64 in (call.inputs[0].dtype, call.inputs[1].dtype)


def channels_strides(view: View, prefix: str, axes: str) -> dict[str, int]:
    """Strides by parameter name."""
    return {f"{prefix}_{axis}": s for axis, s in zip(axes, view.strides, strict=True)}


def unit(view: View) -> bool:
    """Whether neighbouring channels are neighbours in memory."""
    return view.strides[1] == 1 or view.shape[1] == 1


def joined(view: View) -> bool:
    """Whether the bins of a box's channel lie side by side, [K, C, P, Q]."""
    p, q = view.shape[2:]
    return (view.strides[3] == 1 or q == 1) and (view.strides[2] == q or p == 1)


def power_of_two(least: int) -> int:
    """The first power of two that is not smaller."""
    return 1 << max(0, least - 1).bit_length()
