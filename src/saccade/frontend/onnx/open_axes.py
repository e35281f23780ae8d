"""Axes whose sizes steps find out, and operators that mix their elements.

Such an axis has room for its bound, and what lies behind its last true element is anything
(`ir/counts.py`). Before an operator adds up, ranks or searches the axis, it is *closed*: taken as
an axis of that room, elements behind the true ones replaced by some that change nothing. Lists that
follow each other are moved together, and get a size of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.extents import ONE, UP_TO, repeated
from saccade.frontend.onnx.intervals import interval_of
from saccade.frontend.onnx.moves import move, reshaped, slice_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import most_of
from saccade.ir import Dim, DType, Value
from saccade.ir.counts import depends
from saccade.ir.dim import sub, substituted, total
from saccade.ir.expr import Expr, apply, arg, const
from saccade.opdefs import Concat, Gather, Move, PackedPlaces, Pad, Pointwise

__all__ = [
    "close",
    "close_all",
    "concatenated",
    "from_the_end",
    "highest",
    "is_open",
    "lowest",
    "places",
    "planned",
    "reopened",
    "room_of",
]

_FEW = 16
"""Lists that are put side by side where sizes of the inputs decide how much room each has."""


def is_open(call: OnnxNode, *sizes: Dim) -> bool:
    """Whether one of these sizes depends on data."""
    counts = call.build.counts
    return bool(counts) and any(depends(size, counts) for size in sizes)


def room_of(call: OnnxNode, size: Dim) -> int:
    """What a size never exceeds, as a number.

    Raises:
        Refusal: If that depends on the sizes of the inputs.
    """
    room = planned(call, size)
    if not isinstance(room, int):
        raise Refusal("mixes elements along an axis whose size depends on data")
    return room


def planned(call: OnnxNode, size: Dim) -> Dim:
    """How long an axis of a size is planned to be."""
    bounds = {name: count.bound for name, (count, _) in call.build.counts.items()}
    return substituted(size, bounds)


def lowest(dtype: DType) -> float:
    """A number that none of a type is less than."""
    if dtype is DType.BOOL:
        return 0
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.arithmetic.numpy).min)


def highest(dtype: DType) -> float:
    """A number that none of a type is greater than."""
    if dtype is DType.BOOL:
        return 1
    return np.inf if dtype.is_float else int(np.iinfo(dtype.arithmetic.numpy).max)


def close(call: OnnxNode, x: Value, axis: int, fill: float | None = None) -> Value:
    """The value with room for an axis, which is as it is if its size does not depend on data.

    Args:
        call: The node.
        x: The value.
        axis: The axis.
        fill: What stands behind the true elements; None if that does not matter.
    """
    size = x.shape[axis]
    if not is_open(call, size):
        return x
    room = planned(call, size)
    emit = partial(call.build.emit, name=call.name, closing=True)
    # Of two sizes that are no numbers nobody could tell which one is the longer, and one element
    # is repeated.
    if fill is None or not isinstance(room, int) or room == 1:
        (x,) = emit(Move(slice_map(x.shape, {axis: (0, room, 1)})), [x])
    if fill is None:
        return x
    # Along one axis, as others compute it of the same size, whatever the axes of their values.
    true = call.build.sized(size, call.name)
    less = Pointwise(apply("less", arg(0), arg(1)), DType.BOOL)
    shape = tuple(room if a == axis else 1 for a in range(x.rank))
    there = reshaped(call, call.emit(less, places(call, room), reshaped(call, true, (1,))), shape)
    chosen = apply("where", arg(1), arg(0), const(fill))
    if x.dtype is DType.BOOL:
        # Truth values alone would be computed as numbers.
        chosen = apply("and", arg(0), arg(1))
        if fill:
            chosen = apply("or", arg(0), apply("not", arg(1)))
    (wide,) = emit(Pointwise(chosen, x.dtype), [x, there])
    return wide


def places(call: OnnxNode, room: Dim) -> Value:
    """0, 1, 2 and so on, [room]."""
    if isinstance(room, int):
        return call.build.constant(np.arange(room, dtype=np.int64), "places")
    (ones,) = call.build.emit(repeated(room), [call.build.constant(ONE, "one")], call.name)
    return call.build.emit(UP_TO, [ones], call.name)[0]


def close_all(call: OnnxNode, x: Value, fill: float) -> Value:
    """The value with all axes closed."""
    for axis in range(x.rank):
        x = close(call, x, axis, fill)
    return x


def reopened(call: OnnxNode, x: Value, axis: int, size: Dim) -> Value:
    """A closed value's true elements along an axis."""
    if x.shape[axis] == size:
        return x
    return move(call, x, slice_map(x.shape, {axis: (0, size, 1)}))


