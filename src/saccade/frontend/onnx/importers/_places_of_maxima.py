"""Where the largest element of each window is: MaxPool's second result.

Every tap is a view of the padded operand, and the tap with the largest element is kept by a chain
of comparisons, which becomes one kernel. What is kept is a tap's distance from its window's first
one; where windows begin is a constant, so sizes have to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers._window import SpatialWindow
from saccade.frontend.onnx.moves import move, slice_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Array, DType, Expr, Value
from saccade.ir.expr import apply, const
from saccade.opdefs import Pad

__all__ = ["places_of_maxima"]

_MOST = 1 << 24
"""Distances that float32 holds exactly."""
_NEAREST = const(0)


def places_of_maxima(
    call: OnnxNode, x: Value, window: SpatialWindow, counts: Sequence[object], *, columns: bool
) -> Value:
    """Flat places in x of the first largest element of each window.

    Args:
        call: The node.
        x: [N, C, spatial…], floating point, of known spatial sizes.
        window: Its padding is explicit.
        counts: Windows along each spatial axis.
        columns: Whether places count along the first spatial axis first.

    Returns:
        int64 [N, C, windows…].
    """
    sizes = [size for size in x.shape if isinstance(size, int)]
    windows = [count for count in counts if isinstance(count, int)]
    pads = [side for side in window.padding if isinstance(side, int)]
    if len(sizes) < x.rank or len(windows) < x.rank - 2 or len(pads) < 2 * (x.rank - 2):
        raise Refusal("places of maxima in an image of sizes that vary")
    if not x.dtype.is_float:
        raise Refusal(f"places of maxima among {x.dtype.value} elements")
    steps = _steps(sizes[2:], columns=columns)
    if prod(sizes[2:]) > _MOST:
        raise Refusal(f"places of maxima among {prod(sizes[2:])} elements of an image")
    padded = call.emit(Pad(pads=_pads(sizes, window, windows, pads), value=-np.inf), x)
    kept = _distances(call, padded, window, windows, steps)
    first = _first_places(sizes, window, windows, pads, steps)

    def place(distance: Expr, start: Expr) -> Expr:
        return apply("add", distance, start)

    starts = call.build.constant(first, f"{call.name}.starts")
    return pointwise(call, place, [cast_to(call, kept, DType.I64), starts], DType.I64)


def _steps(spatial: Sequence[int], *, columns: bool) -> list[int]:
    """Elements from neighbour to neighbour along each spatial axis."""
    rank = len(spatial)
    if columns:
        return [prod(spatial[:axis]) for axis in range(rank)]
    return [prod(spatial[axis + 1 :]) for axis in range(rank)]


def _pads(
    sizes: Sequence[int], window: SpatialWindow, windows: Sequence[int], pads: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """What makes every window whole; it never wins."""
    found = [(0, 0), (0, 0)]
    for axis, count in enumerate(windows):
        reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1
        end = (count - 1) * window.stride[axis] + reach
        found.append((pads[axis], max(0, end - pads[axis] - sizes[2 + axis])))
    return tuple(found)


def _distances(
    call: OnnxNode, x: Value, window: SpatialWindow, windows: Sequence[int], steps: Sequence[int]
) -> Value:
    """Of the tap with the largest element from the first one, as float32."""
    best: Value | None = None
    kept: Value | None = None
    for tap in product(*(range(taps) for taps in window.kernel)):
        starts = [t * d for t, d in zip(tap, window.dilation, strict=True)]
        distance = float(sum(s * step for s, step in zip(starts, steps, strict=True)))
        ranges = {
            2 + axis: (start, windows[axis], window.stride[axis])
            for axis, start in enumerate(starts)
        }
        element = move(call, x, slice_map(x.shape, ranges))
        if best is not None:
            kept = _chosen(call, element, best, kept, distance)
            best = pointwise(call, lambda e, b: apply("max", b, e), [element, best])
        else:
            best = element
    if kept is None:  # windows of one element
        return call.build.constant(np.zeros((), np.float32), f"{call.name}.distance")
    return kept


def _chosen(
    call: OnnxNode, element: Value, best: Value, kept: Value | None, distance: float
) -> Value:
    """The distance of a tap where its element is larger than all before, else what was kept."""

    def make(e: Expr, b: Expr, k: Expr = _NEAREST) -> Expr:
        return apply("where", apply("greater", e, b), const(distance), k)

    known = [] if kept is None else [kept]
    return pointwise(call, make, [element, best, *known], DType.F32)


def _first_places(
    sizes: Sequence[int],
    window: SpatialWindow,
    windows: Sequence[int],
    pads: Sequence[int],
    steps: Sequence[int],
) -> Array:
    """Flat place of each window's first tap, int64 [N, C, windows…]; negative in the padding."""
    images = np.arange(sizes[0] * sizes[1], dtype=np.int64) * prod(sizes[2:])
    total = images.reshape(sizes[0], sizes[1], *(1 for _ in windows))
    for axis, count in enumerate(windows):
        along = (np.arange(count, dtype=np.int64) * window.stride[axis] - pads[axis]) * steps[axis]
        total = total + along.reshape(-1, *(1 for _ in windows[axis + 1 :]))
    return total
