# ruff: noqa: E501 - a table with one model a line
"""Contents with numbers and symbolic sizes side by side: what comes out is what ONNX computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.errors import PlanError, UnsupportedModelError
from saccade.frontend import onnx as frontend
from saccade.testing.interpret import interpret

FLOATS = {
    "half": np.float32(0.5), "minus": np.float32(-0.5), "two": np.float32(2), "third": np.float32(1 / 3), "tenth": np.float32(0.1),
    "most": np.float32(0.7), "three": np.float32(3), "none": np.float32(0), "inf": np.float32(np.inf),
    "broken": np.asarray([2.5], np.float32), "pair": np.asarray([-1, 2.6], np.float32),
    "same": np.asarray([-1, 2.5], np.float32), "some": np.asarray([1, 0.5], np.float32),
}  # fmt: skip
INTEGERS = {
    "i0": [0], "i1": [1], "odd": [2**24 + 1], "back": [0, 0, 2**24 - 2], "huge": [3 * 2**30], "sign": [-1],
    "twice": [2], "six": [6], "seven": [7],
}  # fmt: skip
WEIGHTS = FLOATS | {name: np.asarray(v, np.int64) for name, v in INTEGERS.items()}

CHAINS = {
    "times a half": "g = Mul(f, half) k = Cast<to=7>(g)",
    "a half times": "g = Mul(half, f) k = Cast<to=7>(g)",
    "by three": "g = Div(f, three) k = Cast<to=7>(g)",
    "rounded down": "g = Mul(f, half) h = Floor(g) k = Cast<to=7>(h)",
    "rounded up": "g = Mul(f, half) h = Ceil(g) k = Cast<to=7>(h)",
    "negative, rounded down": "g = Mul(f, minus) h = Floor(g) i = Neg(h) k = Cast<to=7>(i)",
    "negative, rounded up": "g = Mul(f, minus) h = Ceil(g) i = Neg(h) k = Cast<to=7>(i)",
    "there and back": "g = Div(f, three) h = Mul(g, three) k = Cast<to=7>(h)",
    "seven tenths, in float32": "g = Mul(f, most) h = Floor(g) k = Cast<to=7>(h)",
    "by a tenth, in float32": "g = Div(f, tenth) h = Mul(g, tenth) i = Mul(h, half) k = Cast<to=7>(i)",
    "added": "g = Mul(f, half) h = Floor(g) i = Add(h, three) j = Div(i, three) k = Cast<to=7>(j)",
    "a fraction beside": "g = Concat<axis=0>(f, broken) h = Ceil(g) k = Cast<to=7>(h)",
    "a fraction below": "g = Concat<axis=0>(f, broken) h = Floor(g) k = Cast<to=7>(h)",
    "cut off": "g = Concat<axis=0>(f, broken) k = Cast<to=7>(g)",
    "summed fractions": "g = Mul(f, some) h = Add(g, some) i = Floor(h) k = Cast<to=7>(i)",
    "of no size": "g = Mul(f, none) k = Cast<to=7>(g)",
    "less": "g = Mul(f, some) h = Less(g, pair) k = Cast<to=7>(h)",
    "not less": "g = Mul(f, some) h = GreaterOrEqual(g, pair) k = Cast<to=7>(h)",
    "equal": "g = Mul(f, some) h = Equal(g, same) k = Cast<to=7>(h)",
    "truth": "g = Add(f, three) h = Concat<axis=0>(g, broken) i = Cast<to=9>(h) k = Cast<to=7>(i)",
    "beyond the mantissa": "c = Concat<axis=0>(s, odd) g = Cast<to=1>(c) h = Cast<to=7>(g) k = Sub(h, back)",
    "reshaped to its own length": "k = Reshape(s, i0)",
    "squared": "g = Mul(f, half) h = Floor(g) i = Pow(h, two) k = Cast<to=7>(i)",
    "a whole power": "k = Pow(s, twice)",
    "never equal": "g = Mul(s, seven) h = Sub(g, six) q = Equal(h, i0) k = Where(q, g, s)",
    "a product over no axes": "k = ReduceProd<noop_with_empty_axes=1>(s)",
    "beyond int32": "c = Concat<axis=0>(s, huge) g = Cast<to=6>(c) h = Cast<to=7>(g) i = Slice(h, i2, i3) "
    "j = Div(i, i28) k = Neg(j)",
}  # fmt: skip


def _model(chain: str) -> onnx.ModelProto:
    slices = {"i2": [2], "i3": [3], "i28": [2**28]}
    weights = WEIGHTS | {name: np.asarray(v, np.int64) for name, v in slices.items()}
    body = f"s = Shape(x) f = Cast<to=1>(s) {chain} y = ConstantOfShape(k)"
    return text_model(body, "float[N, 5] x", opset=18, weights=weights)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("static", [5, 10])
def test_numbers_beside_symbolic_sizes_are_those_of_onnx(name: str, static: int) -> None:
    model = _model(CHAINS[name])
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = static
    graph = frontend.load(model)
    for size in (0, 1, 2, 7, 10):
        x = np.zeros((size, static), np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        (actual,) = interpret(graph, {"x": x}).values()
        assert actual.shape == expected.shape


@pytest.mark.parametrize("name", ["squared", "a whole power", "never equal"])
def test_dims_tell_what_need_not_be_computed(name: str) -> None:
    assert not frontend.load(_model(CHAINS[name])).computed


COMPUTED = {
    "rounded to even": "g = Mul(f, half) h = Round(g) k = Cast<to=7>(h)",
    "a fraction of two sizes": "g = Div(three, f) k = Cast<to=7>(g)",
    "a sum of fractions": "g = Mul(f, half) h = Add(g, half) k = Cast<to=7>(h)",
    "beyond uint8": "c = Cast<to=2>(s) g = Cast<to=2>(sign) h = Mul(c, g) k = Cast<to=7>(h)",
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_dims_cannot_tell_is_computed_for_each_size(name: str) -> None:
    model = _model(COMPUTED[name])
    graph = frontend.load(model)
    assert graph.computed
    for size in (1, 2, 7, 10):
        x = np.zeros((size, 5), np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        (actual,) = interpret(graph, {"x": x}).values()
        assert actual.shape == expected.shape


@pytest.mark.parametrize(
    "chain",
    [
        "g = Div(f, none) k = Cast<to=7>(g)",
        "g = Mul(f, inf) k = Cast<to=7>(g)",
        "c = Cast<to=6>(s) g = Cast<to=6>(huge) h = Mul(c, g) k = Cast<to=7>(h)",
    ],
)
def test_what_is_no_size_is_an_error_of_that_size(chain: str) -> None:
    graph = frontend.load(_model(chain))
    with pytest.raises(PlanError, match=r"computed.* would be -[0-9]+"):
        interpret(graph, {"x": np.zeros((2, 5), np.float32)})


def test_an_outer_product_of_contents_is_refused_before_it_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 million elements, one by one, are a minute and a half."""
    plain = np.frompyfunc

    def watched(
        function: Callable[..., object], operands: int, results: int
    ) -> Callable[..., object]:
        def apply(*arrays: np.ndarray) -> object:
            assert np.broadcast(*arrays).size <= 4096
            return plain(function, operands, results)(*arrays)

        return apply

    monkeypatch.setattr(np, "frompyfunc", watched)
    chain = "a = Gather(s, i0) e = Expand(a, all) u = Unsqueeze(e, i1) v = Mul(u, many) k = Size(v)"
    model = _model(chain)
    more = {"all": [4096], "many": list(range(4096))}
    for name, values in more.items():
        array = np.asarray(values, np.int64)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with pytest.raises(UnsupportedModelError, match="more elements than any tensor has axes"):
        frontend.load(model)


