"""Greedy non-maximum suppression, exact to the last bit of the definition.

Two phases, of one chunk each: an order by falling score (`score_order`), and the boxes one after
the other against those that stay so far (`greedy_suppression`). With groups, another phase between
them lays the boxes of a group side by side, so that each group is a suppression of its own and no
number of a group ever meets a coordinate. Any float types and any strides of boxes and scores;
groups are int64.

One thread does it all: what a box is compared with depends on what became of those before it.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Scratch, Temp
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.nms.box_iou import pair_integers
from saccade.kernels.cpu.nms.box_strips import strip_integers
from saccade.kernels.cpu.nms.config import (
    DIGITS,
    FIELDS,
    RADIX,
    RECORD,
    NmsConfig,
    most_strips,
    strip_capacity,
)
from saccade.kernels.cpu.nms.greedy_suppression import emit_greedy
from saccade.kernels.cpu.nms.score_order import emit_order
from saccade.kernels.cpu.refusals import refuse_types
from saccade.opdefs.nms import Nms

__all__ = ["NMS"]

_ORDER, _RANKS, _CLASSES, _KEYS, _ITEMS, _STAYS, _RECORDS, _VECTORS, _FIRSTS, _FILLED, _PLACES = (
    range(11)
)


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    refused = refuse_types(call.inputs[:2], floats.FLOATS)
    if refused is not None:
        return refused
    if call.inputs[2:] and call.inputs[2].dtype is not DType.I64:
        return f"groups of type {call.inputs[2].dtype.value}"
    if call.op.ordered:
        return "boxes by group"
    if call.outputs[0].strides != (1,):
        return "the result is not contiguous"
    return None


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """Orders, then suppression."""
    scores, groups = call.inputs[1], call.inputs[2:]
    order = _sort("scores", scores.dtype.value, call.inputs[1].shape[0], scores.strides[0])
    # Stable: within a group the order by scores stays.
    between = tuple(
        _sort("groups", "int64", groups[0].shape[0], groups[0].strides[0]) for _ in groups
    )
    return (order, *between, _greedy(call))


def _sort(phase: str, element: str, count: int, stride: int) -> Launch:
    words = 8 * count
    kind = element if phase == "groups" else floats.wide(element)
    operands: dict[str, Operand] = {"source": In(1), "order": Temp(_ORDER, words)}
    if phase == "groups":
        # By the order of scores: what it gives is the order within the classes.
        operands = {
            "source": In(2),
            "ranks": Temp(_ORDER, words),
            "classes": Temp(_CLASSES, words),
            "order": Temp(_RANKS, words),
        }
    operands |= {
        "keys": Temp(_KEYS, 2 * words),
        "items": Temp(_ITEMS, 2 * words),
        "histogram": Scratch(4 * DIGITS[kind] * RADIX),
    }
    return Launch(NmsConfig(phase, element), operands, {"size": count, "stride": stride}, 1)


def _greedy(call: CpuCall) -> Launch:
    boxes, grouped = call.inputs[0], len(call.inputs) > 2
    count, element = boxes.shape[0], floats.wide(boxes.dtype.value)
    # In bytes, the vector too.
    size, lanes = DType(element).itemsize, call.target.vector_bits // 8
    words, strips = 8 * count, 8 * most_strips(count)
    operands: dict[str, Operand] = {"boxes": In(0), "order": Temp(_ORDER, words)}
    if grouped:
        operands |= {
            "ranks": Temp(_RANKS, words),
            "classes": Temp(_CLASSES, words),
            "stays": Temp(_STAYS, count),
        }
    operands |= {
        "records": Temp(_RECORDS, RECORD * size * count),
        "vectors": Temp(_VECTORS, strip_capacity(count, lanes // size) * FIELDS * lanes),
        "firsts": Temp(_FIRSTS, strips),
        "filled": Temp(_FILLED, strips),
        "places": Temp(_PLACES, words),
        "kept": Out(0),
    }
    threshold = _threshold(call.op.iou_threshold, element)
    integers = {
        "size": count,
        "row": boxes.strides[0],
        "column": boxes.strides[1],
        **strip_integers(threshold, count),
        **pair_integers(threshold),
    }
    config = NmsConfig("greedy", boxes.dtype.value, grouped)
    return Launch(config, operands, integers, 1)


def _threshold(number: float, element: str) -> float:
    """The largest of the element's numbers up to this one: what exceeds it exceeds either."""
    if element == "float64" or not isfinite(number):
        return number
    with np.errstate(over="ignore"):
        near = np.float32(number)
    # As Python's floats: NumPy would round the number before it compares.
    return float(np.nextafter(near, np.float32(-np.inf)) if float(near) > number else near)


def emit(k: KernelBuilder, config: NmsConfig) -> None:
    """The code of one phase."""
    (emit_greedy if config.phase == "greedy" else emit_order)(k, config)


def cost(call: CpuCall) -> float:
    """Microseconds: every box against a share of the others, one vector at a time."""
    count = call.inputs[0].shape[0]
    flops = 12.0 * count * (count / most_strips(count) + 32)
    # One thread, whatever the team.
    return machine(call.target).roofline(flops, 64.0 * count, 1, 0.5)


NMS = CpuKernel("nms.direct", (Nms,), NmsConfig, supports, single_variant(launch, cost), emit)
