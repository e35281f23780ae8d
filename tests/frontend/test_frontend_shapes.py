# ruff: noqa: E501 - a table with one model a line
"""Chains of shape arithmetic become dims; no Shape node is left."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model

import saccade
from saccade.errors import ModelError, NeedsValuesError, PlanError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.ir import Graph, TensorType
from saccade.testing.interpret import interpret


def _i(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def _one(value: int) -> np.ndarray:
    return np.asarray(value, np.int64)


WEIGHTS = {
    "i0": _one(0), "i1": _one(1), "i2": _one(2), "i3": _one(3), "ax": _i(0), "two": _one(2),
    "all": _i(-1), "four": _i(4), "half": np.float32(0.5), "inf": np.float32(np.inf), "nan": np.float32(np.nan), "three": np.float32(3),
    "square": _i(2, 2), "ends": _i(1), "seven": _one(7), "a3": _i(3), "one": _i(1), "zero": _i(0), "k1": _i(1), "k2": _i(2), "k3": _i(3), "k5": _i(5),
}  # fmt: skip

SIZES = (
    "s = Shape(x) n = Gather(s, i0) c = Gather(s, i1) h = Gather(s, i2) w = Gather(s, i3) "
    "un = Unsqueeze(n, ax) uc = Unsqueeze(c, ax) uh = Unsqueeze(h, ax) uw = Unsqueeze(w, ax) "
)
CHAINS: dict[str, tuple[str, list[str]]] = {
    "channel shuffle": (
        SIZES + "d = Div(c, two) ud = Unsqueeze(d, ax) p = Cast<to=7>(two) up = Unsqueeze(p, ax) "
        "t = Concat<axis=0>(un, up, ud, uh, uw) a = Reshape(x, t) b = Transpose<perm=[0,2,1,3,4]>(a) "
        "v = Concat<axis=0>(un, all, uh, uw) y = Reshape(b, v)",
        ["N", "6", "H", "W"],
    ),
    "flatten": (SIZES + "t = Concat<axis=0>(un, all) y = Reshape(x, t)", ["N", "6*(H*W)"]),
    "merge pixels": (
        SIZES + "m = Mul(h, w) um = Unsqueeze(m, ax) t = Concat<axis=0>(un, uc, um) y = Reshape(x, t)",
        ["N", "6", "(H*W)"],
    ),
    "half by multiplication": (
        SIZES + "f = Cast<to=1>(h) g = Mul(f, half) k = Floor(g) l = Cast<to=7>(k) ul = Unsqueeze(l, ax) "
        "e = Concat<axis=0>(un, uc, ul, uw) y = Slice(x, zero, ul, two1)",
        ["N", "6", "(H//2)", "W"],
    ),
    "third rounded up": (
        SIZES + "f = Cast<to=1>(h) g = Div(f, three) k = Ceil(g) l = Cast<to=7>(k) ul = Unsqueeze(l, ax) "
        "y = Slice(x, zero, ul, two1)",
        ["N", "6", "-1*((-1*H)//3)", "W"],
    ),
    "resize to another input": (
        SIZES + "p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) hw = Slice(s, k2, k5) nc = Slice(s, zero, k2) "
        't = Concat<axis=0>(nc, hw) y = Resize<mode="linear">(p, , , t)',
        ["N", "6", "H", "W"],
    ),
    "expand with where": (
        SIZES + "m = ReduceMax<axes=[1,2,3]>(x) t = Concat<axis=0>(un, four, uh, one) k = Shape(t) "
        "o = ConstantOfShape<value = int64[1] {1}>(k) q = Equal(t, all) r = Where(q, o, t) y = Expand(m, r)",
        ["N", "4", "H", "1"],
    ),
    "constant of shape": (
        SIZES + "t = Concat<axis=0>(uh, uw) o = ConstantOfShape<value = float[1] {2.0}>(t) y = Add(x, o)",
        ["N", "6", "H", "W"],
    ),
    "crop by one": (SIZES + "y = Slice(x, k1, all, two1)", ["N", "6", "(H-2)", "W"]),
    "every second": (
        SIZES + "y = Slice(x, k1, big, two1, k2)", ["N", "6", "H//2", "W"],
    ),
    "size": (
        SIZES + "z = Size(x) uz = Unsqueeze(z, ax) y = Reshape(x, uz)", ["6*(N*H*W)"],
    ),
    "static if": (
        SIZES + "q = Equal(c, six) y = If(q) <then_branch = t () => (float a) { a = Relu(x) }, "
        "else_branch = e () => (float b) { b = Neg(x) }>",
        ["N", "6", "H", "W"],
    ),
    "reduced product": (
        SIZES + "hw = Slice(s, k2, k5) p = ReduceProd(hw) t = Concat<axis=0>(un, uc, p) y = Reshape(x, t)",
        ["N", "6", "(H*W)"],
    ),
    "transposed": (
        SIZES + "t = Concat<axis=0>(un, uc, uh, uw) k = Reshape(t, k22) r = Transpose(k) f = Reshape(r, all) p = Transpose<perm = [0, 2, 1, 3]>(x) y = Reshape(p, f)",
        ["N", "H", "6", "W"],
    ),
    "split into computed parts": (
        SIZES + "l = Sub(uh, k1) v = Concat<axis=0>(k1, l) a, b = Split<axis=2>(x, v) y = Concat<axis=2>(b, a)",
        ["N", "6", "H", "W"],
    ),
    "filled up to windows": (
        SIZES + "m = Mod(uh, k5) f = Sub(k5, m) e = Mod(f, k5) zz = Concat<axis=0>(zero, zero, zero, zero, zero, zero, e, zero) "
        "p = Pad(x, zz) g = Shape(p) ph = Slice(g, k2, k3) q = Div(ph, k5) v = Concat<axis=0>(un, uc, q, k5, uw) "
        "r = Reshape(p, v) t = Transpose<perm=[0,1,3,2,4]>(r) i = Transpose<perm=[0,1,3,2,4]>(t) u = Concat<axis=0>(un, uc, all, uw) o = Reshape(i, u) "
        "j = Slice(o, zero, uh, two1) y = Relu(j)",
        ["N", "6", "H", "W"],
    ),
    "rolled": (
        SIZES + "l = Neg(k2) a = Slice(x, l, big, two1) b = Slice(x, zero, l, two1) c1 = Concat<axis=2>(a, b) "
        "d1 = Slice(c1, k2, big, two1) e1 = Slice(c1, zero, k2, two1) y = Concat<axis=2>(d1, e1)",
        ["N", "6", "H", "W"],
    ),
    "rolled by a computed position": (
        SIZES + "l = Sub(uh, k2) a = Slice(x, l, uh, two1) b = Slice(x, zero, l, two1) y = Concat<axis=2>(a, b)",
        ["N", "6", "H", "W"],
    ),
    "split of a shape": (
        SIZES + "a, b = Split<axis=0>(s, k22) t = Concat<axis=0>(a, all) y = Reshape(x, t)",
        ["N", "6", "(H*W)"],
    ),
}  # fmt: skip


def _model(body: str):
    more = {"two1": _i(2), "big": _i(2**62), "six": _one(6), "k22": _i(2, 2)}
    return text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS | more)


def _operators(graph: Graph) -> set[str]:
    return {node.op.family for node in graph.nodes}


@pytest.mark.parametrize("name", CHAINS)
def test_chain_becomes_dims_and_computes_the_same(name: str) -> None:
    body, _ = CHAINS[name]
    model = _model(body)
    graph = frontend.load(model)
    assert all(value.dtype.is_float for value in graph.values())
    for size in ((1, 6, 7, 9), (2, 6, 8, 4)):
        x = np.random.default_rng(0).normal(size=size).astype(np.float32)
        (expected,) = run_onnxruntime(model, {"x": x}).values()
        (actual,) = interpret(graph, {"x": x}).values()
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "channel shuffle",
        "crop by one",
        "resize to another input",
        "rolled",
        "filled up to windows",
        "rolled by a computed position",
        "split into computed parts",
    ],
)
def test_sizes_are_the_simplest_expressions(name: str) -> None:
    body, shape = CHAINS[name]
    assert [str(dim) for dim in frontend.load(_model(body)).outputs[0].shape] == shape


WINDOWS = (
    SIZES + "hh = Div(h, two) ww = Div(w, two) uhh = Unsqueeze(hh, ax) uww = Unsqueeze(ww, ax) "
    "t = Concat<axis=0>(un, uc, uhh, two1, uww, two1) a = Reshape(x, t) "
    "b = Transpose<perm=[0,1,3,5,2,4]>(a) y = Relu(b)"
)


@pytest.mark.parametrize(
    "body",
    ["y = SpaceToDepth<blocksize=2>(x)", WINDOWS, WINDOWS.replace("uww, two1)", "all, two1)")],
)
def test_symbolic_sizes_are_taken_to_divide_and_checked_later(body: str) -> None:
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS | {"two1": _i(2)})
    graph = frontend.load(model)
    x = np.random.default_rng(0).normal(size=(2, 6, 4, 8)).astype(np.float32)
    (expected,) = run_onnxruntime(model, {"x": x}).values()
    (actual,) = interpret(graph, {"x": x}).values()
    np.testing.assert_array_equal(actual, expected)
    odd = [TensorType(v.dtype, (2, 6, 5, 8)) for v in graph.inputs]
    with pytest.raises(ModelError, match="a dim of x is 5"):
        graph.nodes[0].op.bind({"N": 2, "H": 5, "W": 8}).infer(odd)


def test_a_channel_shuffle_is_three_moves() -> None:
    graph = frontend.load(_model(CHAINS["channel shuffle"][0]))
    assert [node.op.family for node in graph.nodes] == ["Move", "Move", "Move"]


def test_unnamed_axes_get_names_and_odd_names_are_cleaned() -> None:
    model = text_model("y = Relu(x)", "float[?, 3, ?, W] x")
    shape = frontend.load(model).inputs[0].shape
    assert [str(dim) for dim in shape] == ["x_dim_0", "3", "x_dim_2", "W"]
    model = text_model("y = Relu(x)", "float[N, 3, H, W] x")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param, dims[2].dim_param, dims[3].dim_param = "a+b", "2*H", "a_b"
    shape = frontend.load(model).inputs[0].shape
    assert len({str(dim) for dim in shape}) == 4
    assert all(str(dim).isidentifier() for dim in shape if not isinstance(dim, int))


@pytest.mark.parametrize("size", [-1, "?"])
def test_axes_of_any_size_are_different_sizes_each(size: int | str) -> None:
    """As Paddle's exporter writes them."""
    model = text_model("y = Relu(x)", "float[N, 3, H, W] x", "float[N, 3, H, W] y")
    for value in (model.graph.input[0], model.graph.output[0]):
        for axis in (0, 2, 3):
            dim = value.type.tensor_type.shape.dim[axis]
            dim.Clear()
            if isinstance(size, int):
                dim.dim_value = size
            else:
                dim.dim_param = size
    shape = frontend.load(model).inputs[0].shape
    assert [str(dim) for dim in shape] == ["x_dim_0", "3", "x_dim_2", "x_dim_3"]
    compiled = saccade.compile(model.SerializeToString(), threads=1, cache=False)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 7)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x), np.maximum(x, 0))


