"""Products of float32 by units for float16: when, and the scales of their operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from saccade.ir import DType
from saccade.kernels.base import Launch, Operand, Temp, View
from saccade.kernels.cuda.base import CudaCall, element_of
from saccade.kernels.cuda.deform.gradient_config import (
    CudaDeformGradientConfig,
    GradientTile,
    phase_launch,
)
from saccade.kernels.cuda.precision import precision_of

__all__ = ["MASKS", "OUTPUTS", "PIXELS", "WEIGHTS", "parts_of", "scale_launches"]

PIXELS, MASKS, WEIGHTS, OUTPUTS = range(4)
"""Slots of what is largest: in x, in masks, in weights, in the result's gradient."""
_SCALED = ("x", "mask", "w", "grad")  # in the order of the slots
_BLOCK: GradientTile = (2048, 0, 0, 4, 1)  # elements of a program of `largest`
_SLOTS: GradientTile = (4, 0, 0, 1, 1)  # those above


def parts_of(call: CudaCall, dtype: DType) -> int:
    """Parts of an operand: two of float32, one where TF32 may be, which keeps as much; 0: whole."""
    return {"tf32x3": 2, "tf32": 1}.get(precision_of(call, dtype), 0)


def scale_launches(slots: Temp, views: Mapping[int, tuple[Operand, View]]) -> Iterator[Launch]:
    """What is largest of each view, to its slot."""
    cleared = CudaDeformGradientConfig("cleared", ("i32",), _SLOTS)
    yield phase_launch(cleared, {"slots": slots}, {}, 1)
    anything = next(iter(views.values()))
    operands: dict[str, Operand] = {"slots": slots}
    elements, integers, programs = [], {}, 0
    for slot, name in enumerate(_SCALED):
        operands[name], view = views.get(slot, anything)
        elements.append(element_of(view))
        # As memory has them: the axis whose elements are neighbours last.
        axes = sorted(zip(view.strides, view.shape, strict=True), reverse=True)
        axes = [(0, 1)] * (4 - len(axes)) + axes
        letter, number = name[0], view.size if slot in views else 0
        integers[f"{letter}_number"] = number
        integers.update({f"{letter}_{i}": size for i, (_, size) in enumerate(axes) if i})
        integers.update({f"{letter}_s{i}": stride for i, (stride, _) in enumerate(axes)})
        programs += -(-number // _BLOCK[0])
    config = CudaDeformGradientConfig("largest", (*elements, "i32"), _BLOCK)
    yield phase_launch(config, operands, integers, programs)
