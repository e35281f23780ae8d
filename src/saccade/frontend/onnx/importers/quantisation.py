"""Quantising, dequantising, and products of integers.

Integers are exact throughout: products and their sums are float32 numbers that hold them, cut into
parts where a sum could be larger (`_quantised.summed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import (
    LARGEST,
    ONNX_DTYPES,
    cast_to,
    pointwise,
)
from saccade.frontend.onnx.importers._quantised import (
    EXACT,
    FRACTIONS,
    along,
    centred,
    dequantised,
    largest,
    parts_of,
    quantised,
    rescaled,
    summed,
)
from saccade.frontend.onnx.importers.convolution import convolved
from saccade.frontend.onnx.moves import reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Array, DType, Value
from saccade.ir.expr import apply, const
from saccade.opdefs import MatMul

__all__ = [
    "factor",
    "import_conv_integer",
    "import_dequantize_linear",
    "import_matmul_integer",
    "import_qlinear_conv",
    "import_qlinear_matmul",
    "import_quantize_linear",
    "matmul",
]

_DIGIT = 16
"""Base of the digits that weights of at most 8 bits have two of."""


def import_quantize_linear(call: OnnxNode) -> Sequence[Operand]:
    """ONNX QuantizeLinear 10 to 25, to 2 to 16 bits, by one scale or one of an axis or of blocks.

    Quotients are float32 numbers, whatever `precision` says.
    """
    x = call.value(0)
    zero = call.value(2) if call.has(2) else None
    number = call.integer("output_dtype", 0)
    dtype = ONNX_DTYPES.get(number) if number else (DType.U8 if zero is None else zero.dtype)
    if dtype is None:
        raise Refusal("quantises to an element type that Saccade does not have")
    if zero is not None and zero.dtype is not dtype:
        raise call.broken(f"output_dtype {dtype.value} with a zero point {zero.dtype.value}")
    spread = _spreader(call, x)
    saturate = call.flag("saturate", default=True)
    zero = None if zero is None or _is_no_point(call, zero) else spread(zero)
    return [quantised(call, x, spread(call.value(1)), zero, dtype, saturate=saturate)]


def import_dequantize_linear(call: OnnxNode) -> Sequence[Operand]:
    """ONNX DequantizeLinear 10 to 25, of integers of 2 to 32 bits and floats of 4 and 8."""
    x, scale = call.value(0), call.value(1)
    if (x.dtype.is_float and x.dtype not in FRACTIONS) or x.dtype is DType.BOOL:
        raise call.broken(f"dequantises {x.dtype.value}")
    number = call.integer("output_dtype", 0)
    dtype = ONNX_DTYPES.get(number) if number else scale.dtype
    if dtype is None:
        raise Refusal("dequantises to an element type that Saccade does not have")
    if not dtype.is_float or dtype.is_narrow:
        raise call.broken(f"dequantises to {dtype.value}")
    spread = _spreader(call, x)
    zero = call.value(2) if call.has(2) else None
    zero = None if zero is None or _is_no_point(call, zero) else spread(zero)
    return [dequantised(call, x, spread(scale), zero, dtype)]


def _is_no_point(call: OnnxNode, zero: Value) -> bool:
    """Whether a zero point only names a type: floats of 8 bits have none but 0.

    Raises:
        ModelError: If it is known, and another number.
    """
    if zero.dtype not in LARGEST:
        return False
    known = call.build.array(zero)
    if known is not None and known.any():
        raise call.broken(f"a zero point of {zero.dtype.value} that is not 0")
    return True


def _spreader(call: OnnxNode, x: Value) -> partial[Value]:
    """What makes parameters broadcast to `x`."""
    axis, block = call.integer("axis", 1), call.integer("block_size", 0)
    if block < 0:
        raise call.broken(f"blocks of {block} elements")
    # One number for all has no axis, and the default one need not be there.
    axis = call.axis(axis, x.rank) if -x.rank <= axis < x.rank else -1
    if axis < 0 and any(call.has(i) and call.operand(i).shape not in ((), (1,)) for i in (1, 2)):
        raise call.broken(f"no such axis in {list(x.shape)}")
    return partial(along, call, shape=x.shape, axis=axis, block=block)


def _optional(call: OnnxNode, index: int) -> Value | None:
    return call.value(index) if call.has(index) else None


# -- products of matrices ------------------------------------------------------------------------


def import_matmul_integer(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MatMulInteger 10."""
    return [matmul(call, (call.value(0), call.value(1)), (_optional(call, 2), _optional(call, 3)))]


