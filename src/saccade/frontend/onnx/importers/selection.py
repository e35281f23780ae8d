"""Operators that choose elements by number or by place: comparisons, and gathers of flat data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import inf

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.extents import ONE, UP_TO, repeated
from saccade.frontend.onnx.importers._elementwise import ONNX_DTYPES, cast_to, pointwise
from saccade.frontend.onnx.moves import move, reshaped, slice_map, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, DType, Expr, Value
from saccade.ir.dim import product
from saccade.ir.expr import apply, const
from saccade.opdefs import ArgReduce, Gather, GatherNd

__all__ = [
    "along_axis",
    "import_eye_like",
    "import_gather_elements",
    "import_hardmax",
    "import_is_inf",
    "import_one_hot",
    "import_reverse_sequence",
    "import_trilu",
    "known_sizes",
]

_ONE_AXIS_SINCE = 13


def import_gather_elements(call: OnnxNode) -> Sequence[Operand]:
    """ONNX GatherElements 11 and 13; indices beyond the axis are clamped."""
    data, where = call.value(0), call.value(1)
    axis = call.axis(call.integer("axis", 0), data.rank)
    if where.dtype not in (DType.I32, DType.I64) or where.rank != data.rank:
        raise call.broken(f"indices {where.dtype.value} {list(where.shape)}")
    for a, (n, size) in enumerate(zip(where.shape, data.shape, strict=True)):
        if a != axis and isinstance(n, int) and isinstance(size, int) and n > size:
            raise call.broken(f"indices {list(where.shape)} for data {list(data.shape)}")
    if 0 in where.shape and all(isinstance(n, int) for n in where.shape):
        return [call.build.constant(np.zeros(known_sizes(where.shape), data.dtype.numpy))]
    at = along_axis(call, where, data.shape, axis)
    return [call.emit(Gather(axis=0), reshaped(call, data, (product(data.shape),)), at)]


def along_axis(call: OnnxNode, where: Value, sizes: Sequence[Dim], axis: int) -> Value:
    """Places in flat data of what indices name along an axis, clamped to its ends.

    Args:
        call: The node.
        where: Indices, of as many axes as the data, along all others each at its own place.
        sizes: Of the data.
        axis: The axis.
    """
    steps = [product(sizes[a + 1 :]) for a in range(len(sizes))]
    if all(isinstance(n, int) for n in (*sizes, *where.shape)):
        apart: list[Value] = [_places_apart(call, where, known_sizes(steps), axis)]
    else:
        # As many operands as there are other axes: each has its own number of places.
        apart = [
            _numbered(call, n, a, step, where.rank)
            for a, (n, step) in enumerate(zip(where.shape, steps, strict=True))
            if a != axis and n != 1
        ]

    def place(index: Expr, size: Expr, step: Expr, *rest: Expr) -> Expr:
        counted = apply("where", apply("less", index, const(0)), apply("add", index, size), index)
        last = apply("sub", size, const(1))
        inside = apply("max", apply("min", counted, last), const(0))
        return reduce(partial(apply, "add"), rest, apply("mul", inside, step))

    # Flat places may be beyond 32 bits, and expressions compute in one type.
    wide = cast_to(call, where, DType.I64)
    extents = [call.build.sized(d, call.name) for d in (sizes[axis], steps[axis])]
    return pointwise(call, place, [wide, *extents, *apart], DType.I64)


def _places_apart(call: OnnxNode, where: Value, steps: Sequence[int], axis: int) -> Value:
    """Where each index' row begins, by its place along the other axes."""
    counts = known_sizes(where.shape)
    places = np.zeros(counts, np.int64)
    for a, (n, step) in enumerate(zip(counts, steps, strict=True)):
        if a != axis:
            along = (-1, *(1 for _ in counts[a + 1 :]))
            places += step * np.arange(n, dtype=np.int64).reshape(along)
    return call.build.constant(places, "places")


def _numbered(call: OnnxNode, count: Dim, axis: int, step: Dim, rank: int) -> Value:
    """0, the step, twice the step and so on along an axis."""
    one = call.build.constant(ONE, "one")
    numbers = call.emit(UP_TO, call.emit(repeated(count), one))
    far = pointwise(
        call, partial(apply, "mul"), [numbers, call.build.sized(step, call.name)], DType.I64
    )
    return reshaped(call, far, tuple(count if a == axis else 1 for a in range(rank)))


