"""Suppression of boxes: ties, thresholds that pairs meet exactly, groups, classes, no boxes."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    F64,
    I64,
    SPECIAL,
    Case,
    CaseStorage,
    CornerBoxes,
    Operand,
    Values,
    Whole,
)
from saccade.opdefs import Nms, NonMaxSuppression

__all__ = ["CASES"]

# Few different scores, so that many are equal.
_TIES, _GRID, _ANY = Whole(0, 8, 0.125), CornerBoxes(), Whole(0, 6)


def _case(
    name: str,
    count: int,
    threshold: float = 0.5,
    *,
    dtype: DType = F32,
    scores: DType | None = None,
    corners: Values = _GRID,
    groups: int = 0,
) -> Case:
    operands = [
        Operand((count, 4), dtype, values=corners),
        Operand((count,), scores or dtype, values=_TIES),
    ]
    if groups:
        # Not to be told apart in 32 bits, and one of them negative.
        operands.append(Operand((count,), I64, values=Whole(-1, groups - 2, 2.0**40)))
    return Case(name, Nms(threshold), tuple(operands), terms=0)


def _classes(
    name: str,
    images: int,
    classes: int,
    count: int,
    *,
    most: int = 2**31 - 1,
    iou: float = 0.5,
    score: float | None = None,
    centred: bool = False,
    corners: Values = _ANY,
    dtype: DType = F32,
) -> Case:
    rows = images * classes * min(most, count)
    op = NonMaxSuppression(rows, most, iou, score, centred)
    boxes = Operand((images, count, 4), dtype, values=corners)
    return Case(name, op, (boxes, Operand((images, classes, count), dtype, values=_TIES)), terms=0)


_APART = (
    Operand((200, 4), storage=CaseStorage(strides=(1, 203)), values=_GRID),
    Operand((200,), storage=CaseStorage(strides=(3,)), values=_TIES),
)

CASES = (
    _case("none", 0),
    _case("one", 1),
    _case("tied", 150),
    _case("met-exactly", 300, 1 / 3),
    _case("all-that-touch", 90, 0.0),
    _case("nothing-overlaps-so-much", 90, 1.0),
    _case("below-zero", 60, -0.25),
    _case("many-strips", 700, 0.4, corners=CornerBoxes(1000, 100)),
    _case("no-boxes", 120, 0.3, corners=SPECIAL),
    _case("f64", 150, dtype=F64),
    _case("f16", 90, dtype=F16),
    _case("bf16", 90, dtype=BF16),
    _case("scores-of-another-type", 90, dtype=F16, scores=F64),
    _case("groups", 300, corners=CornerBoxes(9, 6), groups=6),
    Case("any-strides", Nms(0.5), _APART, terms=0),
    _classes("classes", 2, 3, 33, most=12, iou=0.25, score=0.25),
    _classes("classes-centred", 2, 3, 17, most=12, score=0.25, centred=True),
    _classes("classes-one-box", 1, 1, 1),
    _classes("classes-the-best", 1, 2, 150, most=1),
    _classes("classes-many-strips", 1, 1, 500, iou=0.4, corners=CornerBoxes(1000, 100)),
    _classes("classes-of-many", 1, 1, 2500, score=0.25, iou=0.4, corners=CornerBoxes(4000, 100)),
    _classes("classes-of-many-that-stay", 1, 2, 2100, most=900, corners=CornerBoxes(9000, 60)),
    _classes("classes-no-boxes", 2, 2, 60, most=60, iou=0.25, corners=SPECIAL),
    _classes("classes-f16", 2, 2, 70, most=20, score=0.5, dtype=F16),
    _classes("classes-no-images", 0, 3, 5),
    _classes("classes-none", 2, 0, 5),
    _classes("classes-of-nothing", 2, 3, 0),
)
