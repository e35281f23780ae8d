"""RoiAlign 10 to 22."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.call import Call, Operand
from saccade.frontend.refusal import Refusal
from saccade.opdefs import RoiAlign

__all__ = ["import_roi_align"]

_MODES = {"avg": "average", "max": "max"}


def import_roi_align(call: Call) -> Sequence[Operand]:
    """ONNX RoiAlign 10 to 22; what names a picture that is not there gives zeros."""
    x, boxes, pictures = (call.value(i) for i in range(3))
    mode = call.text("mode", "avg").lower()
    if mode not in _MODES:
        raise call.broken(f"mode {mode!r}")
    usual = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    coordinates = call.text("coordinate_transformation_mode", usual)
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise Refusal(f"coordinates {coordinates!r}")
    op = RoiAlign(
        bins=(call.integer("output_height", 1), call.integer("output_width", 1)),
        scale=call.number("spatial_scale", 1.0),
        ratio=call.integer("sampling_ratio", 0),
        aligned=coordinates == "half_pixel",
        mode=_MODES[mode],
    )
    return [call.emit(op, x, boxes, pictures)]