def import_qlinear_matmul(call: OnnxNode) -> Sequence[Operand]:
    """ONNX QLinearMatMul 10 and 21; a sum is rounded before the zero point is added."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(call.value, range(8))
    sums = matmul(call, (a, b), (a_zero, b_zero))
    scales = [_row(call, a_scale), b_scale, _row(call, y_scale)]
    zero = _row(call, y_zero)
    return [rescaled(call, sums, factor(call, *scales), zero, y_zero.dtype)]


def factor(call: OnnxNode, a: Value, b: Value, y: Value) -> Value:
    """What sums of products are multiplied with: `a · b / y`."""
    scales = [cast_to(call, scale, DType.F32) for scale in (a, b, y)]
    return pointwise(call, lambda u, v, w: apply("div", apply("mul", u, v), w), scales, DType.F32)


def _row(call: OnnxNode, parameter: Value) -> Value:
    """A parameter of a left operand or a result: vectors have one number for each row."""
    if parameter.rank == 1 and parameter.shape != (1,):
        return reshaped(call, parameter, (parameter.shape[0], 1))
    return parameter


def matmul(
    call: OnnxNode, operands: tuple[Value, Value], zeros: tuple[Value | None, Value | None]
) -> Value:
    """Sums of products of `a - a_zero` and `b - b_zero`, int32."""
    (a, b), (a_zero, b_zero) = operands, zeros
    a_zero = None if a_zero is None else _row(call, a_zero)
    if a.rank == 0 or b.rank == 0:
        raise call.broken("an operand has no axes")
    bound = largest(call, a, a_zero)
    numbers = _numbers(call, b, b_zero)
    parts = parts_of(
        b.shape[max(b.rank - 2, 0)],
        bound,
        largest(call, b, b_zero)
        if numbers is None
        else np.moveaxis(numbers, max(b.rank - 2, 0), 0),
    )
    left, right = centred(call, a, a_zero), centred(call, b, b_zero)
    row, column = left.rank == 1, right.rank == 1
    left = reshaped(call, left, (1, *left.shape)) if row else left
    right = reshaped(call, right, (*right.shape, 1)) if column else right
    sums = summed(
        call,
        [(left, left.rank - 1), (right, right.rank - 2)],
        parts,
        lambda u, v: call.emit(MatMul(), u, v),
    )
    shape = [
        *sums.shape[:-2],
        *(() if row else sums.shape[-2:-1]),
        *(() if column else sums.shape[-1:]),
    ]
    return reshaped(call, sums, shape)


def _numbers(call: OnnxNode, weights: Value, zero: Value | None) -> Array | None:
    """`weights - zero` where both are known."""
    array = call.build.array(weights)
    offset = np.zeros((), np.int64) if zero is None else call.build.array(zero)
    if array is None or offset is None:
        return None
    return np.asarray(array.astype(np.int64) - offset.astype(np.int64))


# -- convolutions --------------------------------------------------------------------------------


def import_conv_integer(call: OnnxNode) -> Sequence[Operand]:
    """ONNX ConvInteger 10."""
    return [_conv(call, (call.value(0), call.value(1)), (_optional(call, 2), _optional(call, 3)))]


def import_qlinear_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX QLinearConv 10; a sum is rounded before the zero point is added."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = map(call.value, range(8))
    sums = _conv(call, (x, w), (x_zero, w_zero))
    if call.has(8):
        bias = along(call, call.value(8), sums.shape, 1)
        sums = pointwise(call, partial(apply, "add"), [sums, bias], DType.I32)
    scales = [along(call, scale, sums.shape, 1) for scale in (x_scale, w_scale, y_scale)]
    zero = along(call, y_zero, sums.shape, 1)
    return [rescaled(call, sums, factor(call, *scales), zero, y_zero.dtype)]


def _conv(
    call: OnnxNode, operands: tuple[Value, Value], zeros: tuple[Value | None, Value | None]
) -> Value:
    """Sums of products of `x - x_zero` and `w - w_zero`, int32; padding is the zero point."""
    (x, w), (x_zero, w_zero) = operands, zeros
    x_zero = None if x_zero is None else along(call, x_zero, x.shape, 1)
    w_zero = None if w_zero is None else along(call, w_zero, w.shape, 0)
    bound = largest(call, x, x_zero)
    numbers = _numbers(call, w, w_zero)
    grouped = call.integer("group", 1) != 1
    if numbers is None:
        taps = [d for d in w.shape[2:] if isinstance(d, int)]
        weights: Array | int = largest(call, w, w_zero) * int(np.prod(taps))
    else:
        # All taps of a channel of a filter go with the channel.
        weights = np.abs(numbers).reshape(*numbers.shape[:2], -1).sum(axis=2).T
    parts = parts_of(w.shape[1], bound, weights)
    data, filters = centred(call, x, x_zero), centred(call, w, w_zero)

    def product(u: Value, v: Value) -> Value:
        return convolved(call, u, v, integral=True)

    if not grouped or parts == 1:
        return summed(call, [(data, 1), (filters, 1)], parts, product)
    # Groups cannot be cut along channels together; digits of the weights have smaller sums.
    if bound * _DIGIT * int(np.prod([d for d in w.shape[1:] if isinstance(d, int)])) >= EXACT:
        raise Refusal("sums of integers over very many channels of a group")
    high = pointwise(
        call, lambda v: apply("round", apply("mul", v, const(1 / _DIGIT))), [filters], DType.F32
    )
    low = pointwise(
        call,
        lambda v, h: apply("sub", v, apply("mul", h, const(_DIGIT))),
        [filters, high],
        DType.F32,
    )
    sums = [summed(call, [(data, 1), (part, 1)], 1, product) for part in (high, low)]
    return pointwise(
        call, lambda h, v: apply("add", apply("mul", h, const(_DIGIT)), v), sums, DType.I32
    )