TAKEN = {
    "one axis to two": (
        "q = Div(w, four) t = Concat<axis=0>(n, h, q, four) y = Reshape(x, t)",
        [(2, 3, 8), (1, 5, 12)], (2, 3, 10),
    ),
    "one axis to one and 1, for some sizes": (
        "e = Div(h, eight) f = Mul(e, w) z = Concat<axis=0>(n, f) a = Expand(bit, z)"
        "t = Concat<axis=0>(n, k1, w) y = Reshape(a, t)",
        [(2, 8, 4), (3, 15, 9)], (2, 16, 4),
    ),
    "two axes to two": (
        "q = Div(h, four) v = Mul(w, four) t = Concat<axis=0>(n, q, v) y = Reshape(x, t)",
        [(4, 8, 3), (1, 12, 5)], (4, 9, 3),
    ),
    "two axes to one": (
        "q = Div(h, four) u = Mul(q, w) v = Mul(u, four) t = Concat<axis=0>(n, v) y = Reshape(x, t)",
        [(2, 4, 5), (1, 8, 3)], (2, 6, 5),
    ),
    "one axis to another": (
        "q = Div(h, four) v = Mul(q, four) t = Concat<axis=0>(n, v, w) r = Reshape(x, t) y = Relu(r)",
        [(2, 4, 5), (1, 8, 3)], (2, 6, 5),
    ),
    "two axes to one, and back": (
        "q = Div(h, four) u = Mul(q, w) v = Mul(u, four) t = Concat<axis=0>(n, v) m = Reshape(x, t)"
        "y = Reshape(m, s)",
        [(2, 4, 5), (1, 8, 3)], (2, 6, 5),
    ),
    "parts of known sizes": (
        "a, b = Split<axis=2>(x, pair) y = Add(a, b)", [(2, 3, 8), (1, 5, 8)], (2, 3, 9)
    ),
    "parts of computed sizes": (
        "t = Concat<axis=0>(h, four) a, b = Split<axis=2>(x, t) y = Concat<axis=2>(b, a)",
        [(2, 3, 7), (1, 5, 9)], (2, 3, 8),
    ),
    "what is left of two axes": ("y = Reshape(x, rest)", [(2, 4, 5), (1, 10, 3)], (2, 3, 7)),
    "among movements": (
        "m = Transpose<perm=[0, 2, 1]>(x) q = Div(w, four) t = Concat<axis=0>(n, q, four, h)"
        "r = Reshape(m, t) u = Transpose<perm=[3, 2, 1, 0]>(r) y = Relu(u)",
        [(2, 3, 8), (1, 5, 12)], (2, 3, 10),
    ),
}  # fmt: skip
"""With sizes that fit and some that do not."""


