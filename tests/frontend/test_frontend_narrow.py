"""float8, float4, int4 and int2 in files: casts, quantisation, movement and bits, bit by bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from narrow_models import CODES, NARROW, alike, bits, model, patterns, same_bits
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_cast import cast_to

import saccade
from saccade.errors import ModelError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import DType
from saccade.opdefs import BitCast

F32, F16, F64, I4, U8 = DType.F32, DType.F16, DType.F64, DType.I4, DType.U8
FLOATS = [d for d in NARROW if d.is_float]
INTEGERS = [d for d in NARROW if not d.is_float]
EXPONENTS = DType.F8E8M0


def _cast(source, to, **attributes):
    node = helper.make_node("Cast", ["x"], ["y"], to=CODES[to], **attributes)
    return model([node], {"x": (source, ["N"])}, {"y": to}, opset=25)


def _floats(dtype):
    """float32 around all numbers of the type, around all that are halfway, and far beyond."""
    numbers = np.unique(patterns(dtype).astype(np.float64))
    numbers = numbers[np.isfinite(numbers)]
    between = (numbers[1:] + numbers[:-1]) / 2
    exact = np.concatenate([numbers, between, [1e9, -1e9, 500, 465, 60000, 0, -0.0]])
    exact = exact.astype(np.float32)
    near = [np.nextafter(exact, np.float32(to)) for to in (np.inf, -np.inf)]
    return np.concatenate([exact, *near, np.array([np.inf, -np.inf, np.nan], np.float32)])


def _casts(source, kinds, op="Cast"):
    """One input in many other types."""
    nodes = [helper.make_node(op, ["x"], [d.value], to=CODES[d]) for d in kinds]
    return model(nodes, {"x": (source, ["N"])}, {d.value: d for d in kinds}, opset=26)


def _defined(x, to):
    """The elements whose casts to a type the standard defines, and the reference as it does."""
    wide = x.astype(np.float64)
    if not to.is_float and to is not DType.BOOL and DType.of(x.dtype).is_float:
        x = x[(np.abs(wide) < 100) & ((wide >= 0) | (to.value[0] != "u"))]
    return x[x.astype(np.float64) > 0] if to is EXPONENTS else x


@pytest.mark.parametrize("source", NARROW, ids=lambda d: d.value)
def test_casts_between_all_of_them(source):
    others = [d for d in NARROW if (source, d) != (EXPONENTS, EXPONENTS)]
    for kinds in ([d for d in others if d.is_float], INTEGERS):
        x = patterns(source)
        for kind in kinds:
            x = _defined(x, kind)
        compiled = saccade.compile(_casts(source, kinds), threads=1)
        assert all(step.kernel for step in compiled.plan(x=x.shape).steps)
        for name, found in compiled.run({"x": x}).items():
            # The evaluator's own cast, by way of float32: not all pairs are there.
            wanted = cast_to(x.astype(np.float32), CODES[DType(name)], saturate=True)
            alike(found, wanted, name)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.value)
def test_casts_to_others(dtype):
    x = patterns(dtype)
    same_bits(_casts(dtype, [F32, F16, DType.BF16, DType.BOOL]), {"x": x})
    same_bits(_casts(dtype, [F64]), {"x": x}, host=True)
    whole = [DType.I32, DType.I64, U8, DType.I16]
    same_bits(_casts(dtype, whole), {"x": _defined(x, U8)})


@pytest.mark.parametrize(
    "source", [F32, F16, DType.BF16, DType.I32, DType.I64, U8, DType.BOOL, F64], ids=str
)
def test_casts_from_others(source):
    x = np.float32([0, 1, 2, 3, 5, 6, 7, 0.3, 1.5, 2.5, 3.5, 90, 255, 0.01, 33]).astype(
        source.numpy
    )
    host = source is F64
    same_bits(_casts(source, [d for d in NARROW if d is not EXPONENTS]), {"x": x}, host=host)
    same_bits(_casts(source, [EXPONENTS]), {"x": _defined(x, EXPONENTS)}, host=host)


def test_a_cast_to_the_same_type_is_none():
    x = patterns(EXPONENTS)
    assert not frontend.load(_cast(EXPONENTS, EXPONENTS)).nodes
    alike(saccade.compile(_cast(EXPONENTS, EXPONENTS)).run({"x": x})["y"], x)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d is not EXPONENTS], ids=lambda d: d.value)
@pytest.mark.parametrize("saturate", [0, 1])
def test_what_is_too_large(dtype, saturate):
    same_bits(_cast(F32, dtype, saturate=saturate), {"x": _floats(dtype)})
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    same_bits(_cast(F16, dtype, saturate=saturate), {"x": halves})
    whole = np.array([0, 3, -9, 240, 256, 465, -500, 60000, -70000, 2**31 - 1], np.int32)
    same_bits(_cast(DType.I32, dtype, saturate=saturate), {"x": whole})
    like = helper.make_node("CastLike", ["x", "t"], ["y"], saturate=saturate)
    inputs = {"x": (F32, ["N"]), "t": (dtype, [2])}
    proto = model([like], inputs, {"y": dtype})
    same_bits(proto, {"x": _floats(dtype), "t": patterns(dtype)[:2]})


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_exponents_round_in_three_ways(mode, saturate):
    x = np.abs(_floats(EXPONENTS))
    noise = np.random.default_rng(0).integers(0, 0x7F800000, 5000, dtype=np.uint32)
    x = np.concatenate([x, noise.view(np.float32), np.float32([1e-45, 3e38, 1.5, 3])])
    same_bits(_cast(F32, EXPONENTS, round_mode=mode, saturate=saturate), {"x": x})
    with pytest.raises(ModelError, match="round_mode 'sideways'"):
        frontend.load(_cast(F32, EXPONENTS, round_mode="sideways"))


def _quantised(dtype, shape, scale, zero=None, **attributes):
    names = ["x", "s", *([] if zero is None else ["z"])]
    weights = [numpy_helper.from_array(scale, "s")]
    if zero is not None:
        weights.append(numpy_helper.from_array(zero, "z"))
    nodes = [
        helper.make_node("QuantizeLinear", names, ["q"], output_dtype=CODES[dtype], **attributes),
        helper.make_node("DequantizeLinear", ["q", *names[1:]], ["y"], **{
            k: v for k, v in attributes.items() if k != "saturate"}),
    ]  # fmt: skip
    return model(nodes, {"x": (F32, shape)}, {"q": dtype, "y": F32}, weights, 25)


@pytest.mark.parametrize("dtype", [d for d in NARROW if d is not EXPONENTS], ids=lambda d: d.value)
def test_quantisation_by_one_scale_an_axis_and_blocks(dtype):
    x = np.random.default_rng(1).normal(0, 30, (3, 8)).astype(np.float32)
    x[0, :4] = [0, -0.0 if dtype.is_float else 1, 1e7, -1e7]
    one, each = np.float32(0.37), np.linspace(0.2, 2, 3, dtype=np.float32)
    blocks = np.linspace(0.1, 1.5, 6, dtype=np.float32).reshape(3, 2)
    fractions = dtype.is_float
    for scale, attributes in ((np.asarray(one), {}), (each, {"axis": 0}),
                              (blocks, {"axis": 1, "block_size": 4})):  # fmt: skip
        same_bits(_quantised(dtype, ["N", 8], scale, **attributes), {"x": x})
        zero = np.zeros(scale.shape, np.float32) if fractions else np.resize([1, 0], scale.shape)
        proto = _quantised(dtype, ["N", 8], scale, zero.astype(dtype.numpy), **attributes)
        same_bits(proto, {"x": x})


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.F8E5M2FNUZ], ids=lambda d: d.value)
def test_quotients_that_do_not_saturate(dtype):
    x = _floats(dtype).reshape(-1)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], saturate=0)
    weights = [
        numpy_helper.from_array(np.float32(0.5), "s"),
        numpy_helper.from_array(np.zeros((), dtype.numpy), "z"),
    ]
    same_bits(model([node], {"x": (F32, ["N"])}, {"y": dtype}, weights), {"x": x})


def test_float8_has_no_other_zero_point_than_zero():
    zero = np.ones((), DType.F8E5M2.numpy)
    with pytest.raises(ModelError, match="zero point of float8_e5m2 that is not 0"):
        frontend.load(_quantised(DType.F8E5M2, [4], np.float32(1), zero))


def test_scales_may_be_exponents():
    x = np.random.default_rng(2).integers(0, 16, (2, 8)).astype(np.uint8).view(DType.F4E2M1.numpy)
    scale = np.array([[120, 130], [127, 1]], np.uint8).view(EXPONENTS.numpy)
    node = helper.make_node(
        "DequantizeLinear", ["x", "s"], ["y"], axis=1, block_size=4, output_dtype=1
    )
    inputs = {"x": (DType.F4E2M1, [2, 8]), "s": (EXPONENTS, [2, 2])}
    (y,) = same_bits(model([node], inputs, {"y": F32}, opset=25), {"x": x, "s": scale}).values()
    assert y[0, 0] == x[0, 0].astype(np.float32) / 128


@pytest.mark.parametrize("dtype", [DType.F8E5M2, DType.F8E8M0, DType.F4E2M1, I4, DType.U2], ids=str)
def test_what_only_moves_keeps_every_bit(dtype):
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Transpose", ["i"], ["t"], perm=[2, 0, 1]),
        helper.make_node("Reshape", ["t", "rows"], ["r"]),
        helper.make_node("Slice", ["r", "one", "far", "last", "two"], ["s"]),
        helper.make_node("Concat", ["s", "w", "s"], ["c"], axis=1),
        helper.make_node("Gather", ["c", "at"], ["g"], axis=1),
        helper.make_node("Split", ["g"], ["h", "k"], axis=1, num_outputs=2),
        helper.make_node("Unsqueeze", ["k", "one"], ["u"]),
        helper.make_node("Expand", ["u", "wide"], ["e"]),
        helper.make_node("Pad", ["h", "pads"], ["p"]),
    ]
    weights = {
        "rows": np.array([4, -1]), "one": np.array([1]), "far": np.array([99]),
        "last": np.array([-1]), "two": np.array([2]), "at": np.array([5, 0, -1, 3]),
        "wide": np.array([1, 3, 1]), "pads": np.array([0, 1, 1, 0]),
        "w": np.resize(patterns(dtype), (4, 3)),
    }  # fmt: skip
    proto = model(
        nodes, {"x": (dtype, ["N", 8, 8])}, dict.fromkeys("sceph", dtype),
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    x = np.resize(patterns(dtype), (4, 8, 8))
    compiled = saccade.compile(proto, threads=1)
    assert all(step.kernel for step in compiled.plan(x=x.shape).steps)
    found = compiled.run({"x": x})
    rows = bits(x).transpose(2, 0, 1).reshape(4, -1)
    s = rows[:, 1:99:2]
    c = np.concatenate([s, bits(weights["w"]), s], axis=1)
    g = c[:, [5, 0, -1, 3]]
    p = np.pad(bits(g[:, :2]), ((0, 1), (1, 0)), constant_values=0)
    wanted = {"s": s, "c": c, "e": np.repeat(g[:, None, 2:], 3, axis=1), "h": g[:, :2], "p": p}
    for name, one in wanted.items():
        # No zero is among the exponents: what is padded with is left to `ml_dtypes`.
        if (name, dtype) != ("p", EXPONENTS):
            np.testing.assert_array_equal(bits(found[name]), one, err_msg=name)


def test_choices_and_branches():
    nodes = [helper.make_node("Where", ["c", "x", "z"], ["y"])]
    dtype = DType.F8E4M3FN
    inputs = {"c": (DType.BOOL, [16]), "x": (dtype, [16]), "z": (dtype, [1])}
    proto = model(nodes, inputs, {"y": dtype})
    x, z = patterns(dtype)[3:19], patterns(dtype)[99:100]
    c = np.arange(16) % 3 == 0
    (y,) = saccade.compile(proto).run({"c": c, "x": x, "z": z}).values()
    alike(y, np.where(c, x, z))


def test_constants_fold_to_what_runs_give():
    x = np.float32([0.3, -7, 1e9, np.nan, 3.3])
    for dtype in NARROW:
        given = x if dtype.is_float and dtype is not EXPONENTS else np.float32([0, 1, 1, 1, 2])
        first = helper.make_node("Cast", ["w"], ["q"], to=CODES[dtype])
        second = helper.make_node("Cast", ["q"], ["y"], to=1)
        weights = [numpy_helper.from_array(given, "w")]
        proto = model([first, second], {"x": (F32, [1])}, {"y": F32, "q": dtype}, weights)
        assert not frontend.load(proto).nodes
        wanted = ReferenceEvaluator(proto).run(None, {"x": x[:1]})
        found = saccade.compile(proto).run({"x": x[:1]}).values()
        for ours, theirs in zip(found, wanted, strict=True):
            alike(ours, theirs, dtype.value)


@pytest.mark.parametrize("op", ["Add", "MatMul", "ReduceSum", "Softmax"])
def test_arithmetic_on_them_is_left_out_or_rounded(op):
    names = ["x", "x"] if op in ("Add", "MatMul") else ["x"]
    proto = model([helper.make_node(op, names, ["y"])], {"x": (I4, [4, 4])}, {"y": I4})
    if op == "Add":
        x = patterns(I4).reshape(4, 4)
        (y,) = saccade.compile(proto).run({"x": x}).values()
        alike(y, (2 * x.astype(np.int8)).astype(I4.numpy))
        return
    with pytest.raises(UnsupportedModelError, match="works on elements of type int4"):
        frontend.load(proto)


def _bit_cast(source, to, shape=(5, 7)):
    node = helper.make_node("BitCast", ["x"], ["y"], to=CODES[to])
    return model([node], {"x": (source, list(shape))}, {"y": to}, opset=26)


@pytest.mark.parametrize("source", [d for d in CODES if d is not DType.BOOL], ids=str)
def test_bits_as_any_type_of_as_many(source):
    kinds = [d for d in CODES if d.bits == source.bits and d is not DType.BOOL]
    raw = np.random.default_rng(3).integers(0, 256, 35 * source.itemsize, dtype=np.uint8)
    if source.bits < 8:
        raw &= (1 << source.bits) - 1
    x = raw.view(source.numpy)
    found = saccade.compile(_casts(source, kinds, "BitCast"), threads=1).run({"x": x})
    for kind in kinds:
        assert found[kind.value].dtype == kind.numpy
        np.testing.assert_array_equal(bits(found[kind.value]), bits(x), err_msg=kind.value)


def test_bits_of_truth_values():
    proto = _bit_cast(U8, DType.BOOL, (4,))
    (y,) = saccade.compile(proto).run({"x": np.array([0, 1, 2, 255], np.uint8)}).values()
    np.testing.assert_array_equal(bits(y), [0, 1, 1, 1])
    x = np.array([True, False])
    (y,) = saccade.compile(_bit_cast(DType.BOOL, DType.I8, (2,))).run({"x": x}).values()
    np.testing.assert_array_equal(y, np.array([1, 0], np.int8), strict=True)


def test_bits_of_another_width_are_refused():
    for source, to in ((F32, DType.I64), (I4, U8), (DType.U2, I4)):
        with pytest.raises(ModelError, match="reads"):
            frontend.load(_bit_cast(source, to))


def test_bits_are_read_where_they_lie():
    """Between other steps no copy is made, and the sign of a float is a bit of its integer."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("BitCast", ["r"], ["i"], to=6),
        helper.make_node("BitwiseOr", ["i", "sign"], ["o"]),
        helper.make_node("BitCast", ["o"], ["y"], to=1),
    ]
    weights = [numpy_helper.from_array(np.array([-(1 << 31)], np.int32), "sign")]
    proto = model(nodes, {"x": (F32, [2, 3, 4, 5])}, {"y": F32}, weights, 26)
    assert sum(isinstance(node.op, BitCast) for node in frontend.load(proto).nodes) == 2
    compiled = saccade.compile(proto, threads=1)
    x = np.random.default_rng(4).normal(size=(2, 3, 4, 5)).astype(np.float32)
    (y,) = compiled.run({"x": x}).values()
    alike(y, -np.maximum(x, 0))
    assert len(compiled.plan(x=x.shape).steps) == 2


