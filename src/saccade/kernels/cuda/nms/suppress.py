"""Greedy suppression of boxes in strips of their order, wholly on the device.

    members, gather (`NonMaxSuppression` of many) which boxes take part, in a list
    order           each box's place, by counting those that come before it
    compare         for each strip: which of its boxes would drop which other one, as bits, and
                    which boxes from there on are dropped by those of the strip before that stay
    resolve         for each strip, in one program: which of its boxes stay
    rows            (`NonMaxSuppression`) what stays of all problems, one behind the other

Boxes that come by group are compared with what stays of their own group alone.

So launches go with count / STRIP, but for what no box reaches they end at once; memory goes with
count, not with its square. Where there may be many boxes, a strip is resolved in parts: launches
that no box reaches take time as well. Floor: two launches a strip, and count² / 2 comparisons of
boxes (about 20 operations each) if all stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import NamedTuple

import numpy as np

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, element_of
from saccade.kernels.cuda.machine import LAUNCH, operation_micros
from saccade.kernels.cuda.nms.suppress_config import (
    KINDS,
    LISTS,
    ORDER_BLOCK,
    ORDERED,
    ROWS,
    SuppressConfig,
    block_of,
    entry_of,
)
from saccade.opdefs import Nms, NonMaxSuppression

__all__ = ["NMS_SUPPRESS"]

_LATER = 256  # programs that go on with a group behind its strip
_PROGRAMS = 2112  # that compare boxes of all problems: of more blocks each has several in turn
_FILLERS, _FILLED = 132, 256  # programs that write zeros behind what stays, and rows of each
_LISTED = 2048  # boxes of a problem from which on those that take part are listed first
_LIST_BLOCK = 512  # boxes of a program that lists them
_COMPARISON = 20  # operations for a pair of boxes (an estimate)
_RESOLVE = 6.0  # microseconds of the longest strip, if boxes reach it (an estimate)
_PARTS = (1024, 512, 256, 128, 64)  # boxes that one program resolves at a time
_SHORT, _LONGER = 4, 8  # strips of one part, and parts of those behind them where few boxes come
_PAIR_BYTES = 64 << 20  # of all problems' pairs, in strips of parts


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many problems and boxes there are, and how many boxes of a problem may stay."""

    problems: int
    count: int
    most: int

    @classmethod
    def of(cls, call: CudaCall) -> _Sizes:
        boxes, scores = call.inputs[:2]
        if isinstance(call.op, Nms):
            return cls(1, boxes.shape[0], boxes.shape[0])
        images, classes, count = scores.shape
        return cls(images * classes, count, min(call.op.most, count))


def _supports(call: CudaCall) -> str | None:
    op: Nms | NonMaxSuppression = call.op
    if any(view.dtype not in (*FLOATS, DType.F64) for view in call.inputs[:2]):
        return "element types"
    if not isfinite(op.iou_threshold):
        return f"a threshold of {op.iou_threshold}"
    sizes = _Sizes.of(call)
    views = (*call.inputs, *call.outputs)
    strips = sizes.problems * _PARTS[0] ** 2 // 32
    if max(*(view.extent for view in views), 5 * sizes.problems * sizes.count, strips) >= 1 << 31:
        return "2^31 elements or more"
    return None


