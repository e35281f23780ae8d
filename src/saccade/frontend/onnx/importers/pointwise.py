"""Everything that works element by element becomes one `Pointwise` with an expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from saccade.frontend.onnx.call import Importer, OnnxNode, Operand
from saccade.frontend.onnx.importers._activations import gelu_tanh, swish
from saccade.frontend.onnx.importers._elementwise import (
    LARGEST,
    NAMED_DTYPES,
    ONNX_DTYPES,
    cast_to,
    common,
    pointwise,
    saturated,
    with_symbols,
)
from saccade.frontend.onnx.importers._inverse import INVERSE
from saccade.frontend.onnx.importers.bits import to_exponents
from saccade.frontend.onnx.listed import Result, TensorList
from saccade.frontend.onnx.moves import broadcast_map, move, reshaped
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.symbolic import Symbolic
from saccade.frontend.onnx.symbolic_arithmetic import cast
from saccade.ir import DType, Expr, Value
from saccade.ir.expr import apply, const

__all__ = ["POINTWISE"]

# The standard's defaults: float32 numbers, written out.
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
_OLD_SELU = 1.6732, 1.0507
"""Its defaults up to version 5, of fewer digits."""
_SINCE_INPUTS = 11
_SINCE_NUMPY = 7
_SINCE_PURE = 6
"""Before, casts named types, and attributes said which operands might be written over."""
_MOST_OPERANDS = 8
"""Of one sum, minimum or maximum: more are several, so that no expression is without bound."""


def _same(call: OnnxNode, op: str, dtype: DType | None = None) -> Sequence[Operand]:
    """An operator of expressions that takes the node's operands as they are."""
    operands = [call.value(index) for index in range(len(call.operands))]
    return [pointwise(call, partial(apply, op), operands, dtype)]


def _binary(call: OnnxNode, op: str, dtype: DType | None = None) -> Sequence[Operand]:
    return [pointwise(call, partial(apply, op), _pair(call), dtype)]


def _pair(call: OnnxNode) -> tuple[Value, Value]:
    """Two operands; up to version 6 an `axis` says where the second one's axes begin."""
    left, right = call.value(0), call.value(1)
    if call.opset < _SINCE_NUMPY and right.rank < left.rank and "axis" in call.node.attributes:
        start = call.axis(call.integer("axis", 0), left.rank)
        right = _spread(call, right, left.rank - start)
    return left, right


def _spread(call: OnnxNode, value: Value, rank: int) -> Value:
    """The value with axes of 1 behind its own, `rank` in all."""
    if rank < value.rank:
        raise call.broken(f"broadcasts {value.rank} axes to {rank}")
    return reshaped(call, value, (*value.shape, *(1,) * (rank - value.rank)))


def _prelu(call: OnnxNode) -> Sequence[Operand]:
    x, slope = call.value(0), call.value(1)
    # Before NumPy's rules, one slope per channel was meant: axis 1.
    if call.opset < _SINCE_NUMPY and slope.rank == 1 and x.rank > 1:
        slope = _spread(call, slope, x.rank - 1)
    return [pointwise(call, partial(apply, "leaky_relu"), [x, slope])]


def _unary(call: OnnxNode, make: Callable[[Expr], Expr]) -> Sequence[Operand]:
    return [pointwise(call, make, [call.value(0)])]


def _variadic(call: OnnxNode, op: str, *, mean: bool = False) -> Sequence[Operand]:
    operands = [call.value(index) for index in range(len(call.operands))]
    if not operands:
        raise call.broken("no inputs")

    count = len(operands)

    def chain(*parts: Expr) -> Expr:
        return reduce(partial(apply, op), parts)

    def make(*parts: Expr) -> Expr:
        total = chain(*parts)
        return apply("mul", total, const(1 / count)) if mean else total

    if len(operands) == 1:
        return operands
    while len(operands) > _MOST_OPERANDS:  # in the same order, a few at a time
        first = pointwise(call, chain, operands[:_MOST_OPERANDS])
        operands = [first, *operands[_MOST_OPERANDS:]]
    return [pointwise(call, make, operands)]


def _with_number(call: OnnxNode, op: str, attribute: str, default: float) -> Sequence[Operand]:
    number = const(call.number(attribute, default))
    return _unary(call, lambda x: apply(op, x, number))


def _clip(call: OnnxNode) -> Sequence[Operand]:
    x = call.value(0)
    if call.opset < _SINCE_INPUTS:
        limits = call.number("min", -math.inf), call.number("max", math.inf)
        # Defaults that bound nothing stay out of the expression.
        low, high = (None if math.isinf(v) else const(v) for v in limits)
        return [pointwise(call, lambda e: _clipped(e, low, high), [x])]
    bounds = [call.value(index) if call.has(index) else None for index in (1, 2)]

    def make(e: Expr, *given: Expr) -> Expr:
        rest = list(given)
        # A bound that is left out has no operand: the others close up.
        first, second = (None if bound is None else rest.pop(0) for bound in bounds)
        return _clipped(e, first, second)

    return [pointwise(call, make, [x, *(bound for bound in bounds if bound is not None)])]


