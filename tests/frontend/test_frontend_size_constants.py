# ruff: noqa: E501 - a model is one line
"""Plans hold what their sizes alone decide: ranges, scales, grids of anchors."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import run_onnxruntime, text_model

import saccade
from saccade.backends.cpu.store.identity import machine_identity
from saccade.errors import PlanError
from saccade.kernels.size_constant import SIZE_CONSTANT
from saccade.opdefs import SizeConstant
from saccade.testing.compare import FP32_TOLERANCE, compare_outputs

WEIGHTS = {
    "v0": np.array([0]), "v2": np.array([2]), "v3": np.array([3]), "v4": np.array([4]), "i0": np.array(0), "i1": np.array(1),
    "flat": np.array([-1]), "wide": np.array([1, 1, 1, -1]), "tall": np.array([1, 1, -1, 1]), "image": np.array([1, 2]),
    "step": np.float32(8), "half": np.float32(0.5), "axes": np.array([0]),
    "w": np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32),
}  # fmt: skip
# Centres of pixels, a number that follows from both sizes, and pixels in the order of a head.
BODY = (
    "sh = Shape(x) hv = Slice(sh, v2, v3) wv = Slice(sh, v3, v4) h = Squeeze(hv, axes) u = Squeeze(wv, axes) "
    "ry = Range(i0, h, i1) rx = Range(i0, u, i1) fy = Cast<to=1>(ry) fx = Cast<to=1>(rx) "
    "sy = Add(fy, half) ty = Mul(sy, step) gy = Reshape(ty, tall) tx = Mul(fx, step) gx = Reshape(tx, wide) "
    "grid = Add(gy, gx) area = Mul(hv, wv) fa = Cast<to=1>(area) root = Sqrt(fa) "
    "c = Conv(x, w) d = Add(c, grid) y = Div(d, root) z = Identity(root) "
)
SHAPES = ((1, 3, 5, 7), (1, 3, 16, 9), (1, 3, 1, 1), (1, 3, 5, 9))


def model():
    return text_model(BODY, "float[1, 3, H, W] x", "float y, float z", weights=WEIGHTS, opset=17)


def image(shape):
    return np.random.default_rng(sum(shape)).random(shape, np.float32)


def size_constants(plan):
    return [one for one in plan.constants if one.of_sizes]


@pytest.mark.parametrize(
    "options", [{}, {"checked": True}, {"device": "reference"}, {"threads": 1}]
)
def test_each_size_has_its_own(options):
    made = model()
    compiled = saccade.compile(made, cache=False, **options)
    for shape in (*SHAPES, SHAPES[0]):
        x = image(shape)
        for result in compare_outputs(compiled.run({"x": x}), run_onnxruntime(made, {"x": x})):
            assert result.within(FP32_TOLERANCE), (shape, result)
    plan = compiled.plan(SHAPES[0])
    # What is left computes grids and results: no step counts, and none makes numbers of sizes.
    assert {step.op.family for step in plan.steps} <= {"Conv2d", "Pointwise", "Move"}
    (held,) = size_constants(plan)
    assert held.packing.function == SIZE_CONSTANT
    others = {one.key for shape in SHAPES for one in size_constants(compiled.plan(shape))}
    assert len(others) == len(SHAPES)
    assert size_constants(compiled.plan(SHAPES[1])) != [held]


def test_it_takes_no_step_and_no_part_in_tuning():
    plan = saccade.compile(model(), cache=False).plan(SHAPES[0])
    assert not any(isinstance(step.op, SizeConstant) for step in plan.steps)
    number = plan.constants.index(*size_constants(plan))
    reads = [
        slot
        for step in plan.steps
        for slot in step.inputs
        if slot.ref.base == plan.constant_base + number
    ]
    assert reads
    assert not any(map(plan.is_weight, reads))


def test_plans_come_back_from_json():
    plan = saccade.compile(model(), cache=False).plan(SHAPES[0])
    again = type(plan).from_json(plan.to_json())
    assert again == plan
    assert [one.key for one in again.constants] == [one.key for one in plan.constants]


@pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")
def test_later_starts_map_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    xs = [image(shape) for shape in SHAPES]
    made = model()
    first = saccade.compile(made, threads=2)
    # The first size is kept at once, another one when it is asked for again.
    results = [[first.run({"x": x}) for x in xs] for _ in range(2)][1]
    again = saccade.compile(made, threads=2)
    for x, wanted in zip(xs, results, strict=True):
        found = again.run({"x": x})
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_a_bundle_holds_those_of_its_sizes(tmp_path):
    compiled = saccade.compile(model(), cache=False)
    path = tmp_path / "model.saccade"
    compiled.save(path, *({"x": shape} for shape in SHAPES[:2]))
    bundle = saccade.compile(path)
    for shape in SHAPES[:2]:
        found, wanted = (one.run({"x": image(shape)}) for one in (bundle, compiled))
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_they_count_as_memory_that_a_plan_takes():
    line = (
        "sh = Shape(x) n = Squeeze(sh, axes) r = Range(i0, n, i1) f = Cast<to=1>(r) y = Mul(x, f)"
    )
    made = text_model(line, "float[N] x", "float y", weights=WEIGHTS, opset=17)
    tight = saccade.compile(made, cache=False, limits=saccade.Limits(arena_bytes=1 << 12))
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(tight.run({"x": x})["y"], np.arange(1000))
    with pytest.raises(PlanError, match=r"take \d+ bytes, more than 4096"):
        tight.plan((2000,))


def test_ranges_begin_and_end_where_sizes_say():
    line = "sh = Shape(x) n = Squeeze(sh, axes) m = Sub(n, i2) r = Range(i2, m, i1) f = Cast<to=1>(r) g = Exp(f) t = ReduceSum<keepdims=0>(g) y = Mul(x, t)"
    made = text_model(
        line, "float[N] x", "float y", weights={**WEIGHTS, "i2": np.array(2)}, opset=17
    )
    compiled = saccade.compile(made, cache=False)
    for n in (6, 9):
        x = np.ones(n, np.float32)
        for result in compare_outputs(compiled.run({"x": x}), run_onnxruntime(made, {"x": x})):
            assert result.within(FP32_TOLERANCE)
