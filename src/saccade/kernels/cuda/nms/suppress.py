"""Greedy suppression of boxes in strips of their order, wholly on the device.

    order           each box's place, by counting those that come before it
    compare         for each strip: which of its boxes would drop which other one, as bits, and
                    which boxes from there on are dropped by those of the strip before that stay
    resolve         for each strip, in one program: which of its boxes stay
    rows            (`NonMaxSuppression`) what stays of all problems, one behind the other

Boxes that come by group are compared with what stays of their own group alone.

So launches go with count / STRIP, but for what no box reaches they end at once; memory goes with
count, not with its square. Floor: two launches a strip, and count² / 2 comparisons of boxes (about
20 operations each) if all stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite

import numpy as np

from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Temp, Variant
from saccade.kernels.cuda.base import FLOATS, CudaCall, CudaKernel, Entry, element_of
from saccade.kernels.cuda.machine import LAUNCH, operation_micros
from saccade.opdefs import Nms, NonMaxSuppression

__all__ = ["NMS_SUPPRESS", "SuppressConfig"]

# Boxes of a program and those that it compares them with at a time: of overlaps, of scores.
_ROWS, _OTHERS = 128, 32
_ORDER_BLOCK, _ORDER_OTHERS = 32, 128
_LATER = 256  # programs that go on with a group behind its strip
_COMPARISON = 20  # operations for a pair of boxes (an estimate)
_RESOLVE = 6.0  # microseconds of the longest strip, if boxes reach it (an estimate)
_STRIPS = (1024, 512, 256, 128, 64)  # boxes that one program resolves
_RESOLVE_WARPS = {1024: 16, 512: 8, 256: 4, 128: 2, 64: 1}
_ORDERED = ("ranked", "corners", "kinds", "taken", "dropped")  # what `order` writes
_KINDS = ("ranked", "corners", "kinds", "taken", "counts", "pairs", "kept", "kept_kinds", "dropped")


@dataclass(frozen=True)
class SuppressConfig:
    """What the code of one phase depends on; what a phase does not, has its default.

    Attributes:
        phase: The Triton function.
        boxes, scores: Elements that they are stored in.
        double: Whether boxes are compared in float64.
        grouped: Whether boxes of different groups leave each other alone.
        ordered: Whether boxes come by group and then by falling score.
        classes: Whether the operator is `NonMaxSuppression`.
        centred: See there.
        least: What scores have to exceed; None for no threshold.
        threshold: What ratios have to exceed, as the arithmetic's type has it.
        strip: Boxes of a strip.
    """

    phase: str
    boxes: str = "fp32"
    scores: str = "fp32"
    double: bool = False
    grouped: bool = False
    ordered: bool = False
    classes: bool = False
    centred: bool = False
    least: float | None = None
    threshold: float = 0.0
    strip: int = 0


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
    strips = sizes.problems * _STRIPS[0] ** 2 // 32
    if max(*(view.extent for view in views), 5 * sizes.problems * sizes.count, strips) >= 1 << 31:
        return "2^31 elements or more"
    return None


def _variants(call: CudaCall) -> Iterator[Variant]:
    sizes = _Sizes.of(call)
    least = next((s for s in reversed(_STRIPS) if s >= sizes.count), _STRIPS[0])
    found = [
        (_micros(call, sizes, strip), strip) for strip in _STRIPS if least >= strip >= least // 4
    ]
    for micros, strip in sorted(found):
        yield Variant(micros, partial(_launches, call, sizes, strip))


def _micros(call: CudaCall, sizes: _Sizes, strip: int) -> float:
    """With every box taking part, and half of the pairs looked at."""
    strips = -(-sizes.count // strip)
    pairs = sizes.problems * sizes.count * (sizes.count + strip) / 2
    busy = operation_micros(call, pairs * _COMPARISON)
    return LAUNCH * (1 + 2 * strips) + busy + strips * _RESOLVE * strip / _STRIPS[0]


def _launches(call: CudaCall, sizes: _Sizes, strip: int) -> tuple[Launch, ...]:
    strips = max(1, -(-sizes.count // strip))
    temps = _temps(call, sizes, strip, strips)
    launches = [_order(call, sizes, temps)]
    for number in range(strips):
        launches.append(_compare(call, sizes, temps, strip, (number, strips)))
        launches.append(_resolve(call, sizes, temps, strip, (number, strips)))
    if isinstance(call.op, NonMaxSuppression):
        launches.append(_rows(call, sizes, temps, strips))
    return tuple(launches)


def _double(call: CudaCall) -> bool:
    return isinstance(call.op, Nms) and call.inputs[0].dtype is DType.F64


def _grouped(call: CudaCall) -> bool:
    return isinstance(call.op, Nms) and len(call.inputs) > 2


def _ordered(call: CudaCall) -> bool:
    return isinstance(call.op, Nms) and call.op.ordered


def _temps(call: CudaCall, sizes: _Sizes, strip: int, strips: int) -> dict[str, Operand]:
    """The temporaries that `suppress_code` describes, and `stays`: boxes by problem."""
    wide, kinds = 8 if _double(call) else 4, 8 * _grouped(call)
    boxes = sizes.problems * sizes.count
    nbytes = {
        "ranked": 4 * boxes, "corners": 5 * wide * boxes, "kinds": kinds * boxes,
        "taken": 4 * sizes.problems, "counts": 4 * sizes.problems * (strips + 1),
        "pairs": sizes.problems * strip * strip // 8, "kept": 5 * wide * sizes.problems * strip,
        "kept_kinds": kinds * sizes.problems * strip, "dropped": boxes,
        "stays": 4 * sizes.problems * sizes.most,
    }  # fmt: skip
    return {name: Temp(i, max(16, n)) for i, (name, n) in enumerate(nbytes.items())}


def _order(call: CudaCall, sizes: _Sizes, temps: dict[str, Operand]) -> Launch:
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
    integers = {
        "count": sizes.count, "classes": scores.shape[1] if classes else 1,
        "box_image": boxes.strides[0] if classes else 0,
        "box_row": boxes.strides[-2], "box_step": boxes.strides[-1],
        "score_image": of_class[0], "score_class": of_class[1], "score_row": scores.strides[-1],
        "group_row": call.inputs[2].strides[0] if _grouped(call) else 0,
    }  # fmt: skip
    groups = In(2 if _grouped(call) else 0)  # what is not grouped reads none
    operands: dict[str, Operand] = {"boxes": In(0), "scores": In(1), "groups": groups}
    operands |= {name: temps[name] for name in _ORDERED}
    programs = sizes.problems * -(-sizes.count // _ORDER_BLOCK)
    return Launch(config, operands, integers, programs)


def _compare(
    call: CudaCall, sizes: _Sizes, temps: dict[str, Operand], strip: int, number: tuple[int, int]
) -> Launch:
    config = SuppressConfig(
        "compare", double=_double(call), grouped=_grouped(call), ordered=_ordered(call),
        threshold=_threshold(call), strip=strip,
    )  # fmt: skip
    integers = {"count": sizes.count, "strip": number[0], "strips": number[1], "most": sizes.most}
    operands = {name: temps[name] for name in _KINDS if name != "ranked"}
    inner = max(1, strip // _ROWS) * (strip // 32)
    later = -(-(sizes.count - number[0] * strip) // _block(config)[0]) if number[0] else 0
    later = min(later, _LATER) if config.ordered else later
    programs = sizes.problems * (inner + later) if sizes.count else 0
    return Launch(config, operands, integers, programs)


def _block(config: SuppressConfig) -> tuple[int, int]:
    """Boxes of a program that drops, and of those that stay at a time.

    In order few programs have anything to do, and few steps are what counts.
    """
    if config.ordered:
        return (8, 128) if config.double else (16, 256)
    return (32 if config.double else 64), _OTHERS


def _resolve(
    call: CudaCall, sizes: _Sizes, temps: dict[str, Operand], strip: int, number: tuple[int, int]
) -> Launch:
    classes = isinstance(call.op, NonMaxSuppression)
    config = SuppressConfig(
        "resolve", double=_double(call), grouped=_grouped(call), classes=classes, strip=strip
    )
    integers = {
        "count": sizes.count, "strip": number[0], "strips": number[1], "most": sizes.most,
        "pitch": sizes.most, "step": 1 if classes else call.outputs[0].strides[0],
    }  # fmt: skip
    operands = {name: temps[name] for name in _KINDS}
    operands["selected"] = temps["stays"] if classes else Out(0)
    return Launch(config, operands, integers, sizes.problems)


def _rows(call: CudaCall, sizes: _Sizes, temps: dict[str, Operand], strips: int) -> Launch:
    selected = call.outputs[0]
    programs = max(1, sizes.problems)
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


def _entry(config: SuppressConfig) -> Entry:
    pointers, integers, constants, warps = _PHASES[config.phase](config)
    core = f"nms.suppress_code:{config.phase}"
    return Entry(core, pointers, integers, constants, warps=warps, contract=False)


_Code = tuple[
    tuple[tuple[str, str], ...], tuple[str, ...], dict[str, int | float | bool | str], int
]


def _typed(config: SuppressConfig, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Temporaries with their elements."""
    elements = {"corners": "fp64" if config.double else "fp32", "dropped": "i8"}
    elements |= {"kept": elements["corners"], "kinds": "i64", "kept_kinds": "i64"}
    return tuple((name, elements.get(name, "i32")) for name in names)


