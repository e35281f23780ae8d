"""What operators over boxes of images ask of operands, and how they report bad boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType
from saccade.opdefs._rules import differ, expect, expect_float, expect_rank, unify

__all__ = ["count_bad", "expect_regions", "with_report"]

_REPORT = TensorType(DType.I32, (1,))


def expect_regions(
    op: Op, images: TensorType, boxes: Sequence[TensorType], name: str = "x"
) -> None:
    """Raise unless these are images (or what is like them for each box) and boxes.

    Args:
        op: Which asks.
        images: Rank 4, floating point.
        boxes: [K, 5] of (image, x1, y1, x2, y2), or [K, 4] and the images' integers [K].
        name: What errors call `images`.
    """
    expect_rank(op, images, 4, name)
    expect_float(op, images, name)
    _expect_boxes(op, boxes)


def with_report(*results: TensorType, report: bool) -> tuple[TensorType, ...]:
    """Types of results, and that of `count_bad` behind them where it is wanted."""
    return (*results, _REPORT) if report else results


def count_bad(bad: int, *, report: bool) -> tuple[Array, ...]:
    """int32 [1]: how many boxes name an image that is not there; nothing where it is not asked."""
    return (np.array([bad], np.int32),) if report else ()


def _expect_boxes(op: Op, operands: Sequence[TensorType]) -> None:
    """Raise unless these are boxes: [K, 5], or [K, 4] and integers [K]."""
    expect(op, len(operands) in (1, 2), f"takes boxes, and perhaps images: {len(operands)}")
    boxes = operands[0]
    expect_rank(op, boxes, 2, "boxes")
    expect_float(op, boxes, "boxes")
    wide = 6 - len(operands)
    fits = not differ(boxes.shape[1], wide)
    expect(op, fits, f"boxes of {boxes.shape[1]} numbers, not {wide}")
    if len(operands) == 2:
        expect_rank(op, operands[1], 1, "images")
        integer = operands[1].dtype in (DType.I64, DType.I32)
        expect(op, integer, f"images are {operands[1].dtype.value}")
        unify(op, boxes.shape[0], operands[1].shape[0], "the number of boxes")
