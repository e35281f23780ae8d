"""Views: dense storage, and what an index map makes of a stored value without moving it."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.ir import DType, IndexMap
from saccade.kernels.base import View

__all__ = ["channels_last", "moved", "row_major"]


def row_major(dtype: DType, shape: Sequence[int]) -> View:
    """Dense storage in logical order."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return View(dtype, tuple(shape), tuple(reversed(strides)))


def channels_last(dtype: DType, shape: Sequence[int]) -> View:
    """Dense storage of [N, C, H, W] with channels innermost."""
    n, c, h, w = shape
    return View(dtype, (n, c, h, w), (h * w * c, 1, w * c, c))


def moved(view: View, index_map: IndexMap) -> tuple[int, View] | None:
    """Offset and view of `index_map` applied to a stored value; None if elements have to move.

    The map's dims must be integers.
    """
    sizes: list[int] = []
    strides: list[int] = []
    for stride, group in zip(view.strides, index_map.in_factors, strict=True):
        inner = 1
        at = len(sizes)
        for size in reversed(group):
            assert isinstance(size, int)
            sizes.insert(at, size)
            strides.insert(at, stride * inner)
            inner *= size
    offset = 0
    shape: list[int] = []
    steps: list[int] = []
    for axis in index_map.out_axes:
        extent, step = 1, 0
        for factor in reversed(axis):
            assert isinstance(factor.size, int) and isinstance(factor.start, int)
            source = 0 if factor.source is None else strides[factor.source]
            offset += factor.start * source
            if factor.size == 1:
                continue
            own = source * factor.step
            if own < 0:
                return None  # a flip is copied: storage never runs backwards
            if extent == 1:
                step = own
            elif own != step * extent:
                return None
            extent *= factor.size
        shape.append(extent)
        steps.append(step)
    filled = _sensible_unit_strides(shape, steps)
    return offset, View(view.dtype, tuple(shape), filled)


def _sensible_unit_strides(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Axes of one element get the stride that a dense neighbour implies, so that views compare."""
    filled = list(steps)
    inner = 1
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] == 1:
            filled[i] = inner
        inner = max(inner, abs(filled[i]) * shape[i])
    return tuple(filled)
