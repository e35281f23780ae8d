"""Evaluates expressions over NumPy arrays, with the semantics of the ONNX operators behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.expr import IDENTITY, Expr, fold
from saccade.ir.op import Array
from saccade.opdefs._erf import erf

__all__ = ["accumulator", "cast", "evaluate", "finish"]

T = TypeVar("T", bound=np.generic)


def accumulator(dtype: np.dtype[T]) -> np.dtype[T] | np.dtype[np.float32]:
    """The type in which sums over `dtype` are kept: float32 for float16, else its own."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def cast(array: Array, dtype: DType) -> Array:
    """ONNX Cast: towards zero for float to integer, `!= 0` for bool; out of range is undefined."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype.numpy, copy=False)


def _compute_dtype(
    operands: Sequence[Array], default: np.dtype[np.generic]
) -> np.dtype[np.generic]:
    """The type of arithmetic: the operands' common one, bools aside; else `default`."""
    dtypes = [o.dtype for o in operands if o.dtype != np.bool_]
    return np.result_type(*dtypes) if dtypes else default


def evaluate(
    expr: Expr, operands: Sequence[Array], *, default: np.dtype[np.generic] | None = None
) -> Array:
    """The value of `expr`, operands broadcast against each other.

    Arithmetic happens in the operands' common type (`default`, else float32, if all are bool), to
    which literals are converted; comparisons and logic give bool. Division by zero, overflow and
    NaN follow IEEE 754 without warnings.
    """
    dtype = _compute_dtype(operands, np.dtype(np.float32) if default is None else default)

    def on_apply(op: str, args: tuple[Array, ...]) -> Array:
        return _apply(op, args, dtype)

    with np.errstate(all="ignore"):
        return fold(expr, lambda i: np.asarray(operands[i]), lambda v: _literal(v, dtype), on_apply)


def finish(
    epilogue: Expr, result: Array, operands: Sequence[Array], dtype: np.dtype[np.generic]
) -> Array:
    """The result after its epilogue: same shape, in `dtype`."""
    if epilogue != IDENTITY:
        wide = [o if o.dtype == np.bool_ else o.astype(result.dtype, copy=False) for o in operands]
        value = evaluate(epilogue, (result, *wide))
        result = np.broadcast_to(value, result.shape)
    return np.ascontiguousarray(result, dtype=dtype).reshape(result.shape)


def _literal(value: float, dtype: np.dtype[np.generic]) -> Array:
    if issubclass(dtype.type, np.integer):  # infinite bounds of a clip saturate
        info = np.iinfo(dtype.type)
        return np.asarray(int(min(max(value, info.min), info.max)), dtype=dtype)
    return np.asarray(value, dtype=dtype)


def _apply(op: str, args: tuple[Array, ...], dtype: np.dtype[np.generic]) -> Array:
    if op in _LOGIC:
        return np.asarray(_LOGIC[op](*args))
    if op == "where":
        condition, yes, no = args
        if yes.dtype != no.dtype:
            yes, no = yes.astype(dtype), no.astype(dtype)
        return np.where(condition.astype(bool), yes, no)
    if op in _COMPARISONS:
        return np.asarray(_COMPARISONS[op](*_same(args, dtype)))
    numbers = tuple(a.astype(dtype, copy=False) for a in args)
    table = _INTEGER if dtype.kind in "iub" and op in _INTEGER else _NUMERIC
    return np.asarray(table[op](*numbers)).astype(dtype, copy=False)


def _same(args: tuple[Array, ...], dtype: np.dtype[np.generic]) -> tuple[Array, ...]:
    """Comparison of two bools stays one; anything else happens in the common type."""
    if all(a.dtype == np.bool_ for a in args):
        return args
    return tuple(a.astype(dtype, copy=False) for a in args)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, np.zeros((), x.dtype))


def _clip(x: Array, low: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)  # an empty range gives `high`, as ONNX says


def _hard_sigmoid(x: Array, alpha: Array, beta: Array) -> Array:
    return _clip(alpha * x + beta, np.zeros_like(alpha), np.ones_like(alpha))


def _hardswish(x: Array) -> Array:
    return np.asarray(x * np.clip(x / 6 + x.dtype.type(0.5), 0, 1))


def _integer_div(x: Array, y: Array) -> Array:
    """Quotient rounded towards zero; 0 where the divisor is 0, which ONNX leaves undefined."""
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = x // safe
    low = (quotient < 0) & (quotient * safe != x)
    return np.where(y == 0, np.zeros_like(x), quotient + low)


def _integer_pow(x: Array, y: Array) -> Array:
    if np.any(y < 0):
        return np.asarray(np.trunc(np.float_power(x, y)))
    return np.asarray(np.power(x, y))


def _shift_left(x: Array, y: Array) -> Array:
    """Without what goes beyond the type's bits; 0 where `y` is negative or as many as these."""
    bits = x.dtype.itemsize * 8
    there = (y >= 0) & (y < bits)
    return np.where(there, np.left_shift(x, np.where(there, y, 0)), np.zeros_like(x))


def _shift_right(x: Array, y: Array) -> Array:
    """The sign fills up what is left; that alone where `y` is negative or too large."""
    last = x.dtype.itemsize * 8 - 1
    wanted = np.where((y >= 0) & (y < last), y, last).astype(x.dtype)
    fill = np.right_shift(x, wanted)
    # Without a sign, nothing fills up: the last bit goes, too.
    gone = (y < 0) | (y > last)
    return fill if x.dtype.kind == "i" else np.where(gone, np.zeros_like(x), fill)


def _same_integer(x: Array) -> Array:
    return x


_LOGIC: dict[str, Callable[..., Array]] = {
    "not": np.logical_not,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "isnan": np.isnan,
}
_COMPARISONS: dict[str, Callable[..., Array]] = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
_INTEGER: dict[str, Callable[..., Array]] = {
    "div": _integer_div,
    "pow": _integer_pow,
    "bit_not": np.invert,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "floor": _same_integer,
    "ceil": _same_integer,
    "round": _same_integer,
}
_NUMERIC: dict[str, Callable[..., Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "erf": erf,
    "softplus": _softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hardswish": _hardswish,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * (1 + erf(x * math.sqrt(0.5))) / 2,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "sin": np.sin,
    "cos": np.cos,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "mod": np.mod,
    "fmod": np.fmod,
    "clip": _clip,
    "hard_sigmoid": _hard_sigmoid,
    "leaky_relu": lambda x, slope: np.where(x < 0, slope * x, x),
    "elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
}