def import_trilu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Trilu 14, of matrices of known sizes."""
    x = call.value(0)
    if x.rank < 2:
        raise call.broken(f"operands of {x.rank} axes")
    number = call.integers_of(1, "the diagonal") if call.has(1) else (0,)
    if len(number) != 1:
        raise call.broken(f"diagonals {list(number)}")
    rows, columns = known_sizes(x.shape[-2:])
    # Diagonals farther out make no difference, and the file may name any 64-bit number.
    edge = max(-rows, min(number[0], columns))
    # An upper triangle keeps its diagonal, so that what is cleared ends one before it.
    below = np.tri(rows, columns, edge - call.flag("upper", default=True), dtype=bool)
    kept = ~below if call.flag("upper", default=True) else below
    zero = call.build.constant(np.zeros((), x.dtype.numpy))
    mask = call.build.constant(np.ascontiguousarray(kept), "triangle")
    return [pointwise(call, partial(apply, "where"), [mask, x, zero], x.dtype)]


def import_one_hot(call: OnnxNode) -> Sequence[Operand]:
    """ONNX OneHot 9 and 11; the depth must be known."""
    where, values = call.value(0), call.value(2)
    depth = int(call.constant(1, "the depth of a one-hot code").ravel()[0])
    if depth < 1 or values.shape != (2,):
        raise call.broken(f"depth {depth}, values {list(values.shape)}")
    axis = call.axis(call.integer("axis", -1), where.rank + 1)
    # The standard counts in int64, whatever the indices are: 8 bits could not hold the depth.
    wide = cast_to(call, where, DType.I64)
    spread = reshaped(call, wide, (*where.shape[:axis], 1, *where.shape[axis:]))
    numbers = _numbers(call, depth, where.rank + 1, axis, DType.I64)
    off, on = (
        reshaped(call, move(call, values, slice_map((2,), {0: (i, 1, 1)})), ()) for i in (0, 1)
    )

    def hot(index: Expr, number: Expr) -> Expr:
        # Negative indices count from the end.
        behind = apply("equal", apply("add", index, const(depth)), number)
        return apply("or", apply("equal", index, number), behind)

    chosen = pointwise(call, hot, [spread, numbers], DType.BOOL)
    return [pointwise(call, partial(apply, "where"), [chosen, on, off], values.dtype)]


def import_eye_like(call: OnnxNode) -> Sequence[Operand]:
    """ONNX EyeLike 9, of a known shape."""
    x = call.operand(0)
    if len(x.shape) != 2:
        raise call.broken(f"operands of {len(x.shape)} axes")
    rows, columns = known_sizes(x.shape)
    number = call.integer("dtype", 0)
    kind = ONNX_DTYPES.get(number) if number else x.dtype
    if kind is None:
        raise Refusal("an element type that Saccade does not have")
    return [call.build.constant(np.eye(rows, columns, call.integer("k", 0), kind.numpy))]


def import_hardmax(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Hardmax 1 to 13: 1 at the first of the largest elements."""
    x = call.value(0)
    old = call.opset < _ONE_AXIS_SINCE
    axis = call.axis(call.integer("axis", 1 if old else -1), x.rank)
    whole: tuple[Dim, ...] = x.shape
    if old:  # all axes from `axis` on are one
        x = reshaped(call, x, (*whole[:axis], product(whole[axis:])))
    (size,) = known_sizes(x.shape[axis : axis + 1])
    place = call.emit(ArgReduce(kind="argmax", axis=axis, keepdims=True), x)
    numbers = _numbers(call, size, x.rank, axis, DType.I64)
    chosen = pointwise(call, partial(apply, "equal"), [place, numbers], DType.BOOL)
    return [reshaped(call, cast_to(call, chosen, x.dtype), whole)]


def import_is_inf(call: OnnxNode) -> Sequence[Operand]:
    """ONNX IsInf 10 and 20."""
    x = call.value(0)
    wanted = [
        sign * inf
        for name, sign in (("detect_negative", -1), ("detect_positive", 1))
        if call.flag(name, default=True)
    ]
    if not wanted:
        # False everywhere, of the operand's shape.
        return [pointwise(call, lambda e: apply("less", e, e), [x], DType.BOOL)]

    def either(e: Expr) -> Expr:
        tests = [apply("equal", e, const(value)) for value in wanted]
        return apply("or", *tests) if len(tests) > 1 else tests[0]

    return [pointwise(call, either, [x], DType.BOOL)]


def import_reverse_sequence(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ReverseSequence 10; the longest one's length is known."""
    x, lengths = call.value(0), call.value(1)
    batch, time = call.integer("batch_axis", 1), call.integer("time_axis", 0)
    if {batch, time} != {0, 1} or x.rank < 2:
        raise call.broken(f"batches along axis {batch}, time along {time}")
    (steps,) = known_sizes(x.shape[time : time + 1])
    order = (1, 0, *range(2, x.rank))
    first = x if batch == 0 else move(call, x, transpose_map(x.shape, order))
    each = reshaped(call, cast_to(call, lengths, DType.I64), (x.shape[batch], 1))

    def place(step: Expr, length: Expr) -> Expr:
        back = apply("sub", apply("sub", length, const(1)), step)
        return apply("where", apply("less", step, length), back, step)

    numbers = _numbers(call, steps, 2, 1, DType.I64)
    at = pointwise(call, place, [numbers, each], DType.I64)
    y = call.emit(GatherNd(1), first, reshaped(call, at, (*at.shape, 1)))
    return [y if batch == 0 else move(call, y, transpose_map(y.shape, order))]


def _numbers(call: OnnxNode, count: int, rank: int, axis: int, dtype: DType) -> Value:
    """0, 1, 2, … along an axis."""
    shape = tuple(count if a == axis else 1 for a in range(rank))
    return call.build.constant(np.arange(count).astype(dtype.numpy).reshape(shape), "numbers")


def known_sizes(sizes: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes that are known.

    Raises:
        Refusal: If one is not.
    """
    known = tuple(size for size in sizes if isinstance(size, int))
    if len(known) < len(sizes):
        raise Refusal("sizes that vary")
    return known
