"""Which operators run along whole axes, and how long such an axis may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from saccade.ir.dim import Dim
from saccade.ir.op import Op
from saccade.limits import Limits
from saccade.opdefs.conv import Conv2d, ConvTranspose2d
from saccade.opdefs.deform import DeformConv
from saccade.opdefs.pool import Pool2d
from saccade.opdefs.resample import Resample
from saccade.opdefs.resize import Resize
from saccade.opdefs.roi_align import RoiAlign
from saccade.opdefs.roi_pool import RoiPool

__all__ = ["ALONG", "too_long", "too_many"]

ALONG = (Conv2d, ConvTranspose2d, DeformConv, Pool2d, Resample, Resize, RoiAlign, RoiPool)
"""Operators that slide windows along the axes of their first operand, or sample it anew."""


def too_many(shape: Sequence[Dim], limits: Limits) -> str | None:
    """What is wrong with a shape that holds more elements than a value may have."""
    count = prod(d for d in shape if isinstance(d, int))
    if count <= limits.elements or not all(isinstance(d, int) for d in shape):
        return None
    return (
        f"the shape {list(shape)} holds {count} elements, more than {limits.elements} "
        "(Limits.elements)"
    )


def too_long(op: Op, shapes: Iterable[Sequence[Dim]], limits: Limits) -> str | None:
    """What is wrong with the shapes around an operator that slides windows, or resamples."""
    if not isinstance(op, ALONG):
        return None
    for shape in shapes:
        for size in shape[0 if isinstance(op, Resample | Resize) else 2 :]:
            if isinstance(size, int) and size > limits.extent:
                return (
                    f"an axis of {size} elements, more than {limits.extent} for {op.family} "
                    "(Limits.extent)"
                )
    return None
