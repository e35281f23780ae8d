"""Storage in a word or two, for people: `NHWC`, `NCHW`, `NHWC, 64 of 256 channels`."""

from __future__ import annotations

from saccade.errors import printable
from saccade.kernels.base import View
from saccade.plan import Plan, Slot
from saccade.report.types import TensorPlace

__all__ = ["layout_of", "place_of"]

_IMAGE = 4  # axes: N, C, H, W


def layout_of(view: View) -> str:
    """How a view's elements follow each other."""
    image = len(view.shape) == _IMAGE
    if any(stride == 0 and size > 1 for stride, size in zip(view.strides, view.shape, strict=True)):
        return "broadcast"
    if view.row_major:
        return "NCHW" if image else "row-major"
    if not image or not view.channels_last:
        return "NCHW, in parts" if image and _rows(view) else "strided"
    channels, pitch = view.shape[1], view.strides[3]
    if pitch <= channels:
        return "NHWC"
    if pitch == channels + view.room:
        return f"NHWC, pixels padded to {pitch}"
    return f"NHWC, {channels} of {pitch} channels"


def _rows(view: View) -> bool:
    """Whether all but the outermost axis is row-major, as a slice of channels is."""
    return View(view.dtype, view.shape[1:], view.strides[1:]).row_major


def place_of(plan: Plan, slot: Slot) -> TensorPlace:
    """An operand or a result of a plan's step."""
    ref, view = slot
    return TensorPlace(
        view.dtype.value,
        view.shape,
        layout_of(view),
        _where(plan, ref.base, ref.offset),
        ref.nbytes,
    )


def _where(plan: Plan, base: int, offset: int) -> str:
    if base == 0:
        return f"arena + {offset}"
    if base < plan.output_base:
        return f"input {printable(plan.inputs[base - 1].name)}"
    if base < plan.constant_base:
        return f"output {printable(plan.outputs[base - plan.output_base].name)}"
    return "constant"
