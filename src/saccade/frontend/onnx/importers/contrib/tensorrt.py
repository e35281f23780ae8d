"""TensorRT's suppression, which exporters put behind detectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers.contrib._forms import only
from saccade.frontend.onnx.importers.regions import most_rows
from saccade.frontend.onnx.moves import broadcast_map, move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import DType, Expr, Value
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import (
    ArgReduce,
    Concat,
    GatherNd,
    NonMaxSuppression,
    Pad,
    Pointwise,
    Reduce,
    ScatterRows,
    TopK,
)

__all__ = ["import_efficient_nms"]

_MOST = 1 << 24
"""Boxes that may stay, before the best ones are chosen."""
_NONE = -np.inf
"""The score of what does not stay."""


def import_efficient_nms(call: OnnxNode) -> Sequence[Operand]:
    """ONNX EfficientNMS_TRT 1, TensorRT's: of all boxes, where TensorRT takes the 4096 best.

    Boxes [B, N, 4] as corners or as centres and sizes, scores [B, N, classes]. Results: how many
    boxes stay, int32 [B, 1], their corners, scores and classes by falling score, zeros behind them.
    """
    only(
        call, "background_class", "box_coding", "class_agnostic", "iou_threshold",
        "max_output_boxes", "max_output_boxes_per_class", "plugin_namespace", "plugin_version",
        "score_activation", "score_threshold", inputs=2,
    )  # fmt: skip
    boxes, scores = call.value(0), call.value(1)
    if boxes.rank == 4 and boxes.shape[2] == 1:
        boxes = reshaped(call, boxes, (*boxes.shape[:2], boxes.shape[3]))
    if boxes.rank != 3:
        raise Refusal("boxes of each class")
    if scores.rank != 3 or boxes.shape[2] != 4:
        raise call.broken(f"boxes {list(boxes.shape)}, scores {list(scores.shape)}")
    if not all(isinstance(size, int) for size in scores.shape):
        raise Refusal("a number of images, boxes or classes that varies")
    boxes, scores, classes = _prepared(call, boxes, scores)
    kept = _kept(call, boxes, scores)
    return _best(call, boxes, kept, classes)


def _prepared(call: OnnxNode, boxes: Value, scores: Value) -> tuple[Value, Value, Value | None]:
    """Corners, scores [B, classes, N] in float32, and whose class they are if all are ranked."""
    boxes, scores = cast_to(call, boxes, DType.F32), cast_to(call, scores, DType.F32)
    if call.flag("box_coding"):
        middle, size = (
            move(call, boxes, slice_map(boxes.shape, {2: (start, 2, 1)})) for start in (0, 2)
        )
        boxes = call.emit(
            Concat(2), *(_corner(call, middle, size, sign) for sign in ("sub", "add"))
        )
    if call.flag("score_activation"):
        scores = pointwise(call, partial(apply, "sigmoid"), [scores])
    scores = move(call, scores, transpose_map(scores.shape, (0, 2, 1)))
    count, unwanted = scores.shape[1], call.integer("background_class", -1)
    if isinstance(count, int) and 0 <= unwanted < count:
        bound = np.where(np.arange(count) == unwanted, np.float32(_NONE), np.float32(np.inf))
        limit = call.build.constant(bound.reshape(1, -1, 1), "background")
        scores = pointwise(call, partial(apply, "min"), [scores, limit])
    if not call.flag("class_agnostic"):
        return boxes, scores, None
    if call.integer("max_output_boxes_per_class", -1) >= 0:
        raise Refusal("max_output_boxes_per_class where classes are ranked together")
    # A box's other classes have the best one's box, which drops them.
    classes = call.emit(ArgReduce("argmax", 1, keepdims=True), scores)
    return boxes, call.emit(Reduce("max", (1,)), scores), classes


def _corner(call: OnnxNode, middle: Value, size: Value, sign: str) -> Value:
    def make(m: Expr, s: Expr) -> Expr:
        return apply(sign, m, apply("mul", s, const(0.5)))

    return pointwise(call, make, [middle, size])


def _below(value: float) -> float:
    """The next float32: where TensorRT asks whether a number is reached, others ask for more."""
    return float(np.nextafter(np.float32(value), np.float32(-np.inf)))


def _kept(call: OnnxNode, boxes: Value, scores: Value) -> Value:
    """The scores [B, classes, N] of boxes that stay; what does not has none."""
    overlap = call.finite("iou_threshold", 0.5)
    if not 0 < overlap <= 1:
        raise Refusal(f"iou_threshold {overlap}")
    limit = call.integer("max_output_boxes_per_class", -1)
    most = limit if limit > 0 else _output_count(call)
    bound = most_rows(scores.shape, most)
    assert isinstance(bound, int), "of known sizes"
    if not 0 < bound <= _MOST:
        raise Refusal(f"{bound} boxes that may stay")
    # No size for the rest of the model: what stays is marked in place.
    op = NonMaxSuppression(
        bound, most, _below(overlap), _below(max(call.finite("score_threshold", 0.25), _LEAST))
    )
    selected, found = call.build.emit(op, [boxes, scores], call.name)
    places = call.build.constant(np.arange(bound, dtype=np.int64), "places")
    columns = [
        move(call, selected, slice_map(selected.shape, {1: (column, 1, 1)}, drop=(1,)))
        for column in range(3)
    ]
    _, classes, count = (int(size) for size in scores.shape if isinstance(size, int))
    image, group, box, place, number = map(arg, range(5))
    row = apply("add", apply("mul", image, const(classes)), group)
    row = apply("add", apply("mul", row, const(count)), box)
    true = apply("where", apply("less", place, number), row, const(-1))
    rows = call.emit(Pointwise(true, DType.I64), *columns, places, found)
    size = int(np.prod([size for size in scores.shape if isinstance(size, int)]))
    none, ones = (
        move(
            call,
            call.build.constant(np.asarray(value, np.float32), "mark"),
            broadcast_map((), (rows_of, 1)),
        )
        for value, rows_of in ((0, size), (1, bound))
    )
    marks = reshaped(call, call.emit(ScatterRows(), none, rows, ones), scores.shape)

    def make(m: Expr, s: Expr) -> Expr:
        return apply("where", apply("greater", m, const(0)), s, const(_NONE))

    return pointwise(call, make, [marks, scores], DType.F32)


_LEAST = -3.0e38
"""A threshold that no score stays below."""


def _output_count(call: OnnxNode) -> int:
    count = call.integer("max_output_boxes", 100)
    if count < 1:
        raise call.broken(f"max_output_boxes {count}")
    return count


def _best(call: OnnxNode, boxes: Value, scores: Value, classes: Value | None) -> Sequence[Operand]:
    """The results."""
    images, groups, count = (int(size) for size in scores.shape if isinstance(size, int))
    wanted = _output_count(call)
    flat = reshaped(call, scores, (images, groups * count))
    best = min(wanted, groups * count)
    values, places = call.build.emit(TopK(best, 1), [flat], call.name)
    box = pointwise(call, lambda e: apply("mod", e, const(count)), [places], DType.I64)
    where = reshaped(call, box, (images, best, 1))
    found = call.emit(GatherNd(1), boxes, where)
    if classes is None:
        group = pointwise(call, lambda e: apply("div", e, const(count)), [places], DType.I64)
    else:
        group = call.emit(GatherNd(1), reshaped(call, classes, (images, count)), where)
    there = pointwise(call, lambda e: apply("greater", e, const(_NONE)), [values], DType.BOOL)
    number = call.emit(Reduce("sum", (1,)), cast_to(call, there, DType.I32))

    def masked(x: Value, dtype: DType) -> Value:
        condition = reshaped(call, there, (images, best, 1)) if x.rank == 3 else there
        kept = pointwise(call, lambda t, e: apply("where", t, e, const(0)), [condition, x], dtype)
        behind = ((0, 0), (0, wanted - best), *(((0, 0),) if x.rank == 3 else ()))
        return call.emit(Pad(pads=behind), kept) if wanted > best else kept

    return [
        number,
        masked(found, call.value(0).dtype),
        masked(values, call.value(1).dtype),
        masked(group, DType.I32),
    ]