def _variants(call: CudaCall) -> Iterator[Variant]:
    sizes = _Sizes.of(call)
    least = next((s for s in reversed(_PARTS) if s >= sizes.count), _PARTS[0])
    found = [_even(sizes, part) for part in _PARTS if least >= part >= least // 4]
    if _listed(call, sizes) and sizes.problems * (_LONGER * least) ** 2 // 8 <= _PAIR_BYTES:
        found = [_growing(sizes, least)]
    for micros, strips in sorted((_micros(call, sizes, strips), strips) for strips in found):
        yield Variant(micros, partial(_launches, call, sizes, strips))


def _listed(call: CudaCall, sizes: _Sizes) -> bool:
    """Whether boxes may take part or not, and are worth a list of those that do."""
    return isinstance(call.op, NonMaxSuppression) and sizes.count >= _LISTED


class _Strip(NamedTuple):
    """Boxes that are resolved together.

    Attributes:
        first: The first of them.
        size: How many there are at most.
        part: As many of them are resolved at a time.
    """

    first: int
    size: int
    part: int


_Strips = tuple[_Strip, ...]


def _even(sizes: _Sizes, part: int) -> _Strips:
    return tuple(_Strip(first, part, part) for first in range(0, max(1, sizes.count), part))


def _growing(sizes: _Sizes, part: int) -> _Strips:
    """Longer strips behind the first ones: boxes seldom reach them, and each has two launches.

    Pairs within a strip are compared whether or not a box is dropped by one before it.
    """
    strips: list[_Strip] = []
    first = 0
    while first < sizes.count:
        size = part if len(strips) < _SHORT else _LONGER * part
        strips.append(_Strip(first, size, part))
        first += size
    return tuple(strips)


def _micros(call: CudaCall, sizes: _Sizes, strips: _Strips) -> float:
    """With every box taking part, and half of the pairs looked at."""
    pairs = sizes.problems * sizes.count * (sizes.count + strips[0].size) / 2
    busy = operation_micros(call, pairs * _COMPARISON)
    launches = 1 + 2 * len(strips) + 2 * _listed(call, sizes)
    return LAUNCH * launches + busy + _RESOLVE * sum(one.size for one in strips) / _PARTS[0]


def _launches(call: CudaCall, sizes: _Sizes, strips: _Strips) -> tuple[Launch, ...]:
    temps = _temps(call, sizes, strips)
    launches = _ordered_boxes(call, sizes, temps)
    for number in range(len(strips)):
        launches.append(_compare(call, sizes, temps, strips, number))
        launches.append(_resolve(call, sizes, temps, strips, number))
    if isinstance(call.op, NonMaxSuppression):
        launches.append(_rows(call, sizes, temps, len(strips)))
    return tuple(launches)


def _double(call: CudaCall) -> bool:
    return isinstance(call.op, Nms) and call.inputs[0].dtype is DType.F64


def _grouped(call: CudaCall) -> bool:
    return isinstance(call.op, Nms) and len(call.inputs) > 2


def _ordered(call: CudaCall) -> bool:
    return isinstance(call.op, Nms) and call.op.ordered


def _temps(call: CudaCall, sizes: _Sizes, strips: _Strips) -> dict[str, Operand]:
    """The temporaries that `suppress_code` describes, and `stays`: boxes by problem."""
    wide, kinds = 8 if _double(call) else 4, 8 * _grouped(call)
    boxes = sizes.problems * sizes.count
    listed = boxes * _listed(call, sizes)
    strip = _room(strips)
    nbytes = {
        "ranked": 4 * boxes, "corners": 5 * wide * boxes, "kinds": kinds * boxes,
        "taken": 4 * sizes.problems, "counts": 4 * sizes.problems * (len(strips) + 1),
        "pairs": sizes.problems * strip * strip // 8, "kept": 5 * wide * sizes.problems * strip,
        "kept_kinds": kinds * sizes.problems * strip, "dropped": boxes,
        "stays": 4 * sizes.problems * sizes.most, "words": sizes.problems * strip // 8,
        "listed": 4 * listed, "levels": 4 * listed,
        "blocks": 4 * sizes.problems * -(-sizes.count // _LIST_BLOCK),
    }  # fmt: skip
    return {name: Temp(i, max(16, n)) for i, (name, n) in enumerate(nbytes.items())}


def _room(strips: _Strips) -> int:
    """Boxes of the longest one."""
    return max(one.size for one in strips)


def _lanes(sizes: _Sizes, blocks: int) -> int:
    """Programs of a problem for so many blocks of boxes."""
    return min(blocks, max(16, _PROGRAMS // max(1, sizes.problems)))


def _ordered_boxes(call: CudaCall, sizes: _Sizes, temps: dict[str, Operand]) -> list[Launch]:
    op: Nms | NonMaxSuppression = call.op
    boxes, scores = call.inputs[:2]
    classes = isinstance(op, NonMaxSuppression)
    config = SuppressConfig(
        "order", element_of(boxes), element_of(scores), _double(call), _grouped(call),
        _ordered(call), classes,
    )  # fmt: skip
    of_class = (0, 0)
    if isinstance(op, NonMaxSuppression):
        of_class = scores.strides[0], scores.strides[1]
        least = None if op.score_threshold is None else float(np.float32(op.score_threshold))
        config = replace(config, centred=op.centred, least=least)
    counted = {"count": sizes.count, "classes": scores.shape[1] if classes else 1}
    of_box = {
        "box_image": boxes.strides[0] if classes else 0,
        "box_row": boxes.strides[-2], "box_step": boxes.strides[-1],
    }  # fmt: skip
    of_score = {
        "score_image": of_class[0], "score_class": of_class[1], "score_row": scores.strides[-1],
    }  # fmt: skip
    parts = -(-sizes.count // ORDER_BLOCK)
    if _listed(call, sizes):
        lists, lanes = {name: temps[name] for name in LISTS}, _lanes(sizes, parts)
        blocks = sizes.problems * -(-sizes.count // _LIST_BLOCK)
        config = replace(config, classes=False)  # of `NonMaxSuppression` in any case
        chosen = replace(config, boxes="fp32", double=False, centred=False, block=_LIST_BLOCK)
        found: dict[str, Operand] = {"scores": In(1), "blocks": temps["blocks"]}
        ordered = {name: temps[name] for name in ("ranked", "corners", "taken")}
        return [
            Launch(replace(chosen, phase="members"), found, counted | of_score, blocks),
            Launch(
                replace(chosen, phase="gather"), found | lists | {"taken": temps["taken"]},
                counted | of_score, blocks,
            ),
            Launch(
                replace(config, phase="order_listed", scores="fp32", least=None),
                {"boxes": In(0)} | lists | ordered, counted | of_box | {"lanes": lanes},
                sizes.problems * lanes,
            ),
        ]  # fmt: skip
    groups = In(2 if _grouped(call) else 0)  # what is not grouped reads none
    operands: dict[str, Operand] = {"boxes": In(0), "scores": In(1), "groups": groups}
    operands |= {name: temps[name] for name in ORDERED}
    group_row = call.inputs[2].strides[0] if _grouped(call) else 0
    integers = counted | of_box | of_score | {"group_row": group_row}
    return [Launch(config, operands, integers, sizes.problems * parts)]


def _compare(
    call: CudaCall, sizes: _Sizes, temps: dict[str, Operand], strips: _Strips, number: int
) -> Launch:
    strip = strips[number]
    config = SuppressConfig(
        "compare", double=_double(call), grouped=_grouped(call), ordered=_ordered(call),
        threshold=_threshold(call), strip=strip.size, room=_room(strips),
    )  # fmt: skip
    inner = max(1, strip.size // ROWS) * (strip.size // 32)
    later = -(-(sizes.count - strip.first) // block_of(config)[0]) if number else 0
    later = min(later, _LATER) if config.ordered else later
    lanes = _lanes(sizes, inner + later)
    integers = _of_strip(sizes, strips, number) | {"lanes": lanes}
    operands = {name: temps[name] for name in KINDS if name != "ranked"}
    return Launch(config, operands, integers, sizes.problems * lanes if sizes.count else 0)


def _of_strip(sizes: _Sizes, strips: _Strips, number: int) -> dict[str, int]:
    return {
        "count": sizes.count, "strip": number, "strips": len(strips),
        "first": strips[number].first, "most": sizes.most,
    }  # fmt: skip


def _resolve(
    call: CudaCall, sizes: _Sizes, temps: dict[str, Operand], strips: _Strips, number: int
) -> Launch:
    classes = isinstance(call.op, NonMaxSuppression)
    config = SuppressConfig(
        "resolve", double=_double(call), grouped=_grouped(call), classes=classes,
        strip=strips[number].size, part=strips[number].part, room=_room(strips),
    )  # fmt: skip
    step = 1 if classes else call.outputs[0].strides[0]
    integers = _of_strip(sizes, strips, number) | {"pitch": sizes.most, "step": step}
    operands = {name: temps[name] for name in (*KINDS, "words")}
    operands["selected"] = temps["stays"] if classes else Out(0)
    return Launch(config, operands, integers, sizes.problems)


def _rows(call: CudaCall, sizes: _Sizes, temps: dict[str, Operand], strips: int) -> Launch:
    selected = call.outputs[0]
    # What is not given is zeros, of all rows that there could be.
    programs = max(1, sizes.problems, min(_FILLERS, -(-selected.shape[0] // _FILLED)))
    integers = {
        "problems": sizes.problems, "classes": max(1, call.inputs[1].shape[1]), "strips": strips,
        "most": sizes.most, "capacity": selected.shape[0], "programs": programs,
        "y_row": selected.strides[0], "y_step": selected.strides[1],
    }  # fmt: skip
    operands = {
        "counts": temps["counts"], "stays": temps["stays"], "selected": Out(0), "number": Out(1),
    }  # fmt: skip
    return Launch(SuppressConfig("rows"), operands, integers, programs)


def _threshold(call: CudaCall) -> float:
    """A float32 exceeds the threshold in float64 if it exceeds the next float32 that does not."""
    exact = float(call.op.iou_threshold)
    near = np.float32(exact)
    if _double(call):
        return exact
    return float(np.nextafter(near, np.float32(-np.inf)) if float(near) > exact else near)


NMS_SUPPRESS = CudaKernel(
    "nms.suppress", (Nms, NonMaxSuppression), SuppressConfig, _supports, _variants, entry_of
)
