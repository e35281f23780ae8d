"""float16 stays float16 in the graph; what importing computes itself is not rounded to it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model

from saccade.frontend import onnx as frontend
from saccade.frontend.onnx import builder
from saccade.ir import DType, Graph, Value
from saccade.ir.expr import IDENTITY
from saccade.ir.verify import verify
from saccade.opdefs import Pointwise
from saccade.testing.interpret import interpret

F16, F32, I64 = DType.F16, DType.F32, DType.I64
HALF = np.float16
RNG = np.random.default_rng(3)


def _w(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(HALF)


def _load(model: onnx.ModelProto) -> Graph:
    graph = frontend.load(model)
    verify(graph)
    return graph


def _casts(graph: Graph) -> list[tuple[DType, DType]]:
    plain = [n for n in graph.nodes if isinstance(n.op, Pointwise) and n.op.expr == IDENTITY]
    return [(node.inputs[0].dtype, node.output.dtype) for node in plain]


def _constant(graph: Graph) -> tuple[Value, np.ndarray]:
    (found,) = graph.constants.items()
    return found


def test_inputs_weights_results_and_outputs_stay_float16() -> None:
    weights = {"w": _w(4, 3, 3, 3), "b": _w(4)}
    body = "a = Conv(x, w, b) r = Relu(a) p = MaxPool<kernel_shape=[2, 2]>(r) y = Flatten(p)"
    graph = _load(text_model(body, "float16[1, 3, 8, 8] x", "float16 y", weights=weights))
    assert {value.dtype for value in graph.values()} == {F16}
    assert not _casts(graph)


def test_casts_stay_where_the_file_has_them() -> None:
    body = "a = Cast<to=10>(x) b = Neg(a) y = Cast<to=1>(b)"
    graph = _load(text_model(body, "float[2, 3] x", "float y"))
    assert _casts(graph) == [(F32, F16), (F16, F32)]
    assert [value.dtype for value in graph.values()] == [F32, F16, F16, F32]


@pytest.mark.parametrize(("kind", "other", "code"), [(HALF, F32, 1), (np.float32, F16, 10)])
def test_casts_of_weights_stay_too_and_do_not_hide_them(
    kind: type[np.generic], other: DType, code: int
) -> None:
    """A reshape of what is cast is another look at the weights, a number among them a literal."""
    dtype = "float" if other is F32 else "float16"
    weights = {"w": RNG.standard_normal((4, 3, 1, 1)).astype(kind), "k": np.asarray(0.5, kind)}
    body = (
        f"c = Cast<to={code}>(w) a = Conv(x, c) s = Constant<value_ints=[4, 3]>() "
        f"r = Reshape(c, s) f = GlobalAveragePool(a) e = Flatten(f) m = MatMul(e, r) "
        f"n = Cast<to={code}>(k) y = Mul(m, n)"
    )
    graph = _load(text_model(body, f"{dtype}[1, 3, 4, 4] x", f"{dtype} y", weights=weights))
    assert len(_casts(graph)) == 1
    own = DType.of(np.dtype(kind))
    shapes = {(value.shape, value.dtype) for value in graph.constants}
    assert ((4, 3, 1, 1), own) in shapes and (4, 3) in {shape for shape, _ in shapes}
    assert str(graph.nodes[-1].op.expr) == "mul($0, 0.5)"


def test_what_is_computed_of_constants_is_float16_only_where_that_rounds_nothing() -> None:
    weights = {"a": np.array([1.0, 2.0, 3.0], HALF), "b": np.array([0.1, 0.2, 0.3], HALF)}
    for operands, exact in (("a, a", True), ("a, b", False)):
        model = text_model(
            f"k = Mul({operands}) y = Add(x, k)", "float16[2, 3] x", "float16 y", weights=weights
        )
        graph = _load(model)
        value, array = _constant(graph)
        assert value.dtype is (F16 if exact else F32)
        left, right = (weights[name].astype(np.float32) for name in operands.split(", "))
        np.testing.assert_array_equal(array.astype(np.float32), left * right)
        assert graph.outputs[0].dtype is graph.nodes[-1].output.dtype is F16


def test_moves_of_weights_keep_their_type() -> None:
    body = "t = Transpose<perm=[1, 0]>(w) c = Concat<axis=0>(t, t) y = MatMul(x, c)"
    model = text_model(body, "float16[2, 8] x", "float16 y", weights={"w": _w(3, 4)})
    graph = _load(model)
    assert _constant(graph)[0].dtype is F16


def test_numbers_that_importers_need_are_computed_in_float32() -> None:
    """0.1 · 20 is 1.9995 of float16 in float32, and would round to 2."""
    model = text_model(
        "m = Mul(a, b) n = Cast<to=7>(m) y = Expand(x, n)",
        "float16[1] x",
        "float16 y",
        weights={"a": np.array([0.1], HALF), "b": np.array([20], HALF)},
    )
    assert _load(model).outputs[0].shape == (1,)
    assert HALF(0.1) * HALF(20) == 2


def test_sizes_in_float16_do_not_round_either() -> None:
    body = "s = Shape(z) f = Cast<to=10>(s) i = Constant<value_int=1>() g = Gather(f, i)"
    model = text_model(f"{body} y = Mul(x, g)", "float16[1] x, float16[N, 2049] z", "float16 y")
    assert str(_load(model).nodes[-1].op.expr) == "mul($0, 2049.0)"


def test_results_are_float16_beside_what_is_known_in_float32() -> None:
    weights = {"a": np.array([1, 2, 3], HALF), "b": np.array([0.1, 0.2, 0.3], HALF)}
    body = "k = Mul(a, b) s = Sub(k, x) c = Concat<axis=0>(k, s) y = Neg(c)"
    graph = _load(text_model(body, "float16[3] x", "float16 y", weights=weights))
    assert _constant(graph)[0].dtype is F32
    assert [node.output.dtype for node in graph.nodes] == [F16] * 3


def test_another_shape_of_cast_weights_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large they are."""
    monkeypatch.setattr(builder, "FOLD_ELEMENTS", 0)
    body = "c = Cast<to=1>(w) s = Constant<value_ints=[4, 3]>() r = Reshape(c, s) y = MatMul(x, r)"
    graph = _load(text_model(body, "float[2, 4] x", "float y", weights={"w": _w(3, 4)}))
    assert [node.op.family for node in graph.nodes] == ["MatMul"]


