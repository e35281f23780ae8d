"""Numbers that integers stand for, and sums of products of integers, exact in float32.

A quantised value keeps the float32 that it was before it was stored (`Builder.whole`), so that what
is quantised only to be dequantised fuses with what stands before and behind, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from saccade.frontend.onnx.call import OnnxNode
from saccade.frontend.onnx.importers._elementwise import LARGEST, cast_to, pointwise, saturated
from saccade.frontend.onnx.moves import move, reshaped, slice_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Array, Dim, DType, Expr, Value
from saccade.ir.expr import apply, const
from saccade.opdefs import Gather

__all__ = [
    "EXACT", "FRACTIONS", "along", "centred", "dequantised", "largest", "parts_of", "quantised",
    "rescaled", "summed",
]  # fmt: skip

_RANGES = {
    DType.U8: (0, 255), DType.I8: (-128, 127), DType.U16: (0, 65535), DType.I16: (-32768, 32767),
    DType.U4: (0, 15), DType.I4: (-8, 7), DType.U2: (0, 3), DType.I2: (-2, 1),
}  # fmt: skip
"""What is quantised to, and from, and its least and largest number."""
FRACTIONS = frozenset({*LARGEST, DType.F4E2M1})
"""What has no integers alone: quotients are rounded to its numbers."""
EXACT = 2**24
"""All integers up to here are float32 numbers, and so are all sums that stay below it."""
_LARGE = "sums of integers over very many taps of a channel"


def _whole(call: OnnxNode, value: Value) -> Value:
    """The value's integers in float32."""
    found = call.build.whole.get(value)
    return cast_to(call, value, DType.F32) if found is None else found