def test_bits_beside_each_other_and_of_inputs():
    nodes = [
        helper.make_node("BitCast", ["x"], ["i"], to=6),
        helper.make_node("Concat", ["i", "i"], ["c"], axis=0),
        helper.make_node("BitCast", ["c"], ["y"], to=1),
        helper.make_node("BitCast", ["w"], ["k"], to=5),
    ]
    weights = [numpy_helper.from_array(np.float16([1.5, -2]), "w")]
    outputs = {"y": F32, "i": DType.I32, "k": DType.I16}
    proto = model(nodes, {"x": (F32, ["N", 3])}, outputs, weights, 26)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = saccade.compile(proto).run({"x": x})
    np.testing.assert_array_equal(found["y"], np.concatenate([x, x]))
    np.testing.assert_array_equal(found["i"], x.view(np.int32))
    np.testing.assert_array_equal(found["k"], np.float16([1.5, -2]).view(np.int16))


def test_bits_of_halves_are_those_that_were_rounded():
    """float16 is computed with in float32; what reads its bits sees it rounded."""
    for code, to, kind in ((10, 5, np.float16), (16, 5, DType.BF16.numpy)):
        nodes = [
            helper.make_node("Cast", ["x"], ["h"], to=code),
            helper.make_node("BitCast", ["h"], ["i"], to=to),
            helper.make_node("BitCast", ["i"], ["b"], to=code),
            helper.make_node("Cast", ["b"], ["y"], to=1),
        ]
        proto = model(nodes, {"x": (F32, [9])}, {"i": DType.I16, "y": F32}, opset=26)
        x = np.linspace(-3, 3, 9, dtype=np.float32) / 3
        found = saccade.compile(proto).run({"x": x})
        rounded = x.astype(kind)
        np.testing.assert_array_equal(found["i"], rounded.view(np.int16))
        np.testing.assert_array_equal(found["y"], rounded.astype(np.float32))


