# ruff: noqa: E501 - tables with one model a line
"""Operators that mix elements along an axis whose size is found while a plan runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_models import run_onnxruntime, text_model

import saccade
from saccade.by_value import ByValueModel
from saccade.errors import InputError, ModelError, UnsupportedModelError
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs


def _i(*values):
    return np.array(values, np.int64)


INPUTS = "float[40, 4] x, float[40] s, float[30] t"
WEIGHTS = {
    "i0": np.array(0), "m1": np.array(-1), "m2": _i(-2, 0), "v0": _i(0), "v1": _i(1), "v2": _i(2),
    "v4": _i(4), "v10": _i(10), "v50": _i(50), "flat": _i(-1), "zero": np.float32(0), "iou": np.float32(0.5), "far": _i(2**40),
    "places": _i(1, -1, 2, 2), "scale": np.float32(8), "ends": np.array([[-1, 3], [-2, -1]]),
    "image": np.random.default_rng(1).random((1, 3, 6, 5), np.float32),
    "none": np.float32([]), "empty": _i(), "five": _i(5),
}  # fmt: skip
# Rows whose score is above 0, none or all of them for some inputs.
ROWS = "c = Greater(s, zero) nz = NonZero(c) at = Squeeze(nz, v0) r = Gather<axis=0>(x, at) rs = Gather<axis=0>(s, at) "
OTHERS = (
    "c2 = Greater(t, zero) nz2 = NonZero(c2) at2 = Squeeze(nz2, v0) rt = Gather<axis=0>(t, at2) "
)
COUNT = "sh = Shape(rs) "
NMS = "b1 = Unsqueeze(r, v0) s0 = Unsqueeze(rs, v0) s1 = Unsqueeze(s0, v0) kept = NonMaxSuppression(b1, s1, v10, iou) y = Gather<axis=1>(kept, v2) "

MIXED = {
    "sums": ROWS + "y = ReduceSum<keepdims=0>(r, v0)",
    "sums of squares": ROWS + "y = ReduceSumSquare<axes=[0]>(r)",
    "products": ROWS + "y = ReduceProd<axes=[0], keepdims=0>(r)",
    "a sum of all": ROWS + "y = ReduceL1(r)",
    "some of them": ROWS + f"{COUNT} k = Min(sh, v10) y, w = TopK<axis=0>(rs, k)",
    "the least": ROWS + f"{COUNT} k = Min(sh, five) w, y = TopK<axis=0, largest=0>(rs, k)",
    "the best rows": ROWS + f"{COUNT} k = Min(sh, five) v, w = TopK<axis=0>(rs, k) y = Gather<axis=0>(r, w)",
    "those that are also large": ROWS + "d = Greater(rs, iou) n2 = NonZero(d) a2 = Squeeze(n2, v0) y = Gather<axis=0>(r, a2)",
    "places in a table": ROWS + "d = Greater(r, zero) y = NonZero(d)",
    "lists behind each other": ROWS + OTHERS + "y = Concat<axis=0>(rs, rt)",
    "the same behind a fixed one": ROWS + "y = Concat<axis=0>(t, rs, t)",
    "the best of several lists": ROWS + OTHERS + "a = Concat<axis=0>(rs, rt) b = Concat<axis=0>(rs, rt) m = Add(a, b) n = Shape(m) k = Min(n, v10) y, w = TopK<axis=0>(m, k)",
    "boxes that stay": ROWS + NMS,
    "a selection": "c = Greater(s, zero) y = Compress<axis=0>(x, c)",
    "a selection of a selection": ROWS + "c3 = Greater(rs, iou) y = Compress<axis=0>(r, c3)",
    "different ones": "q = Cast<to=7>(x) f = Reshape(q, flat) y, u, v, w = Unique(f)",
    "shares": ROWS + "y = Softmax<axis=0>(r)",
    "how often they come": "q = Cast<to=7>(x) u, v, w, y = Unique(q)",
    "where they are": "q = Cast<to=7>(x) u, v, y, w = Unique<sorted=0>(q)",
    "updated rows": ROWS + "w = Mul(r, r) ix = Unsqueeze(at, v1) y = ScatterND(x, ix, w)",
    "rows of a selection, updated": ROWS + "d = Greater(rs, iou) n2 = NonZero(d) a2 = Squeeze(n2, v0) ro = Gather<axis=0>(r, a2) u = Neg(ro) aa = Unsqueeze(a2, v1) us = Shape(u) ix = Expand(aa, us) y = ScatterElements<axis=0>(r, ix, u)",
    "columns of a selection, updated": ROWS + "d = Greater(rs, iou) n2 = NonZero(d) a2 = Squeeze(n2, v0) ro = Gather<axis=0>(r, a2) u = Transpose(ro) aa = Unsqueeze(a2, v0) us = Shape(u) ix = Expand(aa, us) c4 = Transpose(r) m4 = Neg(c4) y = ScatterElements<axis=1>(m4, ix, u)",
    "lists of one mask, looked through twice": "c = Greater(s, zero) n1 = NonZero(c) a1 = Squeeze(n1, v0) n2 = NonZero(c) a2 = Squeeze(n2, v0) r = Gather<axis=0>(x, a1) q = Gather<axis=0>(s, a2) u = Unsqueeze(q, v1) y = Add(r, u)",
    "filled up to a fixed number": ROWS + f"{COUNT} e = Sub(v50, sh) p = Concat<axis=0>(v2, e) y = Pad(rs, p, iou)",
    "rows, filled up and cut off": ROWS + f"{COUNT} e = Sub(v10, sh) d = Mul(e, v4) p = Concat<axis=0>(v0, d) f = Reshape(r, flat) y = Pad(f, p)",
    "by tuples of one number": ROWS + "d = Greater(rs, iou) n2 = NonZero(d) a2 = Squeeze(n2, v0) ix = Unsqueeze(a2, v1) y = GatherND(r, ix)",
    "by pairs of numbers": ROWS + "d = Greater(r, zero) n2 = NonZero(d) ix = Transpose(n2) y = GatherND(r, ix)",
    "a column of the other axis first": ROWS + "c4 = Transpose(r) d = Greater(c4, zero) n2 = NonZero(d) ix = Transpose(n2) y = GatherND(c4, ix)",
    "a row set": ROWS + "u = Unsqueeze(r, v0) z = Mul(u, zero) us = Shape(u) ix = Expand(v0, us) y = ScatterElements<axis=0>(z, ix, u)",
    "samples": ROWS + "g4 = Reshape(r, places) g = Div(g4, scale) y = GridSample(image, g)",
    "products of matrices": ROWS + "c4 = Transpose(r) y = MatMul(c4, r)",
    "products of vectors": ROWS + "y = MatMul(rs, r)",
    "products of transposed matrices": ROWS + "y = Gemm<transA=1>(r, r)",
    "running sums": ROWS + "y = CumSum(r, v0)",
    "running sums from the end": ROWS + "y = CumSum<exclusive=1, reverse=1>(rs, v0)",
    "twice as many": ROWS + f"{COUNT} p = Concat<axis=0>(v0, sh) y = Pad(rs, p)",
    "their number and more": ROWS + f"{COUNT} e = Add(sh, v2) y = Mul(e, e)",
}  # fmt: skip
# ONNX leaves these undefined for none, or they are an error there.
OF_SOME = {
    "means": ROWS + "y = ReduceMean<axes=[0]>(r)",
    "a mean of all": ROWS + "y = ReduceMean<keepdims=0>(r)",
    "the largest": ROWS + "y = ReduceMax<axes=[0], keepdims=0>(r)",
    "the smallest": ROWS + "y = ReduceMin(r)",
    "the place of the largest": ROWS + "y = ArgMax<axis=0>(r)",
    "the place of the smallest": ROWS + "y = ArgMin<axis=0, keepdims=0>(rs)",
    "the last place of the smallest": ROWS + "y = ArgMin<axis=0, select_last_index=1>(r)",
    "the place of the largest integer": ROWS + "q = Cast<to=7>(r) y = ArgMax<axis=0, keepdims=0>(q)",
    "the last one by a tuple": ROWS + "ix = Unsqueeze(m1, v0) y = GatherND(r, ix)",
    "two elements from the end": ROWS + "y = GatherND(r, ends)",
    "the last one": ROWS + "y = Gather<axis=0>(r, m1)",
    "the last but one and the first": ROWS + "y = Gather<axis=0>(r, m2)",
    "boxes of classes apart": ROWS + "mx = ReduceMax<keepdims=0>(r) o = Mul(rs, mx) ou = Unsqueeze(o, v1) q = Add(r, ou) b1 = Unsqueeze(q, v0) s0 = Unsqueeze(rs, v0) s1 = Unsqueeze(s0, v0) kept = NonMaxSuppression(b1, s1, v10, iou) y = Gather<axis=1>(kept, v2)",
}  # fmt: skip
IFS = {
    "nothing or what is found": ROWS
    + "n = Size(r) e = Equal(n, i0) y = If(e) <then_branch = a () => (int64[0] u) { u = Identity(empty) }, "
    f"else_branch = b () => (int64[k, 1] v) {{ {NMS.replace('y =', 'v0_ =')} v = Squeeze(v0_, v1) }}>",
    "two results of one size": ROWS
    + "n = Size(r) e = Equal(n, i0) k, f = If(e) <then_branch = a () => (int64[0] u, float[0] w) { u = Identity(empty) w = Identity(none) }, "
    f"else_branch = b () => (int64[k, 1] v, float[k] z) {{ {NMS.replace('y =', 'v0_ =')} v = Squeeze(v0_, v1) z = Gather<axis=0>(rs, v) }}> "
    "g = Gather<axis=0>(rs, k) y = Add(f, g)",
    "one of two": "m = ReduceMax<keepdims=0>(s) e = Greater(m, iou) y = If(e) <then_branch = a () => (float[40] u) { u = Neg(s) }, "
    "else_branch = b () => (float[40] v) { v = Exp(s) }>",
}  # fmt: skip


def model(body):
    built = text_model(body, INPUTS, "float y", 16, WEIGHTS)
    del built.graph.output[:]
    built.graph.output.append(onnx.ValueInfoProto(name="y"))
    return built


def arrays(shift, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 8, (40, 4)).astype(np.float32)
    return {
        "x": x,
        "s": (rng.permutation(40) / 20 + shift).astype(np.float32),
        "t": (rng.permutation(30) / 20 + shift).astype(np.float32),
    }


def hold(made, shifts, **options):
    compiled = saccade.compile(made, threads=2, cache=False, **options)
    for seed, shift in enumerate(shifts):
        feeds = arrays(shift, seed)
        (result,) = compare_outputs(compiled.run(feeds), run_onnxruntime(made, feeds))
        assert result.within(FP32_TOLERANCE), (shift, result)


@pytest.mark.parametrize("name", MIXED)
def test_what_is_mixed(name):
    # Some, most, none and all of the rows.
    hold(model(MIXED[name]), (-0.9, -0.2, -9, 9))


@pytest.mark.parametrize("name", OF_SOME)
def test_what_is_mixed_of_some_at_least(name):
    hold(model(OF_SOME[name]), (-0.9, -0.2, 9))


@pytest.mark.parametrize("name", IFS)
def test_branches_by_data(name):
    hold(model(IFS[name]), (-0.9, -9, 9, -1.5))


def test_checked_code_gives_the_same():
    hold(model(MIXED["the best of several lists"]), (-0.9, -9, 9), checked=True)


def expressions(name):
    made = saccade.compile(model(MIXED[name]), cache=False)
    steps = made.plan(**{name: array.shape for name, array in arrays(0).items()}).steps
    return [str(step.op.expr) for step in steps if step.op.family == "Pointwise"]


def test_places_that_were_found_are_not_counted_from_the_end():
    for name in ("the best rows", "those that are also large", "a selection of a selection"):
        assert not [text for text in expressions(name) if text.startswith("where(less($0, 0")]


def test_which_rows_are_true_is_found_once_for_all_that_are_closed():
    """Boxes and their scores, which have other axes."""
    found = [text for text in expressions("boxes that stay") if "less(" in text]
    assert found == ["less($0, $1)"]


REFUSED = {
    "mixes": {
        "the largest of neighbours": ROWS + "c4 = Transpose(r) u = Unsqueeze(c4, v0) y = MaxPool<kernel_shape=[3]>(u)",
    },
}  # fmt: skip


@pytest.mark.parametrize(("why", "name"), [(w, n) for w, cases in REFUSED.items() for n in cases])
def test_what_is_refused(why, name):
    with pytest.raises(UnsupportedModelError, match=why):
        saccade.compile(model(REFUSED[why][name]), cache=False)


# -- sizes that only numbers decide ----------------------------------------------------------------

SCALED = (
    "sh = Shape(x) h = Slice(sh, v2, v3) w = Slice(sh, v3, v4) m = Min(h, w) f = Cast<to=1>(m) "
    "q = Div(target, f) sc = Concat<axis=0>(ones, q, q) y = Resize<mode=\"linear\">(x, , sc)"
)  # fmt: skip
SCALED_WEIGHTS = {
    "v2": _i(2), "v3": _i(3), "v4": _i(4), "target": np.float32([12]), "ones": np.float32([1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("cache", [False, True])
def test_what_symbols_cannot_tell_is_compiled_for_each_size(cache):
    made = text_model(SCALED, "float[N, 2, H, W] x", weights=SCALED_WEIGHTS)
    compiled = saccade.compile(made, cache=cache)
    assert isinstance(compiled, ByValueModel)
    for shape in ((1, 2, 9, 7), (2, 2, 24, 30), (1, 2, 9, 7), (3, 2, 9, 7)):
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        (result,) = compare_outputs(compiled.run({"x": x}), run_onnxruntime(made, {"x": x}))
        assert result.within(FP32_TOLERANCE), (shape, result)
    assert len(compiled._models) == 2, "one for each size of images, whatever their number"
    assert compiled.plan(x=(1, 2, 9, 7)).steps
    for wrong in ((1, 3, 9, 7), (1, 2, 9), "no shape"):
        with pytest.raises(InputError, match="'x'"):
            compiled.plan(x=wrong)


def test_where_the_number_of_images_decides_as_well():
    by_number = SCALED.replace("Slice(sh, v2, v3)", "Slice(sh, v0, v1)")
    weights = SCALED_WEIGHTS | {"v0": _i(0), "v1": _i(1)}
    made = text_model(by_number, "float[N, 2, H, W] x", weights=weights)
    compiled = saccade.compile(made, cache=False)
    for shape in ((3, 2, 9, 7), (4, 2, 9, 7), (4, 2, 9, 7)):
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        (result,) = compare_outputs(compiled.run({"x": x}), run_onnxruntime(made, {"x": x}))
        assert result.within(FP32_TOLERANCE), (shape, result)
    assert [sizes for _, sizes in compiled._models] == [(3, 2, 9, 7), (4, 2, 9, 7)]


def test_few_models_of_sizes_are_kept(monkeypatch):
    monkeypatch.setattr("saccade.by_value._KEPT_SIZED", 2)
    made = text_model(SCALED, "float[N, 2, H, W] x", weights=SCALED_WEIGHTS)
    compiled = saccade.compile(made, cache=False)
    for size in (8, 9, 10, 9):
        compiled.plan(x=(1, 2, size, 7))
    assert [sizes for _, sizes in compiled._models] == [(None, 2, 10, 7), (None, 2, 9, 7)]


# Windows of 2 that cover an odd image, too, and 15 of them, as a table of positions has it.
BAKED = (
    "p = MaxPool<kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1>(x) sh = Shape(x) "
    "h = Slice(sh, v2, v3) w = Slice(sh, v3, v4) hh = Div(h, v2) ww = Div(w, v2) n = Mul(hh, ww) "
    "to = Concat<axis=0>(ahead, n) r = Reshape(p, to) y = Add(r, places)"
)
BAKED_WEIGHTS = {
    "v2": _i(2), "v3": _i(3), "v4": _i(4), "ahead": _i(-1, 2),
    "places": np.arange(30, dtype=np.float32).reshape(1, 2, 15),
}  # fmt: skip


def test_sizes_that_the_file_holds_for_are_found_by_who_calls():
    """None of the sizes that are tried beforehand has 15 windows."""
    made = text_model(BAKED, "float[N, 2, H, W] x", weights=BAKED_WEIGHTS)
    compiled = saccade.compile(made, cache=False)
    assert isinstance(compiled, ByValueModel)
    for shape in ((1, 2, 6, 10), (3, 2, 10, 6), (1, 2, 2, 30)):
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        (result,) = compare_outputs(compiled.run({"x": x}), run_onnxruntime(made, {"x": x}))
        assert result.within(FP32_TOLERANCE), (shape, result)
    for wrong in ((1, 2, 8, 8), (1, 2, 5, 10)):
        with pytest.raises(ModelError, match="the file does not hold for x=1x2x"):
            compiled(np.zeros(wrong, np.float32))


def test_what_no_size_helps_is_refused_at_once():
    made = text_model(
        BAKED + " z = Unheard(y)", "float[N, 2, H, W] x", weights=BAKED_WEIGHTS, outputs="float z"
    )
    with pytest.raises(UnsupportedModelError, match="no such operator"):
        saccade.compile(made, cache=False)


# -- bodies that run a known number of times -------------------------------------------------------

TURNS = {
    "a loop": "k = Constant<value_int=4>() y = Loop(k, , s) <body = l (int64 i, bool q, float v) => (bool q2, float w2) { q2 = Identity(q) w2 = Mul(v, v) }>",
    "no turn": "k = Constant<value_int=0>() y = Loop(k, , s) <body = l (int64 i, bool q, float v) => (bool q2, float w2) { q2 = Identity(q) w2 = Mul(v, v) }>",
    "a loop that gathers": "k = Constant<value_int=3>() z, y = Loop(k, , s) <body = l (int64 i, bool q, float v) => (bool q2, float w2, float w3) { q2 = Identity(q) f = Cast<to=1>(i) w2 = Add(v, f) w3 = Mul(w2, w2) }>",
    "until a known turn": "k = Constant<value_int=9>() t0 = Constant<value_int=1>() c0 = Cast<to=9>(t0) y = Loop(k, c0, s) <body = l (int64 i, bool q, float v) => (bool q2, float w2) { q2 = Less(i, v2_) w2 = Exp(v) }>",
    "a scan": "z, y = Scan(zero1, x) <num_scan_inputs=1, body = l (float[4] a, float[4] r) => (float[4] b, float[4] c) { b = Add(a, r) c = Mul(b, r) }>",
    "a scan backwards along columns": "z, y = Scan(zero2, x) <num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1], body = l (float[40] a, float[40] r) => (float[40] b, float[40] c) { b = Add(a, r) c = Identity(b) }>",
}  # fmt: skip


@pytest.mark.parametrize("name", TURNS)
def test_turns_that_are_known(name):
    made = model(TURNS[name])
    extra = {
        "zero1": np.zeros(4, np.float32),
        "zero2": np.zeros(40, np.float32),
        "v2_": np.array(2),
    }
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(a, n) for n, a in extra.items() if n in TURNS[name]
    )
    feeds = arrays(-0.9)
    (result,) = compare_outputs(
        saccade.compile(made, cache=False).run(feeds), run_onnxruntime(made, feeds)
    )
    assert result.within(FP32_TOLERANCE), result


def test_a_team_shares_nothing_but_the_results():
    """Rows, and directions, of several threads at once: each with space of its own."""
    generator = np.random.default_rng(0)
    weights = {
        "k": _i(40), "w": generator.normal(0, 0.2, (2, 64, 9)).astype(np.float32),
        "r": generator.normal(0, 0.2, (2, 64, 16)).astype(np.float32),
    }  # fmt: skip
    made = text_model(
        'v, i = TopK<axis=1>(x, k) a, h = LSTM<hidden_size=16, direction="bidirectional">(s, w, r)',
        "float[64, 3000] x, float[60, 7, 9] s", "float v, int64 i, float a", 17, weights,
    )  # fmt: skip
    compiled = saccade.compile(made, threads=4, cache=False)
    for _ in range(5):
        feeds = {
            "x": generator.integers(0, 900, (64, 3000)).astype(np.float32),
            "s": generator.normal(size=(60, 7, 9)).astype(np.float32),
        }
        for result in compare_outputs(compiled.run(feeds), run_onnxruntime(made, feeds)):
            assert result.within(FP32_TOLERANCE), result