@pytest.mark.parametrize("name", TAKEN)
def test_what_symbols_do_not_decide_is_checked_for_each_size(name: str) -> None:
    body, fitting, other = TAKEN[name]
    sizes = "s = Shape(x) n = Gather(s, zero) h = Gather(s, k1) w = Gather(s, k2) "
    weights = {key: WEIGHTS[key] for key in ("k1", "k2")}
    weights |= {"zero": _i(0), "four": _i(4), "eight": _i(8), "bit": np.ones((1, 1), np.float32)}
    weights["rest"], weights["pair"] = _i(0, 2, -1, 5), _i(4, 4)
    model = text_model(f"{sizes} {body}", "float[N, H, W] x", weights=weights)
    compiled = saccade.compile(model.SerializeToString(), threads=1, cache=False)
    for shape in fitting:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        expected = run_onnxruntime(model, {"x": x})["y"]
        np.testing.assert_array_equal(compiled(x), expected)
    with pytest.raises(PlanError, match="does not fit"):
        compiled(np.ones(other, np.float32))


NUMBERS = {
    "a size as a factor": SIZES + "z = Cast<to=1>(h) y = Mul(x, z)",
    "a fraction of a size": SIZES + "z = Cast<to=1>(w) v = Div(z, three) y = Mul(x, v)",
    "a size below the line": SIZES + "z = Cast<to=1>(w) v = Div(half, z) y = Mul(x, v)",
    "whether sizes are equal": SIZES + "q = Equal(h, w) y = Cast<to=1>(q)",
    "sizes, numbers and fractions": SIZES
    + "z = Cast<to=1>(s) v = Div(z, three) u = Unsqueeze(half, ax) y = Concat<axis=0>(z, v, u)",
    "a shape for the caller": SIZES + "r = Mul(s, two) y = Cast<to=1>(r)",
    "a range up to a size": SIZES + "r = Range(i0, h, i1) y = Cast<to=1>(r)",
    "a range between sizes": SIZES + "r = Range(n, h, two) y = Cast<to=1>(r)",
    "a range down": SIZES + "m = Neg(i1) r = Range(h, m, m) y = Cast<to=1>(r)",
    "a range that may be empty": SIZES + "r = Range(w, h, i1) y = Cast<to=1>(r)",
    "a range of floats": SIZES
    + "z = Cast<to=1>(w) v = Mul(z, half) o = Neg(three) t = Cast<to=1>(two) y = Range(o, v, t)",
    "a range of middles": SIZES + "z = Cast<to=1>(h) o = Cast<to=1>(i1) y = Range(half, z, o)",
    "a range of middles from below": SIZES
    + "z = Cast<to=1>(h) f = Neg(half) t = Cast<to=1>(two) y = Range(f, z, t)",
    "no more than a number": SIZES + "q = Clip(h, , i3) r = Range(i0, q, i1) y = Cast<to=1>(r)",
    "no less than a number": SIZES + "q = Clip(h, i3) r = Range(i0, q, i1) y = Cast<to=1>(r)",
    "turned around": SIZES
    + "q = Reshape(s, square) r = Transpose<perm=[1, 0]>(q) m = Reshape(r, all) y = ConstantOfShape(m)",
    "elements along an axis": SIZES + "q = ArgMax<axis=3>(x) y = GatherElements<axis=3>(x, q)",
    "elements along the first axis": SIZES
    + "q = ArgMin<axis=0>(x) m = Neg(q) y = GatherElements<axis=0>(x, m)",
    "rows that are replaced": SIZES
    + "q = Cast<to=1>(s) r = Range(i0, h, two) u = Unsqueeze(r, ends) z = Gather<axis=0>(x, i0) "
    "t = Transpose<perm=[1, 0, 2]>(z) g = GatherND(t, u) k = Neg(g) y = ScatterND(t, u, k)",
    "single elements, from the end": SIZES
    + "l = Neg(one) a = Concat<axis=0>(zero, l, l, zero) y = ScatterND(x, a, half)",
    "middles of a grid": SIZES
    + "z = Cast<to=1>(w) f = Cast<to=1>(i0) g = Cast<to=1>(i1) r = Range(f, z, g) a = Add(r, half) y = Div(a, z)",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_sizes_are_numbers_that_a_run_computes_with(name: str) -> None:
    """Whatever cannot be told while importing, and for all sizes with one graph."""
    model = text_model(NUMBERS[name], "float[N, 6, H, W] x", weights=WEIGHTS)
    graph = frontend.load(model)
    for shape in ((1, 6, 4, 5), (3, 6, 1, 1), (2, 6, 7, 4)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        expected = run_onnxruntime(model, {"x": x})["y"]
        (actual,) = interpret(graph, {"x": x}).values()
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("m = ReduceMax<keepdims=0>(x) e = Cast<to=7>(m) y = Range(i0, e, i1)", "depends on data"),
        (SIZES + "e = Range(i0, i1, h) y = Cast<to=1>(e)", "a step of a range"),
        (
            SIZES + "z = Cast<to=1>(w) e = Neg(half) y = Range(half, z, half)",
            "a range of fractions",
        ),
        (
            SIZES + "z = Cast<to=1>(w) e = Div(z, three) o = Cast<to=1>(i1) y = Range(half, e, o)",
            "a range of fractions",
        ),
        (SIZES + "z = Cast<to=1>(w) y = Range(inf, z, three)", "a range of fractions"),
        (SIZES + "z = Cast<to=1>(w) y = Range(nan, z, three)", "a range of fractions"),
    ],
)
def test_what_cannot_be_decided_is_refused_with_a_reason(body: str, reason: str) -> None:
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS)
    with pytest.raises(UnsupportedModelError, match=reason):
        frontend.load(model)