@pytest.mark.parametrize("precision", ["bf16"])
def test_lower_precision_leaves_bits_alone(precision):
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["m"]),
        helper.make_node("BitCast", ["m"], ["i"], to=6),
        helper.make_node("BitCast", ["i"], ["f"], to=1),
        helper.make_node("Neg", ["f"], ["n"]),
        helper.make_node("Mul", ["n", "n"], ["y"]),
    ]
    proto = model(nodes, {"x": (F32, [64])}, {"y": F32}, opset=26)
    x = np.linspace(1, 2, 64, dtype=np.float32)
    (y,) = saccade.compile(proto, precision=precision).run({"x": x}).values()
    np.testing.assert_allclose(y, x**4, rtol=2e-2)


def test_a_file_of_them_starts_warm_and_on_the_reference(tmp_path):
    path = tmp_path / "m.onnx"
    proto = _cast(F32, DType.F8E4M3FN)
    onnx.save(proto, path)
    x = np.float32([1, 2, 300, -0.1])
    wanted = x.astype(DType.F8E4M3FN.numpy)
    for options in ({}, {}, {"device": "reference"}):
        (y,) = saccade.compile(path, **options).run({"x": x}).values()
        alike(y, wanted)
    saved = tmp_path / "m.saccade"
    saccade.compile(path).save(saved, {"x": (4,)})
    alike(saccade.compile(saved).run({"x": x})["y"], wanted)


def test_inputs_of_another_type_are_refused():
    model_ = saccade.compile(_cast(DType.F8E4M3FN, F32))
    with pytest.raises(saccade.errors.InputError, match="must be float8_e4m3fn"):
        model_.run({"x": np.zeros(3, np.uint8)})