def from_the_end(call: OnnxNode, indices: Value, size: Dim) -> Value:
    """Indices that count from the front, negative ones made so, as int64."""
    if interval_of(call.build, indices)[0] >= 0:
        return indices
    true = call.build.sized(size, call.name)
    wide = indices
    if indices.dtype is not DType.I64:
        wide = call.emit(Pointwise(arg(0), DType.I64), indices)
    behind = apply("where", apply("less", arg(0), const(0)), apply("add", arg(0), arg(1)), arg(0))
    spread = (
        reshaped(call, true, (1,) * max(wide.rank, 1)) if wide.rank else reshaped(call, true, ())
    )
    return call.emit(Pointwise(behind, DType.I64), wide, spread)


def concatenated(call: OnnxNode, parts: Sequence[Value], axis: int) -> Value:
    """Values side by side along an axis that is open in some of them."""
    sizes = tuple(part.shape[axis] for part in parts)
    # Boxes, scores and classes of the same lists have to stay of one size.
    found = call.build.packed.get(sizes)
    if any(most_of(planned(call, size)) is None for size in sizes):
        wide = [close(call, part, axis) for part in parts]
        found = _joined(call, sizes) if found is None else found
    else:
        wide = [_widest(call, part, axis) for part in parts]
        found = _packed(call, sizes) if found is None else found
    call.build.packed[sizes] = found
    return call.emit(Gather(axis=axis), call.emit(Concat(axis=axis), *wide), found)


def _joined(call: OnnxNode, sizes: tuple[Dim, ...]) -> Value:
    """Where the elements of lists are in one array of all their room, which sizes decide."""
    build, count = call.build, len(sizes)
    if count > _FEW:
        raise Refusal("mixes elements along an axis whose size depends on data")
    room = [planned(call, size) for size in sizes]
    operands = [build.sized(size, call.name) for size in (*sizes, *room)]
    true, wide = ([arg(first + i) for i in range(count)] for first in (1, 1 + count))
    gaps = [apply("sub", r, size) for r, size in zip(wide, true, strict=True)]
    # Of place `$0`, which is in the first list that it does not lie behind.
    place = apply("add", arg(0), _sum_of(gaps[:-1]))
    for number in reversed(range(count - 1)):
        before = apply("less", arg(0), _sum_of(true[: number + 1]))
        place = apply("where", before, apply("add", arg(0), _sum_of(gaps[:number])), place)
    inside = apply("clip", place, const(0), apply("sub", _sum_of(wide), const(1)))
    at = places(call, total(room))
    found = call.emit(Pointwise(apply("max", inside, const(0)), DType.I64), at, *operands)
    rows = build.symbol("concatenated")
    each = _sum_of([arg(i) for i in range(count)])
    build.counted(rows, total(room), call.emit(Pointwise(each, DType.I64), *operands[:count]))
    return reopened(call, found, 0, rows)


def _sum_of(terms: Sequence[Expr]) -> Expr:
    return reduce(partial(apply, "add"), terms, const(0))


def _widest(call: OnnxNode, x: Value, axis: int) -> Value:
    """The value closed, and as long as it could be for any sizes of the inputs."""
    wide = close(call, x, axis)
    room = wide.shape[axis]
    if isinstance(room, int):
        return wide
    behind = sub(_most(room), room)
    return call.emit(Pad(tuple((0, behind if a == axis else 0) for a in range(x.rank))), wide)


def _most(room: Dim) -> int:
    most = most_of(room)
    assert most is not None, "looked at by the caller"
    return most


def _packed(call: OnnxNode, sizes: tuple[Dim, ...]) -> Value:
    """Where the elements of lists are in one array of all their room."""
    room = tuple(_most(planned(call, size)) for size in sizes)
    each = call.emit(Concat(axis=0), *(call.build.sized(size, call.name) for size in sizes))
    rows = call.build.symbol("concatenated")
    op = PackedPlaces(rows, room)
    found, count = call.build.emit(op, [each], call.name)
    call.build.counted(rows, sum(room), count)
    return found