@pytest.mark.parametrize(
    "body",
    [
        "d = Slice(x, k3, big, two1) y = Slice(x, zero, k3, two1)",
        "d = Slice(x, k3, big, a3) e = ReduceSum(d) c = Slice(x, zero, k3, two1) y = Add(c, e)",
    ],
)
def test_an_end_is_clamped_where_nothing_reaches_so_far(body: str) -> None:
    """What does is dead, or along another axis."""
    more = {"two1": _i(2), "big": _i(2**62)}
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS | more)
    compiled = saccade.compile(model.SerializeToString(), threads=1, cache=False)
    for rows in (5, 3, 2):
        x = np.random.default_rng(0).normal(size=(1, 6, rows, 4)).astype(np.float32)
        want = run_onnxruntime(model, {"x": x})["y"]
        np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-5)


def test_parts_that_never_add_up_to_their_axis_are_an_error() -> None:
    body = (
        SIZES + "l = Sub(uh, k2) v = Concat<axis=0>(k1, l) a, b = Split<axis=2>(x, v) "
        "y = Concat<axis=2>(b, a)"
    )
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS)
    with pytest.raises(ModelError, match=r"H on one side and \(H-1\) on the other"):
        frontend.load(model)


def test_an_end_is_inside_where_a_start_is() -> None:
    body = (
        "a = Slice(x, k3, big, two1) b = Slice(x, zero, k3, two1) c = Concat<axis=2>(a, b) "
        "y = Add(c, x)"
    )
    more = {"two1": _i(2), "big": _i(2**62)}
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS | more)
    compiled = saccade.compile(model.SerializeToString(), threads=1, cache=False)
    for rows in (5, 3):
        x = np.random.default_rng(0).normal(size=(1, 6, rows, 4)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x), run_onnxruntime(model, {"x": x})["y"])
    with pytest.raises(PlanError, match="too small"):
        compiled(np.ones((1, 6, 2, 4), np.float32))