def _clipped(x: Expr, low: Expr | None, high: Expr | None) -> Expr:
    if low is not None and high is not None:
        return apply("clip", x, low, high)
    if low is not None:
        return apply("max", x, low)
    return x if high is None else apply("min", x, high)


def _pow(call: OnnxNode) -> Sequence[Operand]:
    base, exponent = _pair(call)
    array = call.build.array(exponent)
    power = float(array.item()) if array is not None and array.size == 1 else None
    # An exponent of more axes would give the result some.
    if power is not None and base.dtype.is_float and exponent.rank <= base.rank:
        if power == 2:
            return [pointwise(call, lambda x: apply("mul", x, x), [base])]
        if power == 0.5:
            return [pointwise(call, partial(apply, "sqrt"), [base])]
    # Operands of an expression have one type; the result has the base's.
    if exponent.dtype.arithmetic is not base.dtype.arithmetic:
        exponent = cast_to(call, exponent, base.dtype)
    operands = [base, exponent]
    return [pointwise(call, partial(apply, "pow"), operands, base.dtype)]


def _mod(call: OnnxNode) -> Sequence[Operand]:
    return _same(call, "fmod" if call.flag("fmod") else "mod")


def _bits(call: OnnxNode, op: str) -> Sequence[Operand]:
    kind = call.value(0).dtype
    if kind.is_float or kind is DType.BOOL:
        raise call.broken(f"bits of {kind.value}")
    return _same(call, op)


def _bit_shift(call: OnnxNode) -> Sequence[Operand]:
    direction = call.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise call.broken(f"direction {direction!r}")
    return _bits(call, f"shift_{direction.lower()}")


def _where(call: OnnxNode) -> Sequence[Operand]:
    operands = [call.value(index) for index in range(3)]
    return [pointwise(call, partial(apply, "where"), operands, common(operands[1:]))]


def _hard_sigmoid(call: OnnxNode) -> Sequence[Operand]:
    alpha, beta = call.number("alpha", 0.2), call.number("beta", 0.5)
    return _unary(call, lambda x: apply("hard_sigmoid", x, const(alpha), const(beta)))


def _gelu(call: OnnxNode) -> Sequence[Operand]:
    form = call.text("approximate", "none")
    if form == "none":
        return _unary(call, partial(apply, "gelu"))
    if form != "tanh":
        raise call.broken(f"approximate {form!r}")
    return _unary(call, gelu_tanh)


def _selu(call: OnnxNode) -> Sequence[Operand]:
    defaults = _OLD_SELU if call.opset < _SINCE_PURE else (_SELU_ALPHA, _SELU_GAMMA)
    alpha, gamma = call.number("alpha", defaults[0]), call.number("gamma", defaults[1])
    return _unary(call, lambda x: apply("mul", apply("elu", x, const(alpha)), const(gamma)))


def _celu(call: OnnxNode) -> Sequence[Operand]:
    alpha = const(call.number("alpha", 1.0))
    # The exponent is x / alpha, which Elu's own alpha does not scale.
    inner = const(1.0)
    return _unary(call, lambda x: apply("mul", apply("elu", apply("div", x, alpha), inner), alpha))


def _thresholded_relu(call: OnnxNode) -> Sequence[Operand]:
    alpha = const(call.number("alpha", 1.0))
    return _unary(call, lambda x: apply("where", apply("greater", x, alpha), x, const(0)))


def _swish(call: OnnxNode) -> Sequence[Operand]:
    alpha = call.number("alpha", 1.0)
    return _unary(call, lambda x: swish(x, alpha))


def _shrink(call: OnnxNode) -> Sequence[Operand]:
    threshold, bias = const(call.number("lambd", 0.5)), const(call.number("bias", 0.0))

    def make(x: Expr) -> Expr:
        below, above = apply("add", x, bias), apply("sub", x, bias)
        rest = apply("where", apply("greater", x, threshold), above, const(0))
        return apply("where", apply("less", x, apply("neg", threshold)), below, rest)

    return _unary(call, make)


def _exponentials(call: OnnxNode, sign: str) -> Sequence[Operand]:
    """Sinh and Cosh."""

    def make(x: Expr) -> Expr:
        both = apply(sign, apply("exp", x), apply("exp", apply("neg", x)))
        return apply("mul", both, const(0.5))

    return _unary(call, make)


def _tan(call: OnnxNode) -> Sequence[Operand]:
    return _unary(call, lambda x: apply("div", apply("sin", x), apply("cos", x)))