@pytest.mark.parametrize("pads", ["p, z, o, z", "o, z, p, z"])
def test_a_negative_pad_beside_a_symbolic_one_crops(pads: str) -> None:
    weights = {"b": [0], "e": [1], "m": [1], "z": [0], "o": [-1]}
    model = text_model(
        f"s = Shape(x) n = Slice(s, b, e) p = Mul(n, m) g = Concat<axis=0>({pads}) y = Pad(x, g)",
        "float[N, 4] x",
        weights={name: np.asarray(v, np.int64) for name, v in weights.items()},
    )
    x = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    (expected,) = run_onnxruntime(model, {"x": x}).values()
    (actual,) = interpret(frontend.load(model), {"x": x}).values()
    np.testing.assert_array_equal(actual, expected)


def test_one_hot_counts_beyond_the_bytes_of_its_indices() -> None:
    body = "a = Cast<to=2>(x) y = OneHot<axis=1>(a, depth, values)"
    weights = {"depth": np.asarray(10), "values": np.asarray([-1, 2], np.float32)}
    model = text_model(body, "float[N, 5] x", weights=weights)
    x = np.asarray([[0, 9, 10, 246, 250], [255, 5, 1, 128, 127]], np.float32)
    (actual,) = interpret(frontend.load(model), {"x": x}).values()
    np.testing.assert_array_equal(actual, np.where(x[:, None] == np.arange(10)[:, None], 2, -1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_are_set_whatever_the_other_sizes_are(axis: int) -> None:
    """Indices that a tile repeats along the other axes; only their own axis has a known size."""
    shape = ["n", "c", "w"]
    shape[axis] = "4"
    repeats = ", ".join("one" if a == axis else f"s{a}" for a in range(3))
    parts = " ".join(f"s{a} = Shape<start={a}, end={a + 1}>(u)" for a in range(3) if a != axis)
    given = ", ".join(shape)
    model = text_model(
        f"{parts} r = Concat<axis=0>({repeats}) ix = Tile(at, r) y = ScatterElements<axis={axis}>(x, ix, u)",
        f"float[{given}] x, float[{given.replace('4', '2')}] u", f"float[{given}] y", 18,
        {"at": np.array([3, 1]).reshape([2 if a == axis else 1 for a in range(3)]), "one": np.array([1])},
    )  # fmt: skip
    frontend.load(model)  # once for all sizes
    compiled = saccade.compile(model, cache=False)
    for others in (2, 3), (1, 5), (4, 1):
        sizes = list(others)
        sizes.insert(axis, 4)
        x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
        u = -np.take(x, [0, 1], axis) - 1
        wanted = x.copy()
        places: list[slice | list[int]] = [slice(None)] * 3
        places[axis] = [3, 1]
        wanted[tuple(places)] = u
        assert np.array_equal(compiled(x, u), wanted)