def test_windows_of_seven_are_among_the_sizes_that_are_tried() -> None:
    body = (
        SIZES
        + "m = Mod(w, seven) k = Add(m, i1) u = Unsqueeze(k, ax) o = Slice(x, zero, u, a3) y = Squeeze(o, a3)"
    )
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS)
    with pytest.raises(NeedsValuesError) as raised:
        frontend.load(model)
    assert raised.value.sized


def test_everything_unsupported_is_listed_once() -> None:
    body = (
        "a = RandomNormalLike(x) b = RandomNormalLike(x) e = Add(a, b) k = ReduceSum<keepdims=0>(x) n = Cast<to=7>(k) "
        "f = Bernoulli(x) g = Loop(n, t, x) <body = l (int64 i, bool q, float v) => (bool q2, float v2) "
        "{ q2 = Identity(q) v2 = Concat<axis=0>(v, v) }> h = Add(e, f) y = Add(h, g)"
    )
    weights = {"t": np.asarray(True)}
    with pytest.raises(UnsupportedModelError) as caught:
        frontend.load(text_model(body, weights=weights))
    rows = {row.operator: row for row in caught.value.rows}
    assert set(rows) == {"RandomNormalLike", "Bernoulli", "Loop"}
    assert (rows["RandomNormalLike"].count, rows["RandomNormalLike"].dtype) == (2, "FLOAT")
    assert "no such operator" in rows["Bernoulli"].reason
    assert "carries a value whose shape changes" in rows["Loop"].reason


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("y = Conv(x, w)", "float[N, 3, T, D, H, W] x, float[4, 3, 3, 3, 3, 3] w"),
        ("y, i = MaxPool<kernel_shape=[2,2]>(x) z = Cast<to=1>(i)", "float[N, 3, H, W] x"),
        ("y = Identity(x)", "string[N] x"),
        ('y = Resize<mode="linear">(x, , s)', "float[N, 3, H, W] x, float[4] s"),
        ("y = QuantizeLinear(x, s, z)", "float[N] x, float s, int32 z"),
    ],
)
def test_refused_operators(body: str, inputs: str) -> None:
    outputs = "float z" if " z = " in body else "float y"
    with pytest.raises(UnsupportedModelError):
        frontend.load(text_model(body, inputs, outputs, opset=18))