def _dropout(call: OnnxNode) -> Sequence[Operand]:
    # Up to version 6 training was what one got without the attribute.
    if call.opset < _SINCE_NUMPY and not call.flag("is_test") and call.number("ratio", 0.5):
        raise Refusal("dropout in training mode, which is random: export it in eval mode")
    if call.has(2) and bool(call.constant(2, "training_mode").any()):
        # Without an operand for it, the ratio is 0.5.
        ratio = float(call.constant(1, "the ratio").item()) if call.has(1) else 0.5
        if ratio:
            raise Refusal("dropout in training mode, which is random: export it in eval mode")
    if len(call.node.outputs) < 2:
        return [call.operand(0)]
    kept = call.build.constant(np.ones((), np.bool_), "kept")
    return [call.operand(0), move(call, kept, broadcast_map((), call.shape(0)))]


def _identity(call: OnnxNode) -> Sequence[Result]:
    found = call.given[0] if call.given else None
    return [found if isinstance(found, TensorList) else call.operand(0)]


def _cast(call: OnnxNode) -> Sequence[Operand]:
    if call.opset < _SINCE_PURE:
        dtype = NAMED_DTYPES.get(call.text("to", "").upper())
    else:
        dtype = ONNX_DTYPES.get(call.integer("to", 0))
    if dtype is None:
        raise Refusal("casts to an element type that Saccade does not have")
    return [_as_type(call, dtype)]


def _cast_like(call: OnnxNode) -> Sequence[Operand]:
    return [_as_type(call, call.operand(1).dtype)]


def _as_type(call: OnnxNode, dtype: DType) -> Operand:
    x = call.operand(0)
    saturate, mode = call.flag("saturate", default=True), call.text("round_mode", "up")
    # Sizes are whole, and few of them are numbers of a float of 8 bits.
    if isinstance(x, Symbolic) and not (dtype.is_narrow and dtype.is_float):
        elements = np.frompyfunc(lambda e: cast(e, dtype), 1, 1)(x.array)
        return Symbolic(dtype, np.asarray(elements, dtype=object))
    value = call.value(0)
    # Its infinities saturate, too.
    if value.dtype is dtype and dtype is not DType.F8E5M2:
        return value
    if dtype is DType.F8E8M0:
        return to_exponents(call, value, saturate=saturate, mode=mode)
    if saturate and dtype in LARGEST:
        return pointwise(call, partial(saturated, dtype=dtype), [value], dtype)
    return cast_to(call, value, dtype)


def _table() -> dict[str, Importer]:
    unary = {
        "Neg": "neg", "Abs": "abs", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Floor": "floor",
        "Ceil": "ceil", "Round": "round", "Sign": "sign", "Relu": "relu", "Sigmoid": "sigmoid",
        "Tanh": "tanh", "Erf": "erf", "Softplus": "softplus", "Softsign": "softsign",
        "HardSwish": "hardswish", "Mish": "mish", "Sin": "sin", "Cos": "cos",
        "Reciprocal": "reciprocal",
    }  # fmt: skip
    binary = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
    logic = {
        "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater",
        "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or", "Xor": "xor",
    }  # fmt: skip
    plain: dict[str, Importer] = {name: partial(_same, op=op) for name, op in unary.items()}
    plain |= {name: partial(_binary, op=op) for name, op in binary.items()}
    plain |= {name: partial(_binary, op=op, dtype=DType.BOOL) for name, op in logic.items()}
    plain |= {
        "Sum": partial(_variadic, op="add"),
        "Mean": partial(_variadic, op="add", mean=True),
        "Min": partial(_variadic, op="min"),
        "Max": partial(_variadic, op="max"),
        "LeakyRelu": partial(_with_number, op="leaky_relu", attribute="alpha", default=0.01),
        "Elu": partial(_with_number, op="elu", attribute="alpha", default=1.0),
        "Not": partial(_same, op="not", dtype=DType.BOOL),
        "IsNaN": partial(_same, op="isnan", dtype=DType.BOOL),
        "PRelu": _prelu,
        "Clip": _clip,
        "Pow": _pow,
        "Mod": _mod,
        "BitShift": _bit_shift,
        "BitwiseNot": partial(_bits, op="bit_not"),
        "BitwiseAnd": partial(_bits, op="bit_and"),
        "BitwiseOr": partial(_bits, op="bit_or"),
        "BitwiseXor": partial(_bits, op="bit_xor"),
        "Where": _where,
        "HardSigmoid": _hard_sigmoid,
        "Gelu": _gelu,
        "Selu": _selu,
        "Celu": _celu,
        "ThresholdedRelu": _thresholded_relu,
        "Swish": _swish,
        "Shrink": _shrink,
        "Sinh": partial(_exponentials, sign="sub"),
        "Cosh": partial(_exponentials, sign="add"),
        "Tan": _tan,
    }
    plain |= {name: partial(_unary, make=make) for name, make in INVERSE.items()}
    table = {name: with_symbols(importer) for name, importer in plain.items()}
    # These look at symbolic contents themselves.
    return table | {
        "Cast": _cast,
        "CastLike": _cast_like,
        "Dropout": _dropout,
        "Identity": _identity,
    }


POINTWISE = _table()
"""Importers of the default domain by operator."""
