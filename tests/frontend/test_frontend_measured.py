# ruff: noqa: E501 - tables with one model a line
"""Sizes and places that data decide: masks enlarged to their boxes, parts cut out, zeros around."""

from __future__ import annotations

import numpy as np
import pytest
from loop_models import hold, model

import saccade
from saccade.by_value import ByValueModel
from saccade.errors import UnsupportedModelError
from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.intervals import highest, interval_of
from saccade.ir import DType
from saccade.ir.dim import symbol
from saccade.ir.expr import parse
from saccade.opdefs import MatMul, NonZero, Pointwise, Reduce, TopK

RNG = np.random.default_rng(11)
NONE = np.iinfo(np.int64).max


def _i(*values):
    return np.array(values, np.int64)


WEIGHTS = {
    "t": np.array(True), "z": _i(0), "o": _i(1), "two": _i(2), "m1": _i(-1), "lead": _i(1, 1), "half": np.float32(0.5),
    "low": _i(1, 1), "most": _i(9, 11), "h12": _i(12), "w15": _i(15), "e": np.zeros((0, 12, 15), np.float32),
    "i0": np.array(0), "i1": np.array(1), "i20": np.array(20), "zf": np.float32(0), "seventeen": np.float32(17), "flat": _i(3, -1),
}  # fmt: skip
# One size for each axis, of data: a bound follows from the clip.
SIZES = "q = Cast<to=7>(b) s0 = Max(q, low) s = Min(s0, most) sz = Concat<axis=0>(lead, s) "


def _model(body, inputs, outputs, **kwargs):
    used = {
        n: w for n, w in WEIGHTS.items() if any(f"{p}{n}{q}" in body for p in " (" for q in ",)")
    }
    return model(body, inputs, outputs, **used, **kwargs)


RESIZES = [
    f'mode="{mode}", coordinate_transformation_mode="{how}"'
    for mode, how in (
        ("linear", "half_pixel"),
        ("linear", "pytorch_half_pixel"),
        ("linear", "align_corners"),
        ("cubic", "half_pixel"),
        ("cubic", "align_corners"),
        ("nearest", "asymmetric"),
    )
] + [
    f'mode="nearest", nearest_mode="{way}", coordinate_transformation_mode="asymmetric"'
    for way in ("round_prefer_ceil", "floor", "ceil")
]


def test_resizes():
    # Through a product, so that nothing but data is known of the sizes. One model: it compiles once.
    body = " ".join(f"y{at} = Resize<{how}>(x, , , sz)" for at, how in enumerate(RESIZES))
    built = _model(
        f"b = MatMul(f, g) {SIZES} {body}", "float[1, 1, 5, 7] x, float[2, 1] f, float[1] g",
        ", ".join(f"float[1, 1, h, w] y{at}" for at in range(len(RESIZES))),
    )  # fmt: skip
    x = RNG.random((1, 1, 5, 7)).astype(np.float32)
    runs = [
        {"x": x, "f": np.float32([[h], [w]]), "g": np.float32([1])}
        for h, w in ((5, 7), (9, 11), (1, 1), (3, 10), (8, -4))
    ]
    hold(built, *runs, reference=False)


