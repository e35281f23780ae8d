"""Sizes and places that data decide.

A mask is enlarged to the box that was found for it, a part of it is cut out, and zeros are put
around that. Such a size is one that a step finds out (`ir/counts.py`): a symbol whose bound follows
from what makes it (`intervals`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.frontend.onnx.apart import most_apart
from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.by_sizes import computed, is_of_sizes, most_of_value
from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.intervals import interval_of
from saccade.frontend.onnx.moves import move, reshaped, slice_map
from saccade.frontend.onnx.open_axes import close, is_open, places, planned, reopened
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import whole_dims
from saccade.ir import Dim, DType, Value
from saccade.ir.dim import maximum, mul, product, sub, symbol
from saccade.ir.expr import IDENTITY, Expr, apply, arg, const
from saccade.opdefs import Concat, Gather, Move, Pad, Pointwise

__all__ = ["fitted", "is_given", "measured", "rearranged", "sliced", "told"]

_MOST = 8
"""Sizes of one tensor, which has no more axes."""
_INTEGERS = (DType.I32, DType.I64)


def measured(call: OnnxNode, index: int, what: str) -> tuple[Dim, ...]:
    """The elements of an integer operand as dims, new symbols for those that data decide.

    Raises:
        Refusal: If nothing tells how large they could be, or inputs alone decide: those are known
            for each value, and everything is then as large as it has to be.
    """
    content = call.content(index)
    if content is not None:
        return whole_dims(content)
    x = call.value(index)
    length = product(x.shape)
    if x.dtype not in _INTEGERS or not isinstance(length, int) or length > _MOST or x.rank > 1:
        raise call.depends(what)
    return tuple(_element(call, x, place, what) for place in range(length))


def told(call: OnnxNode, index: int, what: str) -> tuple[Dim, ...]:
    """The elements of an integer operand as dims, new symbols for those that sizes decide.

    Raises:
        Refusal: If they depend on data.
    """
    if call.content(index) is None:
        x = call.value(index)
        length = x.shape[0] if x.rank == 1 and x.dtype in _INTEGERS else None
        if isinstance(length, int) and length <= 2 * _MOST and is_of_sizes(call.build, x):
            return tuple(_element(call, x, place, what) for place in range(length))
    return call.dims(index, what)


def _element(call: OnnxNode, x: Value, place: int, what: str) -> Dim:
    """One number of a short list."""
    build = call.build
    source, place = _traced(build, x, place)
    known = build.array(source)
    if known is not None:
        return int(known.ravel()[place])
    size = _size_of(build, source)
    if size is not None:
        return size
    if (source, place) in build.measured:
        return build.measured[source, place]
    size = _computed(call, source, place)
    if size is not None:
        build.measured[source, place] = size
    else:
        bound = None if is_given(build, source) else most_of_value(build, source)
        if bound is None:
            raise call.depends(what)
        one = _at(call, source, place)
        kept = apply("clip", arg(0), const(0), arg(1))
        count = call.emit(Pointwise(kept, DType.I64), one, build.sized(bound, call.name))
        build.measured[source, place] = rows = build.symbol("measured")
        build.counted(rows, bound, count)
    return build.measured[source, place]


def _computed(call: OnnxNode, x: Value, place: int) -> Dim | None:
    """A new symbol for an element, if sizes of inputs decide it."""
    build = call.build
    size = computed(build, x, place)
    if size is None:
        return None
    one = _at(call, x, place)
    if one.dtype is not DType.I64:
        one = call.emit(Pointwise(IDENTITY, DType.I64), one)
    build.sizes[size] = one
    return size


def _size_of(build: Builder, value: Value) -> Dim | None:
    """The size that a value holds, if it was made to hold one."""
    found = (symbol(count.symbol) for count, held in build.counts.values() if held is value)
    sizes = (size for size, held in build.sizes.items() if held is value)
    return next(found, next(sizes, None))


def _at(call: OnnxNode, x: Value, place: int) -> Value:
    """One element of a value without axes, or with one, as one of one element."""
    if x.shape in ((), (1,)):
        return reshaped(call, x, (1,))
    return move(call, x, slice_map(x.shape, {0: (place, 1, 1)}))


def _traced(build: Builder, x: Value, place: int) -> tuple[Value, int]:
    """Where an element comes from, past what only moves it or changes the width of integers."""
    while (maker := build.makers.get(x)) is not None:
        op = maker.op
        if isinstance(op, Concat) and x.rank == 1:
            for part in maker.inputs:
                length = part.shape[0]
                if not isinstance(length, int):
                    return x, place
                if place < length:
                    x = part
                    break
                place -= length
        elif isinstance(op, Move) and product(x.shape) == product(maker.inputs[0].shape) == 1:
            x = maker.inputs[0]
        elif isinstance(op, Pointwise) and op.expr == IDENTITY and len(maker.inputs) == 1:
            if not {x.dtype, maker.inputs[0].dtype} <= set(_INTEGERS):
                return x, place
            (x,) = maker.inputs
        else:
            return x, place
    return x, place


def is_given(build: Builder, value: Value) -> bool:
    """Whether inputs of the model alone decide a value, short ones that are known one by one."""
    left, seen = [value], set[Value]()
    while left:
        x = left.pop()
        if x in seen or build.is_known(x):
            continue
        seen.add(x)
        maker = build.makers.get(x)
        if maker is not None:
            left += maker.inputs
        elif x not in build.inputs or x.rank > 1:
            return False
    return True


# -- parts of an axis ------------------------------------------------------------------------------


def sliced(call: OnnxNode, x: Value, axis: int, start: Value | int, end: Value | int) -> Value:
    """The elements of an axis between two places, either of which may be decided by data.

    Args:
        call: The node.
        x: The value.
        axis: The axis.
        start: The first one, counted from the end if negative: a number, or a tensor of one.
        end: The one behind the last, in the same way.

    Raises:
        Refusal: If inputs alone decide the places, or nothing tells how long the axis is at most.
    """
    build = call.build
    if all(isinstance(v, int) or is_given(build, v) for v in (start, end)):
        raise Refusal("the start of a slice depends on data")
    room, size = planned(call, x.shape[axis]), build.sized(x.shape[axis], call.name)
    first, last = (_place(call, at, size) for at in (start, end))
    span = apply("max", apply("sub", arg(0), arg(1)), const(0))
    count = call.emit(Pointwise(span, DType.I64), last, first)
    high = min(interval_of(build, count)[1], _apart(build, start, end))
    most = int(min(room, high)) if isinstance(room, int) else room
    rows = build.symbol("sliced")
    build.counted(rows, most, count)
    x = close(call, x, axis)
    if start != 0:
        inside = apply("max", apply("sub", arg(2), const(1)), const(0))
        there = apply("clip", apply("add", arg(0), arg(1)), const(0), inside)
        along = reopened(call, places(call, most), 0, rows)
        operands = along, first, build.sized(room, call.name)
        return call.emit(Gather(axis), x, call.emit(Pointwise(there, DType.I64), *operands))
    return reopened(call, x, axis, rows)


def _apart(build: Builder, start: Value | int, end: Value | int) -> float:
    """How many elements there are at most between places that are made from each other."""
    if isinstance(start, int) or isinstance(end, int):
        return np.inf
    # Negative ones count from the end.
    if min(interval_of(build, one)[0] for one in (start, end)) < 0:
        return np.inf
    return most_apart(build, end, start)


def _place(call: OnnxNode, at: Value | int, size: Value) -> Value:
    """A place within an axis, from the front, int64 [1]."""
    if isinstance(at, int):
        # Exporters write the largest numbers for "to the end", which sums must not exceed.
        most = 1 << 31
        at = call.build.constant(np.asarray([max(-most, min(at, most))], np.int64), "place")
    else:
        at = reshaped(call, at, (1,))
        if at.dtype is not DType.I64:
            at = call.emit(Pointwise(IDENTITY, DType.I64), at)
    behind = apply("where", apply("less", arg(0), const(0)), apply("add", arg(0), arg(1)), arg(0))
    return call.emit(Pointwise(apply("clip", behind, const(0), arg(1)), DType.I64), at, size)


def fitted(call: OnnxNode, x: Value, axis: int, size: Dim) -> Value:
    """A value whose axis is so long in every run that is right, with a size that says so."""
    x = close(call, x, axis)
    missing = maximum(sub(size, x.shape[axis]), 0)
    if missing != 0:
        pads = tuple((0, missing) if a == axis else (0, 0) for a in range(x.rank))
        x = call.emit(Pad(pads), x)
    return reopened(call, x, axis, size)


# -- other shapes ----------------------------------------------------------------------------------


def rearranged(call: OnnxNode, x: Value, shape: Sequence[Dim]) -> Value:
    """The same elements under another shape, picked one by one where sizes depend on data.

    Axes that both shapes begin with stay as they are.

    Raises:
        Refusal: If nothing tells how long an axis is at most, or that there are as many elements.
    """
    lead = 0
    while lead < min(x.rank, len(shape)) - 1 and x.shape[lead] == shape[lead]:
        lead += 1
    old, new = x.shape[lead:], tuple(shape[lead:])
    if sub(product(old), product(new)) != 0:
        raise Refusal("reshapes to a number of elements that is not equal for all that data find")
    if any(is_open(call, d) for d in x.shape[:lead]):
        raise Refusal("reshapes axes whose sizes depend on data in more than one place")
    room = [planned(call, size) for size in old]
    wide = x
    for axis in range(lead, x.rank):
        wide = close(call, wide, axis)
    flat = reshaped(call, wide, (*x.shape[:lead], product(room)))
    return call.emit(Gather(lead), flat, _places(call, old, room, new))


def _opened(call: OnnxNode, size: Dim) -> Dim:
    """A size that one step finds out: what lies behind is then at an axis' end."""
    if not is_open(call, size):
        return size
    build = call.build
    count = build.sized(size, call.name)
    rows = build.symbol("reshaped")
    build.counted(rows, planned(call, size), count)
    return rows


