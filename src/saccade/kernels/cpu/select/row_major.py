"""What kernels that count and copy elements can take: row-major storage, and one element type."""

from __future__ import annotations

from collections.abc import Iterable

from saccade.kernels.base import View

__all__ = ["refuse_gaps", "refuse_other_types"]


def refuse_gaps(views: Iterable[View]) -> str | None:
    """Views whose elements do not follow each other in the order of their indices."""
    for view in views:
        step = 1
        for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
            if size != 1 and stride != step and view.size:
                return "not row-major, or with gaps"
            step *= size
    return None


def refuse_other_types(views: Iterable[View]) -> str | None:
    """Views of different element types: what is only moved is not converted."""
    kinds = {view.dtype for view in views}
    return "elements of different types" if len(kinds) > 1 else None
