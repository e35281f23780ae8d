"""Why kernels cannot take a call, where many of them say the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from saccade.ir import DType
from saccade.kernels.base import View

__all__ = ["refuse_gaps", "refuse_other_types", "refuse_repeats", "refuse_types"]


def refuse_types(views: Iterable[View], known: Collection[DType]) -> str | None:
    """The first element type that is not known; None if all are."""
    for view in views:
        if view.dtype not in known:
            return f"elements of type {view.dtype.value}"
    return None


def refuse_repeats(out: View) -> str | None:
    """A result of which several elements are one place in memory, so that writers would race."""
    if out.size and any(s == 0 and n > 1 for n, s in zip(out.shape, out.strides, strict=True)):
        return "the result repeats elements"
    return None


def refuse_gaps(views: Iterable[View]) -> str | None:
    """Views whose elements do not follow each other in the order of their indices."""
    return None if all(view.row_major for view in views) else "not row-major, or with gaps"


def refuse_other_types(views: Iterable[View]) -> str | None:
    """Views of different element types: what is only moved is not converted."""
    kinds = {view.dtype for view in views}
    return "elements of different types" if len(kinds) > 1 else None