def _order_code(config: SuppressConfig) -> _Code:
    stored = (("boxes", config.boxes), ("scores", config.scores), ("groups", "i64"))
    pointers = (*stored, *_typed(config, _ORDERED))
    integers = (
        "count", "classes", "box_image", "box_row", "box_step", "score_image", "score_class",
        "score_row", "group_row",
    )  # fmt: skip
    constants: dict[str, int | float | bool | str] = {
        "BLOCK": _ORDER_BLOCK, "OTHERS": _ORDER_OTHERS, "CLASSES": config.classes,
        "CENTRED": config.centred, "DOUBLE": config.double, "BOUNDED": config.least is not None,
        "DOUBLE_SCORES": config.scores == "fp64" and not config.classes,
        "GROUPED": config.grouped, "ORDERED": config.ordered, "LEAST": config.least or 0.0,
    }  # fmt: skip
    return pointers, integers, constants, 4


def _compare_code(config: SuppressConfig) -> _Code:
    pointers = _typed(config, tuple(name for name in _KINDS if name != "ranked"))
    constants: dict[str, int | float | bool | str] = {
        "STRIP": config.strip, "ROWS": min(config.strip, _ROWS), "BLOCK": _block(config)[0],
        "OTHERS": _block(config)[1], "LATER": _LATER, "THRESHOLD": config.threshold,
        "DOUBLE": config.double, "GROUPED": config.grouped, "ORDERED": config.ordered,
    }  # fmt: skip
    return pointers, ("count", "strip", "strips", "most"), constants, 4


def _resolve_code(config: SuppressConfig) -> _Code:
    selected = "i32" if config.classes else "i64"
    pointers = (*_typed(config, _KINDS), ("selected", selected))
    constants: dict[str, int | float | bool | str] = {
        "STRIP": config.strip, "CLASSES": config.classes, "GROUPED": config.grouped,
    }  # fmt: skip
    integers = ("count", "strip", "strips", "most", "pitch", "step")
    return pointers, integers, constants, _RESOLVE_WARPS[config.strip]


def _rows_code(_config: SuppressConfig) -> _Code:
    pointers = (("counts", "i32"), ("stays", "i32"), ("selected", "i64"), ("number", "i64"))
    integers = (
        "problems", "classes", "strips", "most", "capacity", "programs", "y_row", "y_step",
    )  # fmt: skip
    return pointers, integers, {"BLOCK": 128}, 4


_PHASES = {
    "order": _order_code, "compare": _compare_code, "resolve": _resolve_code, "rows": _rows_code,
}  # fmt: skip

NMS_SUPPRESS = CudaKernel(
    "nms.suppress", (Nms, NonMaxSuppression), SuppressConfig, _supports, _variants, _entry
)