def along(
    call: OnnxNode, parameter: Value, shape: Sequence[Dim], axis: int, block: int = 0
) -> Value:
    """A scale or a zero point as it broadcasts to what it is for.

    Args:
        call: The node.
        parameter: One number, one for each element of an axis, or one for each block of it.
        shape: Of what it is for.
        axis: The axis.
        block: Elements of a block; 0 for none.
    """
    if not block:
        if parameter.rank == 0:
            return parameter
        if parameter.rank != 1:
            raise call.broken(f"a parameter of shape {list(parameter.shape)} without blocks")
        if parameter.shape == (1,):
            return reshaped(call, parameter, ())
        return reshaped(
            call,
            parameter,
            tuple(parameter.shape[0] if a == axis else 1 for a in range(len(shape))),
        )
    size = shape[axis]
    if not isinstance(size, int):
        raise Refusal("blocks of an axis that varies")
    if parameter.rank != len(shape) or parameter.shape[axis] != -(-size // block):
        raise call.broken(f"blocks of {block} of {list(shape)} by {list(parameter.shape)}")
    places = call.build.constant(np.arange(size, dtype=np.int64) // block, "blocks")
    return call.emit(Gather(axis=axis), parameter, places)


def quantised(
    call: OnnxNode,
    x: Value,
    scale: Value,
    zero: Value | None,
    dtype: DType,
    *,
    saturate: bool = True,
) -> Value:
    """`saturate(round(x / scale) + zero)`; halves are rounded to even numbers.

    Args:
        call: The node.
        x: Numbers.
        scale: As `along` gives it.
        zero: The same; no zero point is 0.
        dtype: Of the result. Those with fractions round once, after the zero point was added.
        saturate: Whether floats of 8 bits keep to the numbers that they have.
    """
    operands = [cast_to(call, v, DType.F32) for v in (x, scale)]
    if dtype in FRACTIONS:

        def number(v: Expr, s: Expr, *zeros: Expr) -> Expr:
            found = apply("div", v, s)
            for point in zeros:
                # Also of -0 and 0, which is 0: passes take an addition of 0 for none.
                is_zero = apply("equal", found, const(0))
                found = apply("where", is_zero, point, apply("add", found, point))
            return saturated(found, dtype) if saturate and dtype in LARGEST else found

        zeros = [] if zero is None else [cast_to(call, zero, DType.F32)]
        return pointwise(call, number, [*operands, *zeros], dtype)
    return _stored(call, lambda v, s: apply("div", v, s), operands, zero, dtype)


def rescaled(call: OnnxNode, sums: Value, factor: Value, zero: Value | None, dtype: DType) -> Value:
    """`saturate(round(sums · factor) + zero)` of int32 sums."""
    operands = [cast_to(call, sums, DType.F32), factor]
    return _stored(call, lambda v, f: apply("mul", v, f), operands, zero, dtype)


def _stored(
    call: OnnxNode,
    make: Callable[[Expr, Expr], Expr],
    operands: Sequence[Value],
    zero: Value | None,
    dtype: DType,
) -> Value:
    if dtype not in _RANGES:
        raise Refusal(f"quantises to {dtype.value}")
    low, high = map(const, _RANGES[dtype])

    def levels(v: Expr, parameter: Expr, *zeros: Expr) -> Expr:
        rounded = apply("round", make(v, parameter))
        return apply("clip", apply("add", rounded, *zeros) if zeros else rounded, low, high)

    zeros = () if zero is None else (_whole(call, zero),)
    numbers = pointwise(call, levels, [*operands, *zeros], DType.F32)
    stored = cast_to(call, numbers, dtype)
    if stored not in call.build.constants:
        call.build.whole[stored] = numbers
    return stored


def dequantised(call: OnnxNode, x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """`(x - zero) · scale` in `dtype`; scale and zero point as `along` gives them."""
    operands = [_whole(call, x), cast_to(call, scale, DType.F32)]
    if zero is None:
        return pointwise(call, partial(apply, "mul"), operands, dtype)

    def number(v: Expr, s: Expr, z: Expr) -> Expr:
        return apply("mul", apply("sub", v, z), s)

    return pointwise(call, number, [*operands, _whole(call, zero)], dtype)


def centred(call: OnnxNode, x: Value, zero: Value | None) -> Value:
    """`x - zero` in float32."""
    if zero is None:
        return _whole(call, x)
    return pointwise(call, partial(apply, "sub"), [_whole(call, x), _whole(call, zero)], DType.F32)


def largest(call: OnnxNode, x: Value, zero: Value | None) -> int:
    """What no `|x - zero|` exceeds."""
    if x.dtype not in (DType.U8, DType.I8):
        raise call.broken(f"products of type {x.dtype.value}")
    low, high = _RANGES[x.dtype]
    known = np.zeros(1) if zero is None else call.build.array(zero)
    if known is None or not known.size:
        return high - low
    return int(max(high - known.min(), known.max() - low))


def parts_of(size: Dim, bound: int, weights: Array | int) -> int:
    """Into how many parts an axis has to be cut for all sums over a part to be exact.

    Args:
        size: Of the axis that is summed over.
        bound: Of the data.
        weights: Their numbers, the summed axis first, then any one that goes with it; or their
            bound.

    Raises:
        Refusal: If the size varies, or what one element of the axis gives may be too large.
    """
    if isinstance(weights, int):
        if not isinstance(size, int):
            raise Refusal("sums of integers over an axis that varies")
        each = (EXACT - 1) // max(1, bound * weights)
        if not each:
            raise Refusal(_LARGE)
        return max(1, -(-size // each))
    length = len(weights)
    # What each result gets from each element of the axis.
    gains = np.abs(weights.astype(np.int64)).reshape(length, -1)
    for parts in range(1, length + 1):
        step = -(-length // parts)
        sums = np.add.reduceat(gains, range(0, length, step), axis=0)
        if int(sums.max(initial=0)) * bound < EXACT:
            return parts
    if length:
        raise Refusal(_LARGE)
    return 1


def summed(
    call: OnnxNode,
    operands: Sequence[tuple[Value, int]],
    parts: int,
    product: Callable[..., Value],
) -> Value:
    """The int32 sum of products over parts of an axis.

    Args:
        call: The node.
        operands: Values, and which axis of each is summed over.
        parts: As of `parts_of`.
        product: Of parts of the operands, in float32.
    """
    size = operands[0][0].shape[operands[0][1]]
    sums: list[Value] = []
    if parts == 1:
        sums.append(product(*(value for value, _ in operands)))
    else:
        assert isinstance(size, int), "parts of known axes only"
        step = -(-size // parts)
        for start in range(0, size, step):
            count = min(step, size - start)
            cut = [
                move(call, value, slice_map(value.shape, {axis: (start, count, 1)}))
                for value, axis in operands
            ]
            sums.append(product(*cut))
    # Stored as what they are: nothing may be folded into sums that have to be exact.
    integers = [cast_to(call, value, DType.I32) for value in sums]
    if len(integers) == 1:
        return integers[0]
    return pointwise(call, lambda *e: reduce(partial(apply, "add"), e), integers, DType.I32)