@pytest.mark.parametrize(("declared", "wanted"), [("float16", F16), ("float", F32)])
def test_outputs_have_the_type_that_the_file_declares(declared: str, wanted: DType) -> None:
    weights = {"a": np.array([0.1], HALF)}
    body = "y = Neg(x) z = Mul(a, a) u = Identity(a)"
    outputs = f"{declared} y, {declared} z, {declared} u"
    graph = _load(text_model(body, "float16[3] x", outputs, weights=weights))
    assert [value.dtype for value in graph.outputs] == [wanted] * 3


ANSWERS = {
    "clip": "y = Clip(x, lo, hi)",
    "comparisons": "e = Equal(x, z) l = Less(x, k) a = Where(e, k, x) y = Where(l, a, z)",
    "casts": "a = Cast<to=1>(x) b = Exp(a) y = Cast<to=10>(b)",
    "integers": "i = Cast<to=7>(x) y = Cast<to=10>(i)",
    "constants": "c = Constant<value=float16[5] {15872, 16640, 11878, 15462, 0}>() y = Add(x, c)",
    "resize": 'a = Unsqueeze(x, t) y = Resize<mode="nearest">(a, , s)',
    "pow": "y = Pow(x, p)",
}
OPERANDS = {
    "lo": HALF(-0.3), "hi": HALF(0.7), "k": np.array([1, 2, 0, -1, 0.5], HALF),
    "t": np.array([0, 1]), "s": np.array([1, 1, 2, 3], np.float32), "p": np.float32(2.5),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_computes_what_onnxruntime_computes(name: str) -> None:
    body = ANSWERS[name]
    weights = {n: a for n, a in OPERANDS.items() if f", {n}" in body}
    inputs = "float16[2, 5] x" + (", float16[2, 5] z" if "z)" in body else "")
    outputs = "float16[A, B, C, D] y" if name == "resize" else "float16[2, 5] y"
    model = text_model(body, inputs, outputs, weights=weights)
    given = {n: np.abs(_w(2, 5)) * HALF(3) for n in "xz" if f"] {n}" in inputs}
    found, wanted = interpret(_load(model), given), run_onnxruntime(model, given)
    np.testing.assert_array_equal(found["y"], wanted["y"], strict=True)


def test_sums_of_float16_are_rounded_once() -> None:
    """2048 ones and one more: their float16 sum is even, and 2048 where every step rounds."""
    model = text_model(
        "y = MatMul(x, w)", "float16[1, 2050] x", "float16 y", weights={"w": _w(2050, 1) * 0 + 1}
    )
    (found,) = interpret(_load(model), {"x": np.ones((1, 2050), HALF)}).values()
    assert found.dtype == HALF and found.item() == 2050
