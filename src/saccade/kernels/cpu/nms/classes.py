"""Greedy suppression of every class of every image by itself, as ONNX has it.

Three phases:

- `classes_select`, a chunk for each class: boxes whose score is high enough, sorted, one after the
  other against those that stay (as in `direct`), until there are as many as are wanted;
- `places`, one chunk: where the rows of each class begin, and how many rows there are;
- `classes_rows`: image, class and box of all that stay, and zeros behind them.

The classes of an image share its boxes and nothing else, so any number of threads gives the same
rows. Any float types of 32 bits and less; any strides of the boxes, scores of a class side by side.
"""

from __future__ import annotations

from math import inf, nan

import numpy as np

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.nms.box_iou import pair_integers
from saccade.kernels.cpu.nms.box_strips import strip_integers
from saccade.kernels.cpu.nms.classes_rows import PADDED, emit_places, emit_rows
from saccade.kernels.cpu.nms.classes_select import SAMPLED, emit_select
from saccade.kernels.cpu.nms.config import (
    DIGITS,
    FIELDS,
    RADIX,
    RECORD,
    ClassesConfig,
    most_strips,
    strip_capacity,
)
from saccade.kernels.cpu.refusals import refuse_types
from saccade.opdefs.nms import NonMaxSuppression

__all__ = ["NMS_CLASSES"]

_KEPT, _COUNTS, _STARTS = range(3)
_ELEMENT = "float32"
_ASKED = 4  # boxes that are tried for each that is wanted
_FEW = 256  # and so many more


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    refused = refuse_types(call.inputs, floats.FLOATS - {DType.F64})
    if refused is not None:
        return refused
    if call.inputs[1].strides[2] != 1 and call.inputs[1].shape[2] > 1:
        return "scores of a class that are not side by side"
    selected = call.outputs[0]
    if selected.shape[0] > 1 and selected.strides != (3, 1):
        return "the result is not contiguous"
    return None


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """Suppression, places, rows."""
    images, classes, _ = call.inputs[1].shape
    runs, rows, most = images * classes, call.outputs[0].shape[0], _most(call)
    kept = Temp(_KEPT, 4 * runs * most)
    counts, starts = Temp(_COUNTS, 8 * runs), Temp(_STARTS, 8 * runs)
    places: dict[str, Operand] = {"counts": counts, "starts": starts, "total": Out(1)}
    fill = -(-rows // PADDED)
    return (
        _select(call, kept, counts),
        Launch(ClassesConfig("places"), places, {"runs": runs}, 1),
        Launch(
            ClassesConfig("rows"),
            {"kept": kept, **places, "rows": Out(0)},
            {"runs": runs, "classes": classes, "most": most, "size": rows, "fill": fill},
            runs + fill,
        ),
    )


def _most(call: CpuCall) -> int:
    """Boxes of a class that stay at most."""
    most: int = call.op.most
    return min(most, call.inputs[1].shape[2])


def _select(call: CpuCall, kept: Temp, counts: Temp) -> Launch:
    boxes, scores, op = call.inputs[0], call.inputs[1], call.op
    images, classes, count = scores.shape
    # Both in bytes: a vector, and an int64 for each box.
    lanes, words = call.target.vector_bits // 8, 8 * count
    vectors = strip_capacity(count, lanes // 4) * FIELDS * lanes
    strips = 8 * most_strips(count)
    operands: dict[str, Operand] = {
        "boxes": In(0),
        "scores": In(1),
        "kept": kept,
        "counts": counts,
        "keys": Scratch(2 * words),
        "items": Scratch(2 * words),
        "histogram": Scratch(4 * DIGITS[_ELEMENT] * RADIX),
        "records": Scratch(4 * RECORD * count),
        "vectors": Scratch(vectors),
        "firsts": Scratch(strips),
        "filled": Scratch(strips),
        "places": Scratch(words),
    }
    integers = {
        "runs": images * classes,
        "classes": classes,
        "size": count,
        "most": _most(call),
        "image": boxes.strides[0],
        "row": boxes.strides[1],
        "column": boxes.strides[2],
        "score_image": scores.strides[0],
        "score_class": scores.strides[1],
        "least": real_word(_least(op.score_threshold)),
        "rank": _rank(_most(call), count),
        **strip_integers(op.iou_threshold, count),
        **pair_integers(op.iou_threshold),
    }
    config = ClassesConfig("select", boxes.dtype.value, scores.dtype.value, op.centred)
    return Launch(config, operands, integers, images * classes)


def _least(threshold: float | None) -> float:
    """The smallest score of float32 that exceeds the threshold; NaN if none does."""
    if threshold is None:
        return -inf
    # Scores are compared as float32, `>=` with the one that follows being `>` with this one.
    near = np.float32(threshold)
    with np.errstate(over="ignore"):  # infinity follows the largest number
        return float(np.nextafter(near, np.float32(inf))) if near < inf else nan


def _rank(most: int, count: int) -> int:
    """The score of a sample that enough boxes should reach; -1 where a sample is not worth it."""
    enough = _ASKED * most + _FEW
    return enough // SAMPLED if count > 2 * enough else -1


def emit(k: KernelBuilder, config: ClassesConfig) -> None:
    """The code of one phase."""
    if config.phase == "select":
        emit_select(k, config)
    else:
        (emit_places if config.phase == "places" else emit_rows)(k)


def cost(call: CpuCall) -> float:
    """Microseconds: every box that takes part, perhaps a tenth, against a share of the others."""
    images, classes, count = call.inputs[1].shape
    part = count / 10
    flops = images * classes * (count + 12.0 * part * (part / most_strips(count) + 32))
    traffic = 4.0 * images * classes * count + 24.0 * call.outputs[0].shape[0]
    return machine(call.target).roofline(flops, traffic, call.threads, 0.5)


NMS_CLASSES = CpuKernel(
    "nms.classes", (NonMaxSuppression,), ClassesConfig, supports, single_variant(launch, cost), emit
)