def _places(call: OnnxNode, old: Sequence[Dim], room: Sequence[Dim], new: Sequence[Dim]) -> Value:
    """Where each element of a shape is in one with room for another, both row by row."""
    build = call.build
    operands: list[Value] = []

    def operand(value: Value) -> Expr:
        operands.append(value)
        return arg(len(operands) - 1)

    def extent(size: Dim) -> Expr:
        if isinstance(size, int):
            return const(size)
        one = (1,) * len(new)
        return operand(reshaped(call, build.sized(size, call.name), one))

    linear = const(0)
    for axis, size in enumerate(new):
        rows = _opened(call, size)
        along = reopened(call, places(call, planned(call, size)), 0, rows)
        along = reshaped(call, along, tuple(rows if a == axis else 1 for a in range(len(new))))
        linear = apply("add", apply("mul", linear, extent(size)), operand(along))
    # The innermost axis first; what is left is the place along those outside of it.
    at: Expr = const(0)
    stride: Dim = 1
    for size, most in zip(reversed(old), reversed(room), strict=True):
        true = apply("max", extent(size), const(1))
        inner = apply("mod", linear, true)
        at = apply("add", at, apply("mul", inner, extent(stride)))
        # Without the rest there is nothing to round.
        linear = apply("div", apply("sub", linear, inner), true)
        stride = mul(stride, most)
    last = apply("max", apply("sub", extent(stride), const(1)), const(0))
    return call.emit(Pointwise(apply("min", at, last), DType.I64), *operands)
