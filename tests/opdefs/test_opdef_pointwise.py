"""Every operator of expressions against onnxruntime, at values that tell conventions apart."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import evaluate, symbol
from saccade.ir.expr import ARITY, BIT_OPERATORS, apply, arg, const, parse
from saccade.opdefs import Pointwise
from saccade.opdefs._erf import erf
from saccade.opdefs.expr_numpy import evaluate as evaluate_expr
from saccade.testing.tolerance import assert_close, assert_exact

F32, I32, I64, BOOL = DType.F32, DType.I32, DType.I64, DType.BOOL
SPECIAL = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.0, -3.0, 20.0, -20.0, 1e-3, 88.0, -104.0]
FLOAT_UNARY = {  # operator: ONNX
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "sqrt": "Sqrt", "log": "Log",
    "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign",
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "erf": "Erf", "softplus": "Softplus",
    "softsign": "Softsign", "hardswish": "HardSwish", "gelu": "Gelu", "mish": "Mish",
    "sin": "Sin", "cos": "Cos",
}  # fmt: skip
BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "min": "Min",
    "max": "Max", "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual",
}  # fmt: skip
COMPARISONS = {"equal", "less", "less_equal", "greater", "greater_equal"}
BY_FORMULA = {"rsqrt", "silu"}  # no ONNX operator
TESTED_BELOW = {
    "not", "isnan", "mod", "fmod", "and", "or", "xor", "where", "clip", "hard_sigmoid",
    "leaky_relu", "elu",
}  # fmt: skip


def of(op, dtype=F32):
    return Pointwise(apply(op, *map(arg, range(ARITY[op]))), dtype)


def test_every_operator_is_tested():
    assert {*FLOAT_UNARY, *BINARY, *BY_FORMULA, *TESTED_BELOW, *BIT_OPERATORS} == set(ARITY)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_bits(dtype):
    """Against Python's own integers, of as many bits as are wanted."""
    info, bits = np.iinfo(dtype), np.dtype(dtype).itemsize * 8
    values = [info.max, info.min, 0, 1, 5, 100, info.max // 3]
    shifts = [0, 1, bits - 1, bits, 100, *((-1, -bits) if info.min else ())]

    def wrapped(number):
        number &= 2**bits - 1
        return number - 2**bits if info.min and number >= 2 ** (bits - 1) else number

    def shifted(x, y):
        within = 0 <= y < bits
        return wrapped(x << y) if within else 0, x >> y if within else -(x < 0)

    x, y = (np.array(v, dtype).reshape(s) for v, s in ((values, (-1, 1)), (shifts, (1, -1))))
    for place, name in enumerate(("shift_left", "shift_right")):
        (found,) = of(name, DType(dtype)).reference(x, y)
        expected = [[shifted(a, b)[place] for b in shifts] for a in values]
        assert found.dtype == dtype and found.tolist() == expected
    formulas = {"bit_and": int.__and__, "bit_or": int.__or__, "bit_xor": int.__xor__}
    for name, formula in formulas.items():
        (found,) = of(name, DType(dtype)).reference(x, x.T)
        assert found.tolist() == [[formula(a, b) for b in values] for a in values]
    (found,) = of("bit_not", DType(dtype)).reference(x)
    assert found.ravel().tolist() == [wrapped(~a) for a in values]


@pytest.mark.parametrize("op", FLOAT_UNARY)
def test_unary_agrees(op, rng, peer):
    x = np.concatenate([SPECIAL, 3 * rng.standard_normal(201)]).astype(np.float32)
    if op in ("log", "sqrt"):
        x = np.abs(x)
    if op in ("exp", "sin", "cos"):
        x = np.clip(x, -80, 80)
    if op == "reciprocal":
        x = np.where(x == 0, np.float32(1), x)
    (truth,) = of(op, DType.F64).reference(x.astype(np.float64))
    (narrow,) = of(op).reference(x)
    assert_close(peer(FLOAT_UNARY[op], (x,)), truth, dtype=F32, k=4)
    assert_close(narrow, truth, dtype=F32, k=1)
    order = np.argsort(np.abs(truth))  # large results must not hide errors in small ones
    for part in np.array_split(order, 1 if op == "gelu" else 8):  # gelu's tail cancels
        assert_close(narrow[part], truth[part], dtype=F32, k=4)


def test_operators_without_an_onnx_one(rng):
    x = np.abs(rng.standard_normal(50)) + 0.1
    np.testing.assert_allclose(of("rsqrt", DType.F64).reference(x)[0], x**-0.5, rtol=1e-15)
    silu = x / (1 + np.exp(-x))
    np.testing.assert_allclose(of("silu", DType.F64).reference(x)[0], silu, rtol=1e-15)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", [F32, I32, I64])
def test_binary_agrees(op, dtype, rng, peer, agrees_exactly):
    x = rng.integers(-9, 10, (2, 1, 31)).astype(dtype.numpy)
    y = rng.integers(1, 6, (5, 1)).astype(dtype.numpy)
    if dtype is not F32 and op == "div":
        y[:2] *= -1
    result = BOOL if op in COMPARISONS else dtype
    agrees_exactly(of(op, result), (x, y), peer(BINARY[op], (x, y)))


@pytest.mark.parametrize("dtype", [F32, I32, I64, DType.I8])
def test_remainders_have_their_signs(dtype, peer, agrees_exactly):
    x = np.array([-7, -6, -1, 0, 1, 6, 7, 5], dtype.numpy)
    y = np.array([[3], [-3], [5], [-7]], dtype.numpy)
    agrees_exactly(of("fmod", dtype), (x, y), peer("Mod", (x, y), fmod=1))
    if dtype is F32:  # ONNX defines Mod of floats only by fmod
        assert_exact(of("mod").reference(x, y)[0], np.mod(x, y))
    else:
        agrees_exactly(of("mod", dtype), (x, y), peer("Mod", (x, y)))
    assert (of("mod", dtype).reference(x, y)[0] != of("fmod", dtype).reference(x, y)[0]).any()


def test_logic_agrees(peer, agrees_exactly):
    x, y = np.array([[False], [True]]), np.array([False, True, True])
    for op in ("and", "or", "xor"):
        agrees_exactly(of(op, BOOL), (x, y), peer(op.capitalize(), (x, y)))
    agrees_exactly(of("not", BOOL), (x,), peer("Not", (x,)))
    z = np.array([1.0, np.nan, np.inf], np.float32)
    agrees_exactly(of("isnan", BOOL), (z,), peer("IsNaN", (z,)))
    agrees_exactly(of("equal", BOOL), (x, y), peer("Equal", (x, y)))


def test_parametrised_agree(rng, peer, agrees, agrees_exactly):
    x = (3 * rng.standard_normal((2, 3, 5))).astype(np.float32)
    slope = np.array([[0.1], [-2.0], [0.0]], np.float32)
    agrees(of("leaky_relu"), (x, slope), peer("PRelu", (x, slope)), k=1)
    leaky = Pointwise(apply("leaky_relu", arg(0), const(0.01)), F32)
    agrees(leaky, (x,), peer("LeakyRelu", (x,), alpha=0.01), k=1)
    elu = Pointwise(apply("elu", arg(0), const(0.7)), F32)
    agrees(elu, (x,), peer("Elu", (x,), alpha=0.7), k=2)
    hard = Pointwise(apply("hard_sigmoid", arg(0), const(0.25), const(0.4)), F32)
    agrees(hard, (x,), peer("HardSigmoid", (x,), alpha=0.25, beta=0.4), k=1)
    clip = Pointwise(apply("clip", arg(0), const(-1), const(2)), F32)
    low, high = np.array(-1, np.float32), np.array(2, np.float32)
    agrees_exactly(clip, (x,), peer("Clip", (x, low, high)))
    condition = rng.integers(0, 2, (3, 1)).astype(bool)
    agrees_exactly(
        Pointwise(parse("where($0, $1, $2)"), F32),
        (condition, x, -x),
        peer("Where", (condition, x, -x)),
    )


def test_an_empty_clip_range_gives_the_upper_bound():
    x = np.array([-5.0, 0.0, 5.0])
    assert_exact(Pointwise(parse("clip($0, 3.0, 1.0)"), DType.F64).reference(x)[0], np.ones(3))


def test_integers_keep_their_type_beside_literals():
    x = np.array([2**53 + 1, -7, 7], np.int64)
    (got,) = Pointwise(parse("div(add($0, 1.0), 2.0)"), I64).reference(x)
    assert_exact(got, np.array([2**52 + 1, -3, 4], np.int64))
    (open_clip,) = Pointwise(parse("clip($0, -inf, inf)"), I64).reference(x)
    assert_exact(open_clip, x)


def test_nothing_warns_and_ieee_rules_hold():
    x = np.array([1.0, 0.0, -1.0, np.nan], np.float32)
    (got,) = Pointwise(parse("div($0, 0.0)"), F32).reference(x)
    assert_exact(got, np.array([np.inf, np.nan, -np.inf, np.nan], np.float32))
    (relu,) = Pointwise(parse("relu($0)"), F32).reference(x)
    assert_exact(relu, np.array([1, 0, 0, np.nan], np.float32))
    (zero,) = of("div", I32).reference(np.array([5], np.int32), np.array([0], np.int32))
    assert zero.dtype == np.int32  # any value, but no trap


CASTS = [
    (F32, I64), (F32, BOOL), (F32, DType.F16), (DType.F64, F32), (I64, F32), (I64, I32),
    (BOOL, F32), (BOOL, I64), (I32, BOOL), (F32, DType.U8), (DType.U8, F32), (I64, DType.I8),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_cast_agrees(source, target, peer, agrees_exactly):
    values = [0, 1, 2.5, 3.999, 100.7, 0.1]
    if target is not DType.U8:
        values += [-1, -2.5, -3.999]
    if target is I32:
        values += [2**33 + 5]
    x = np.array(values).astype(source.numpy)
    to = onnx.helper.np_dtype_to_tensor_dtype(target.numpy)
    agrees_exactly(Pointwise(arg(0), target), (x,), peer("Cast", (x,), to=to))


def test_bools_count_as_numbers():
    mask = np.array([True, False])
    x = np.array([3.0, 4.0], np.float32)
    assert_exact(Pointwise(parse("mul($0, $1)"), F32).reference(mask, x)[0], x * mask)
    assert_exact(Pointwise(parse("add($0, $0)"), I64).reference(mask)[0], np.array([2, 0]))
    steps = Pointwise(parse("mul(greater($0, 3.5), $0)"), F32)
    assert_exact(steps.reference(x)[0], np.array([0, 4], np.float32))


def test_an_expression_without_operands_fills_the_shape():
    x = np.zeros((2, 3), np.float32)
    assert_exact(Pointwise(const(7), I64).reference(x)[0], np.full((2, 3), 7))


def test_shared_subtrees_are_evaluated_once():
    e = arg(0)
    for _ in range(200):  # 2^200 paths
        e = apply("add", e, e)
    assert evaluate_expr(e, [np.array([1.0])])[0] == 2.0**200


def test_erf_is_accurate_to_the_last_places():
    x = np.concatenate([np.linspace(-6.5, 6.5, 20011), np.logspace(-300, 0, 500), [-np.inf]])
    truth = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), truth, rtol=5e-16, atol=0)
    assert np.isnan(erf(np.array([np.nan]))[0])
    assert math.copysign(1, erf(np.array([-0.0]))[0]) == -1