def test_dead_nodes_do_not_count() -> None:
    graph = frontend.load(text_model("n = NonZero(x) y = Relu(x)"))
    assert _operators(graph) == {"Pointwise"}


@pytest.mark.parametrize("target", [(0, 7, -1), (0, -1, -1), (0, 6, -2), (1, 1, 1, 1, 0)])
def test_impossible_reshapes_are_errors(target: tuple[int, ...]) -> None:
    model = text_model("y = Reshape(x, t)", "float[2, 6, 4] x", weights={"t": _i(*target)})
    with pytest.raises(ModelError):
        frontend.load(model)


def test_a_file_that_holds_for_small_sizes_alone_is_imported_for_those() -> None:
    # As windows are written that are no larger than the image: right up to 20 rows.
    body = (
        SIZES
        + "m = Min(h, twenty) mm = Mul(m, m) um = Unsqueeze(mm, ax) part = Slice(table, zero, um) "
        "hh = Concat<axis=0>(uh, uh, all) y = Reshape(part, hh)"
    )
    more = {"twenty": _one(20), "table": np.ones((400, 2), np.float32)}
    model = text_model(body, "float[N, 6, H, W] x", weights=WEIGHTS | more)
    with pytest.raises(NeedsValuesError) as caught:
        frontend.load(model)
    assert caught.value.sized
    graph = frontend.load(model, known={"x": (1, 6, 9, 5)})
    assert [value.shape for value in graph.outputs] == [(9, 9, 2)]