PLACES = "g0 = MatMul(f, g) q = Cast<to=7>(g0) p, r = Split<num_outputs=2>(q) "
PARTS = {
    "parts": (
        "a0 = Slice(x, p, r, z) a1 = Slice(x, z, r, o) a2 = Slice(x, p, far, o) pp = Concat<axis=0>(p, p) rr = Concat<axis=0>(r, r) a3 = Slice(x, pp, rr)",
        "float[a, b] a0, float[a, b] a1, float[a, b] a2, float[a, b] a3",
    ),
    "other shapes": (
        "a = Slice(x, z, r, o) a0 = Reshape(a, m1) s = Shape(a) n = Gather(s, i1) a1 = Range(i0, n, i1) h = Slice(x, z, r, z) d = Slice(x, p, far, z) a2 = Concat<axis=0>(h, d)",
        "float[k] a0, int64[k] a1, float[a, b] a2",
    ),
    "repeated as often": (
        "k = Max(r, o) k1 = Min(k, two) sh = Concat<axis=0>(k1, two) a0 = ConstantOfShape(sh) s3 = Concat<axis=0>(k1, two, o) y0 = Expand(half, s3) y1 = Add(y0, y0) a1 = Mul(y1, y0) v = Slice(x, z, k1, o) w = Reshape(v, flat) a2 = ReduceMax<keepdims=0>(w, o)",
        "float[a, b] a0, float[a, b, 1] a1, float[3] a2",
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts(name):
    body, outputs = PARTS[name]
    built = _model(
        PLACES + body, "float[6, 5] x, float[2, 1] f, float[1] g", outputs,
        **({"far": _i(2**62)} if "far" in body else {}),
    )  # fmt: skip
    x = RNG.standard_normal((6, 5)).astype(np.float32)
    ends = ((1, 4), (-3, 5), (3, 2), (-9, 9))
    runs = [{"x": x, "f": np.float32([[p], [r]]), "g": np.float32([1])} for p, r in ends]
    hold(built, *runs, reference=False)


PASTED = """lo, hi = Split<axis=1, num_outputs=2>(b) low0 = Max(lo, zf2) high0 = Min(hi, wh) low1 = Min(low0, wh) high1 = Max(high0, zf2) q = Cast<to=7>(low1) r = Cast<to=7>(high1)
y = Loop(n, t, e) <body = paste (int64 i, bool c, float[k, 12, 15] v) => (bool c2, float[k2, 12, 15] v2) {
 c2 = Identity(c) m = Gather(x, i) a = Gather(q, i) d = Gather(r, i) s0 = Sub(d, a) s1 = Add(s0, o) s = Max(s1, o)
 sx, sy = Split<num_outputs=2>(s) sz = Concat<axis=0>(sy, sx) g = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(m, , , sz)
 ax, ay = Split<num_outputs=2>(a) x1 = Add(ax, sx) y1 = Add(ay, sy) xe = Min(x1, w15) ye = Min(y1, h12) cx = Sub(xe, ax) cy = Sub(ye, ay)
 g1 = Slice(g, z, cy, z) g2 = Slice(g1, z, cx, o)
 gs = Shape(g2) gw = Gather(gs, o) t0 = Concat<axis=0>(ay, gw) top = ConstantOfShape(t0) rest = Sub(h12, ye) b0 = Concat<axis=0>(rest, gw) bot = ConstantOfShape(b0)
 g3 = Concat<axis=0>(top, g2, bot) h3 = Shape(g3) hh = Gather(h3, z) l0 = Concat<axis=0>(hh, ax) l = ConstantOfShape(l0) rr = Sub(w15, xe) r0 = Concat<axis=0>(hh, rr) right = ConstantOfShape(r0)
 g4 = Concat<axis=1>(l, g3, right) g5 = Slice(g4, z, w15, o) g6 = Unsqueeze(g5, z) v2 = Concat<axis=0>(v, g6) }>"""


def test_masks_are_pasted_into_their_boxes():
    boxes = np.float32([[1, 2, 9, 8], [0, 0, 15, 12], [3, 5, 4, 6], [-4, 3, 20, 9], [2, 2, 2, 2]])
    built = _model(
        PASTED, "float[5, 5, 7] x, float[5, 4] b, int64 n", "float[n, 12, 15] y",
        zf2=np.float32([0, 0]), wh=np.float32([14, 11]),
    )  # fmt: skip
    masks = RNG.random((5, 5, 7)).astype(np.float32)
    runs = [{"x": masks, "b": boxes, "n": np.array(n)} for n in (5, 0, 1)]
    compiled = hold(built, *runs, reference=False)
    plan = compiled.plan(x=(5, 5, 7), b=(5, 4), n=())
    assert sum(bool(step.bodies) for step in plan.steps) == 1


# The same in images of any size: room for a mask follows from theirs, as does what it is pasted into.
OF_ANY_SIZE = {"float[k, 12, 15]": "float[k, H, W]", "h12": "high", "w15": "wide", "(n, t, e)": "(n, t, none)"}  # fmt: skip
SIZES_OF_THE_IMAGE = """ish = Shape(image) high = Gather(ish, z) wide = Gather(ish, o) whi = Concat<axis=0>(wide, high) wh1 = Cast<to=1>(whi) wh = Mul(wh1, part)
none_ = Concat<axis=0>(z, high, wide) none = ConstantOfShape(none_) """


def test_masks_are_pasted_into_images_of_any_size():
    body = PASTED
    for fixed, free in OF_ANY_SIZE.items():
        body = body.replace(fixed, free)
    built = _model(
        SIZES_OF_THE_IMAGE + body,
        "float[H, W] image, float[5, 5, 7] x, float[5, 4] b, int64 n", "float[n, H, W] y",
        zf2=np.float32([0, 0]), part=np.float32([0.9, 0.95]),
    )  # fmt: skip
    boxes = np.float32([[1, 2, 9, 8], [0, 0, 99, 99], [3, 5, 4, 6], [-4, 3, 20, 9], [2, 2, 2, 2]])
    x = RNG.random((5, 5, 7)).astype(np.float32)
    runs = [
        {"image": np.zeros(size, np.float32), "x": x, "b": boxes, "n": np.array(n)}
        for size, n in (((12, 15), 5), ((31, 9), 5), ((12, 15), 0), ((7, 40), 3))
    ]
    compiled = hold(built, *runs, reference=False)
    assert not isinstance(compiled, ByValueModel), "planned for each size, and imported once"


ANY_SIZE = {
    "resized": "b = MatMul(f, g) q = Cast<to=7>(b) s0 = Max(q, low) ish = Shape(x) s = Min(s0, ish) lm = Concat<axis=0>(lead, s) m = Reshape(mask, m1157) " + " ".join(
        f"a{at} = Resize<{how}>(m, , , lm)" for at, how in enumerate(RESIZES[:6])
    ),
    "parts": PARTS["parts"][0],
    "side by side": "h = Slice(x, z, r, z) d = Slice(x, p, far, z) a0 = Concat<axis=0>(h, d, h) d1 = Slice(x, z, r, o) d2 = Slice(x, p, far, o) a1 = Concat<axis=1>(d1, d2) d3 = Neg(d1) d4 = Neg(d2) d5 = Concat<axis=1>(d3, d4) a2 = Sub(a1, d5)",
    "other shapes": "a = Slice(x, z, r, o) a0 = Reshape(a, m1) k = Slice(x, z, r, z) b = Slice(k, z, p, o) a1 = Reshape(b, m1)",
}  # fmt: skip


@pytest.mark.parametrize("name", ANY_SIZE)
def test_parts_of_any_size(name):
    """What data decide, of an operand whose own size the inputs decide."""
    body = ANY_SIZE[name]
    outputs = [word for word in body.split() if word[0] == "a" and word[1:].isdigit()]
    rank = {"resized": "1, 1, h, w", "other shapes": "k"}.get(name, "h, w")
    more = {"far": _i(2**62)} if "far" in body else {}
    more |= {"m1157": _i(1, 1, 5, 7)} if "m1157" in body else {}
    built = _model(
        ("" if name == "resized" else PLACES) + body,
        "float[H, W] x, float[5, 7] mask, float[2, 1] f, float[1] g",
        ", ".join(f"float[{rank.replace('h', f'h{a}').replace('w', f'w{a}').replace('k', f'k{a}')}] {a}" for a in outputs),
        **more,
    )  # fmt: skip
    runs = [
        {
            "x": RNG.standard_normal(size).astype(np.float32),
            "mask": RNG.standard_normal((5, 7)).astype(np.float32),
            "f": np.float32([[p], [r]]),
            "g": np.float32([1]),
        }
        for size in ((6, 5), (3, 17), (21, 4))
        for p, r in ((1, 4), (2, 99), (3, 2))
    ]
    compiled = hold(built, *runs, reference=False)
    assert not isinstance(compiled, ByValueModel), "planned for each size, and imported once"


@pytest.mark.parametrize(("bound", "most"), [("ish", 70), ("ish2", 60)])
def test_what_sizes_bound(bound, most):
    """The room is what the inputs' sizes make it, through numbers of any type; the most of both."""
    built = _model(
        "b = MatMul(f, g) q = Cast<to=7>(b) ish = Shape(x) fl = Cast<to=1>(ish) i2 = Mul(fl, scale) ish2 = Cast<to=7>(i2) "
        f"s0 = Min(q, {bound}) s = Max(s0, low) sz = Concat<axis=0>(lead, s) y = Resize<mode=\"nearest\">(m, , , sz)",
        "float[H, W] x, float[1, 1, 5, 7] m, float[2, 1] f, float[1] g", "float[1, 1, h, w] y",
        scale=np.float32([1.5, 0.7]),
    )  # fmt: skip
    plan = saccade.compile(built, cache=False).plan(x=(40, 70), m=(1, 1, 5, 7), f=(2, 1), g=(1,))
    room = [plan.sizes[name] for name in ("measured", "measured_2")]
    assert all(most <= one <= most + 1 for one in room), room


def test_sizes_without_a_bound_are_refused():
    built = _model(
        "b = MatMul(f, g) q = Cast<to=7>(b) s = Max(q, o) sz = Concat<axis=0>(lead, s) y = Resize(x, , , sz)",
        "float[1, 1, 5, 7] x, float[2, 1] f, float[1] g", "float[1, 1, h, w] y",
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError, match="the size of a resize depends on data"):
        saccade.compile(built, cache=False)


GROWN = {
    "rows behind rows": ("y = Loop(n, t, x) <body = b (int64 i, bool c, float[k, 5] v) => (bool c2, float[k2, 5] v2) { c2 = Identity(c) f = Cast<to=1>(i) q = Mul(x, f) v2 = Concat<axis=0>(v, q) }>", "float[k, 5] y"),
    "behind nothing, with a cast": ("y = Loop(n, t, e2) <body = b (int64 i, bool c, float[k] v) => (bool c2, float[k2] v2) { c2 = Identity(c) f = Cast<to=1>(i) q = Reshape(f, m1) w = Cast<to=1>(v) v2 = Concat<axis=0>(w, q) }>", "float[k] y"),
    "beside what stays as it is": ("y, s, r = Loop(n, t, x, zf) <body = b (int64 i, bool c, float[k, 5] v, float u) => (bool c2, float[k2, 5] v2, float u2, float g) { c2 = Identity(c) f = Cast<to=1>(i) u2 = Add(u, f) q = Mul(x, u2) v2 = Concat<axis=0>(v, q) g = Neg(u2) }>", "float[k, 5] y, float s, float[m] r"),
}  # fmt: skip


@pytest.mark.parametrize("name", GROWN)
def test_carried_values_grow(name):
    body, outputs = GROWN[name]
    more = {"e2": np.zeros(0, np.float32)} if "e2" in body else {}
    built = _model(body, "int64 n, float[2, 5] x", outputs, **more)
    x = RNG.standard_normal((2, 5)).astype(np.float32)
    # ONNX's own reference gathers nothing of no turns.
    hold(built, *({"n": np.array(n), "x": x} for n in (3, 1, 0, 8)), reference=False)


def test_what_else_reads_a_value_that_grows_is_refused():
    built = _model(
        "s = ReduceSum<keepdims=0>(x) n = Cast<to=7>(s) y = Loop(n, t, x) <body = b (int64 i, bool c, float[k, 5] v) => (bool c2, float[k2, 5] v2) { c2 = Identity(c) m = ReduceMax<keepdims=1>(v, z) v2 = Concat<axis=0>(v, m) }>",
        "float[3, 5] x", "float[k, 5] y",
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError, match="carries a value whose shape changes"):
        saccade.compile(built, cache=False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("clip($0, 0, 9)", (0, 9)),
        ("sub(clip($0, 0, 9), clip($0, 2, 5))", (-5, 7)),
        ("mul(clip($0, -2, 3), clip($0, -4, 5))", (-12, 15)),
        ("div(clip($0, 2, 6), const)", (-np.inf, np.inf)),
        ("where(less($0, 1), 4, max(min($0, 8), 5))", (4, 8)),
        ("abs(clip($0, -7, 2))", (0, 7)),
        ("exp(clip($0, 0, 1))", (-np.inf, np.inf)),
        ("relu(sigmoid($0))", (0, 1)),
    ],
)
def test_intervals(text, wanted):
    build = Builder()
    x = build.value("x", DType.F32, (4,))
    expr = parse(text.replace("const", "clip($0, -1, 1)"))
    (y,) = build.emit(Pointwise(expr, DType.F32), [x], "y")
    (z,) = build.emit(Reduce("max", (0,)), [y], "z")
    for value in (y, z):
        low, high = interval_of(build, value)
        assert low <= wanted[0] and high >= wanted[1]  # float32 may round what is stored
        np.testing.assert_allclose((low, high), wanted, rtol=1e-6, atol=1e-30)


def test_places_of_elements_count_from_the_front():
    build = Builder()
    x = build.value("x", DType.F32, (2, 8))
    largest = np.iinfo(np.int64).max
    _, where = build.emit(TopK(3, 1), [x], "top")
    (table, *_) = build.emit(NonZero(symbol("found")), [x], "found")
    for value in (where, table):
        assert interval_of(build, value) == (0, largest)


def test_only_what_tells_is_asked_again():
    """Of the nodes behind a value those that say something, whatever the sizes."""
    build = Builder()
    x, size = build.value("x", DType.F32, (1,)), build.value("size", DType.F32, (1,))
    deep = x
    for _ in range(9):
        (deep,) = build.emit(Pointwise(parse("exp($0)"), DType.F32), [deep], "deep")
    (y,) = build.emit(Pointwise(parse("min($0, mul($1, 2))"), DType.F32), [deep, size], "y")
    (z,) = build.emit(Pointwise(parse("add($0, 1)"), DType.F32), [y], "z")
    found = highest(build, z, lambda value: value is size)
    node = build.makers[found]
    assert node.inputs == (size,) and len(node.op.body.nodes) == 2
    assert node.op.reference(np.float32([3])) == (7,)
    for nothing in (deep, x, size):
        assert highest(build, nothing, lambda value: value is size) is None
    (w,) = build.emit(Pointwise(parse("max($0, $1)"), DType.F32), [deep, size], "w")
    lower = highest(build, w, lambda value: value is size)
    assert build.makers[lower].op.reference(np.float32([3])) == (NONE,)


def test_nothing_is_known_behind_products():
    build = Builder()
    x = build.value("x", DType.F32, (4, 4))
    (y,) = build.emit(MatMul(), [x, x], "y")
    assert interval_of(build, y) == (-np.inf, np.inf)