def test_chain_agrees_with_the_onnx_reference(rng):
    """A whole expression with literals, against a model of the same chain."""
    text = """one (float[2,7] x, float[7] s) => (float[2,7] y) {
        a = Mul(x, s)
        b = Sigmoid(a)
        y = Mul(a, b)
    }"""
    model = onnx.helper.make_model(
        onnx.parser.parse_graph(text), opset_imports=[onnx.helper.make_opsetid("", 21)]
    )
    x, s = rng.standard_normal((2, 7)), rng.standard_normal(7)
    feed = {"x": x.astype(np.float32), "s": s.astype(np.float32)}
    (theirs,) = ReferenceEvaluator(model).run(None, feed)
    (truth,) = Pointwise(parse("silu(mul($0, $1))"), DType.F64).reference(
        *(a.astype(np.float64) for a in feed.values())
    )
    assert_close(theirs, truth, dtype=F32, k=2)


def test_symbolic_broadcast():
    n, m = symbol("N"), symbol("M")
    add = of("add")
    (one,) = add.infer([TensorType(F32, (n, 3)), TensorType(F32, (1,))])
    assert one.shape == (n, 3)
    (static,) = add.infer([TensorType(F32, (n, 3)), TensorType(F32, (5, m))])
    assert static.shape == (5, 3)
    (both,) = add.infer([TensorType(F32, (n,)), TensorType(F32, (m,))])
    for sizes, want in (((1, 4), 4), ((4, 1), 4), ((4, 4), 4)):
        assert evaluate(both.shape[0], dict(zip("NM", sizes, strict=True))) == want


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        (of("add"), [(F32, (2, 3)), (F32, (2,))], "dims 3 and 2 do not broadcast"),
        (of("add"), [(F32, (2,)), (I32, (2,))], "float32, int32"),
        (of("add"), [(F32, (2,))], "lacks operands"),
    ],
)
def test_misfits_are_refused(op, types, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(*t) for t in types])
