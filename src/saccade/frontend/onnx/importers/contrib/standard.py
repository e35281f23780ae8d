"""Operators that ONNX Runtime had before the standard did, or has once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers.contrib._forms import as_standard, only
from saccade.frontend.onnx.importers.indexing import import_gather_nd
from saccade.frontend.onnx.importers.movement import import_pad
from saccade.frontend.onnx.importers.quantisation import (
    import_dequantize_linear,
    import_quantize_linear,
)
from saccade.frontend.onnx.importers.regions import import_grid_sample
from saccade.frontend.onnx.importers.selection import import_trilu
from saccade.frontend.onnx.importers.shape import import_range
from saccade.frontend.onnx.moves import reshaped

__all__ = [
    "import_dequantize_again",
    "import_expand_dims",
    "import_gather_nd_again",
    "import_grid_sample_again",
    "import_pad_again",
    "import_quantize_again",
    "import_range_again",
    "import_trilu_again",
]


def import_quantize_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QuantizeLinear 1: ONNX's, to 8 and 16 bits."""
    only(call, "axis", inputs=3)
    return import_quantize_linear(as_standard(call))


def import_dequantize_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.DequantizeLinear 1: ONNX's, of 8, 16 and 32 bits."""
    only(call, "axis", inputs=3)
    return import_dequantize_linear(as_standard(call))


def import_pad_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.Pad 1: ONNX's, and pads may be a row of a matrix."""
    only(call, "mode", inputs=3)
    pads = call.value(1)
    if pads.rank == 2 and pads.shape[0] == 1:
        pads = reshaped(call, pads, pads.shape[1:])
    rest = call.operands[2:]
    return import_pad(as_standard(call, call.operand(0), pads, *rest))


def import_trilu_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.Trilu 1: ONNX's."""
    only(call, "upper", inputs=2)
    return import_trilu(as_standard(call))


def import_range_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.Range 1: ONNX's, in steps of 1 if there is no third operand."""
    only(call, inputs=3)
    if call.has(2):
        return import_range(as_standard(call))
    kind = call.constant(0, "a bound of a range").dtype
    step = call.build.constant(np.ones((), kind), "step")
    return import_range(as_standard(call, call.operand(0), call.operand(1), step))


def import_gather_nd_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.GatherND 1: ONNX's, without batches."""
    only(call, inputs=2)
    return import_gather_nd(as_standard(call))


def import_grid_sample_again(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.GridSample 1: ONNX's of operator set 16."""
    only(call, "align_corners", "mode", "padding_mode", inputs=2)
    return import_grid_sample(replace(call, opset=16))


def import_expand_dims(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.ExpandDims 1: an axis of 1 more."""
    only(call, inputs=2)
    x = call.value(0)
    axes = call.integers_of(1, "the axis")
    if len(axes) != 1:
        raise call.broken(f"axes {list(axes)}")
    axis = call.axis(axes[0], x.rank + 1)
    return [reshaped(call, x, (*x.shape[:axis], 1, *x.shape[axis:]))]
