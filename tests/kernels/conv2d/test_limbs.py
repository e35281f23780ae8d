"""float32 convolutions in tiles of matrices: by the instructions where there are any, played."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, storage
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.conv2d import WINDOWS, ConvShape
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.limb_schedules import LimbWork
from saccade.kernels.cpu.conv2d.limbs import CONV2D_LIMBS
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4, tile_targets
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(61)
F32, BF16 = DType.F32, DType.BF16
SAME = (1, 1, 1, 1)
BIAS_RELU = parse("relu(add($0, $1))")
AMX = described_target("sapphire-rapids-amx")
RUNS = ((False, 2, (1, 0)), (True, 7, (6, 2, 4, 0, 1, 5, 3)))
TARGETS = tile_targets()
NEEDED = pytest.mark.skipif(
    not TARGETS or bool(os.environ.get("SACCADE_TEST_ARM")),
    reason="no vectors as wide as a row of a tile",
)


@pytest.fixture(name="holds")
def holds_fixture(hold):
    if not TARGETS or os.environ.get("SACCADE_TEST_ARM"):
        pytest.skip("no vectors as wide as a row of a tile")

    def holds(
        op, arrays, *, x=nhwc_view, y=F32, place=nhwc_view, views=(), kernel=CONV2D_LIMBS, **more
    ):
        shape = storage.reference(op, arrays)[0].shape
        found = [x(DType.of(arrays[0].dtype), arrays[0].shape)]
        found += [
            row_major(DType.of(a.dtype), a.shape) for a in arrays[1 : len(arrays) - len(views)]
        ]
        known = (False, *(True for _ in found[1:]), *(False for _ in views))
        return hold(
            kernel, op, arrays, inputs=[*found, *views], outputs=[place(y, shape)],
            constant=known, runs=[(t, *run) for t in TARGETS for run in RUNS], **more,
        )  # fmt: skip

    return holds


def operands(case, make, w=F32):
    return [make(case.x, F32, RNG), make(case.w, w, RNG)]


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
@pytest.mark.parametrize("w", [F32, BF16])
def test_integers_are_exact(holds, case, w):
    holds(case.op, operands(case, exact_operands, w), exact=True)


DEEP = (
    ConvShape("point", (2, 96, 9, 11), (70, 96, 1, 1), Conv2d()),
    ConvShape("ragged", (1, 201, 7, 6), (33, 201, 1, 1), Conv2d()),
    ConvShape("point-2", (1, 64, 9, 11), (70, 64, 1, 1), Conv2d((2, 2))),
    ConvShape("padded", (1, 64, 5, 6), (20, 64, 1, 1), Conv2d(padding=SAME)),
    ConvShape("taps", (1, 64, 9, 8), (40, 64, 3, 3), Conv2d((2, 1), SAME)),
    ConvShape("grouped", (2, 64, 8, 7), (48, 32, 3, 3), Conv2d(padding=SAME, groups=2)),
)


@NEEDED
@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_all_variants_have_the_same_bits(case):
    """Blocks, parts of the reduction and cuts are no part of what is computed."""
    arrays, target = operands(case, random_operands), TARGETS[0]
    shape = storage.reference(case.op, arrays)[0].shape
    call, small = (
        call_of(case.op, case.x, case.w, shape, target=machine)
        for machine in (target, replace(target, l2=4 << 10))
    )
    found, parts = set(), set()
    # Parts of the reduction are made for what the L2 cache does not hold.
    variants = [*CONV2D_LIMBS.variants(call), *CONV2D_LIMBS.variants(small)]
    for variant in variants:
        (launch,) = variant.launches
        parts.add((launch.config.rows, launch.integers["part"]))
        (result,) = run_kernel(
            launched_as(CONV2D_LIMBS, lambda _, chosen=variant: chosen.launches), case.op, arrays,
            [nhwc_view(F32, shape)], inputs=call.inputs, constant=(False, True), isa=target,
            checked=True,
        )  # fmt: skip
        found.add(result.tobytes())
    assert len(parts) >= 4 and len(variants) >= 6 and len(found) == 1


def test_parts_of_the_reduction():
    """Of whole taps, or of steps of 32 channels; none where channels do not fill steps."""

    def parts(inner, whole):
        return list(LimbWork(100, 64, inner, 1, 10.0, whole).part_sizes())

    assert parts(1024, 1) == [32, 16, 8, 4, 2]
    assert parts(1000, 1) == [32, 16, 8, 4, 2]
    assert parts(9 * 64, 2) == [18, 10, 6, 4, 2]
    assert parts(9 * 40, 0) == [12]
    assert parts(20, 1) == [1]


def test_parts_are_as_large_as_the_cache_lets_them_be():
    """12544 products a sum: whole sums of a few columns would copy all rows for each of them."""
    deep = LimbWork(1000, 1024, 12544, 1, 0.0, 1)
    best = deep.schedules(AMX, 2)[0]
    assert 1 < best.part < deep.steps and best.cut.blocks >= 4
    held = LimbWork(7500, 512, 128, 1, 0.0, 1)
    assert {schedule.part for schedule in held.schedules(AMX, 2)} == {held.steps}


def test_threads_have_several_chunks():
    """They are not equally fast; panels are split once for all of them."""
    for rows, columns, inner in ((30000, 64, 256), (7500, 512, 128), (1568, 1024, 256)):
        for threads in (2, 8):
            cut = LimbWork(rows, columns, inner, 1, 0.0, 1).schedules(AMX, threads)[0].cut
            assert cut.tile_chunks * cut.block_chunks >= 5 * threads


@pytest.mark.parametrize("channels", [32, 7])
def test_no_images(holds, channels):
    for op, taps in ((Conv2d(padding=SAME), 3), (Conv2d((2, 2), SAME), 3), (Conv2d(), 1)):
        shapes = ((0, channels, 5, 6), (9, channels, taps, taps))
        holds(op, [exact_operands(shape, F32, RNG) for shape in shapes], exact=True)


@pytest.mark.parametrize("case", (*WINDOWS[:8], WINDOWS[12]), ids=lambda case: case.name)
def test_random_operands(holds, case):
    op = replace(case.op, epilogue=BIAS_RELU)
    bias = random_operands((1, case.w[0], 1, 1), F32, RNG)
    holds(op, [*operands(case, random_operands), bias], k=case.depth)


def result_of(kernel, op, arrays, target):
    shape = storage.reference(op, arrays)[0].shape
    (found,) = run_kernel(
        kernel, op, arrays, [nhwc_view(F32, shape)],
        inputs=[nhwc_view(F32, arrays[0].shape), row_major(F32, arrays[1].shape)],
        constant=(False, True), isa=target,
    )  # fmt: skip
    return found


@NEEDED
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 3e18])
def test_nearer_than_sums_of_float32(taps, scale):
    """At any scale that is not near the ends of float32."""
    op, shapes = Conv2d(padding=(taps // 2,) * 4), ((1, 512, 6, 7), (48, 512, taps, taps))
    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in shapes)
    x *= np.float32(scale)
    exact = storage.reference(op, [x.astype(np.float64), w.astype(np.float64)])[0]

    def error(kernel, target):
        found = result_of(kernel, op, [x, w], target)
        return np.linalg.norm(found - exact) / np.linalg.norm(exact)

    for target in TARGETS:
        assert error(CONV2D_LIMBS, target) < 0.7 * error(CONV2D_DIRECT, target)


@NEEDED
def test_what_becomes_of_what_is_not_finite():
    """NaN wherever an infinity or NaN is multiplied, and nowhere else."""
    x, w = np.ones((1, 40, 5, 9), np.float32), np.ones((7, 40, 1, 1), np.float32)
    x[0, 3, 1, 2], x[0, 39, 4, 8], x[0, 0, 0, 0] = np.inf, np.nan, -np.inf
    found = result_of(CONV2D_LIMBS, Conv2d(), [x, w], TARGETS[-1])
    wrong = np.broadcast_to(~np.isfinite(x).all(axis=1, keepdims=True), found.shape)
    assert np.isnan(found[wrong]).all()
    assert (found[~wrong] == 40).all()


@NEEDED
def test_the_largest_numbers_have_limbs():
    x, w = np.zeros((1, 32, 1, 1), np.float32), np.zeros((3, 32, 1, 1), np.float32)
    x[0, :3, 0, 0], w[:, :3, 0, 0] = np.finfo(np.float32).max, np.diag([0.5, -0.25, 0.125])
    found = result_of(CONV2D_LIMBS, Conv2d(), [x, w], TARGETS[-1]).reshape(-1)
    assert found.tolist() == [x.max() * f for f in (np.float32(0.5), -0.25, 0.125)]


@NEEDED
def test_played_tiles_have_the_bits_of_the_instructions():
    if len(TARGETS) < 2:
        pytest.skip("no tiles of matrices here")
    arrays = [random_operands(shape, F32, RNG) for shape in ((1, 70, 9, 11), (40, 70, 3, 3))]
    found = [result_of(CONV2D_LIMBS, Conv2d(padding=SAME), arrays, t) for t in TARGETS]
    assert found[0].tobytes() == found[1].tobytes()


def gapped(kind, shape):
    """NaN lies between the pixels, which zero does not silence."""
    return nhwc_view(kind, shape, shape[1] + 7)


@pytest.mark.parametrize("channels", [7, 32, 45])
def test_neighbours_of_a_pixel_are_not_multiplied(holds, channels):
    for op, taps in ((Conv2d(padding=SAME), 3), (Conv2d(), 1), (Conv2d((2, 2)), 2)):
        shapes = ((2, channels, 5, 6), (9, channels, taps, taps))
        arrays = [exact_operands(shape, F32, RNG) for shape in shapes]
        holds(op, arrays, x=gapped, place=gapped, exact=True)


@pytest.mark.parametrize("kind", [BF16, F32])
@pytest.mark.parametrize("taps", [1, 3])
def test_epilogue_operands(holds, kind, taps):
    op = Conv2d(padding=(taps // 2,) * 4, epilogue=parse("relu(add(mul(add($0, $1), $2), $3))"))
    shapes = ((2, 32, 5, 4), (37, 32, taps, taps), (1, 37, 1, 1), (2, 37, 1, 1), (2, 37, 5, 4))
    kinds = (F32, F32, F32, kind, kind)
    arrays = [exact_operands(s, k, RNG) for s, k in zip(shapes, kinds, strict=True)]
    views = (nhwc_view(kind, shapes[3]), nhwc_view(kind, shapes[4], 40))
    holds(op, arrays, y=kind, views=views, exact=True)


@pytest.mark.parametrize("place", [nhwc_view, row_major], ids=["last", "rows"])
@pytest.mark.parametrize(("block", "channels"), [(2, 12), (2, 128), (3, 45)])
def test_depth_to_space(holds, block, channels, place):
    op = Conv2d(padding=SAME, epilogue=BIAS_RELU, store=DepthToSpaceStore(block, "CRD"))
    for depth in (5, 32):
        arrays = [exact_operands(s, F32, RNG) for s in ((2, depth, 4, 5), (channels, depth, 3, 3))]
        arrays.append(exact_operands((1, channels, 1, 1), F32, RNG))
        holds(op, arrays, place=place, exact=True)


def test_interleaving(holds):
    op = Conv2d(epilogue=BIAS_RELU, store=InterleaveStore(2, 1))
    shapes = ((2, 6, 5, 4), (58, 6, 1, 1), (1, 58, 1, 1), (2, 58, 5, 4))
    arrays = [exact_operands(shape, F32, RNG) for shape in shapes]
    holds(op, arrays, views=(nhwc_view(F32, shapes[3], 61),), exact=True)


@pytest.mark.parametrize("depth", [32, 37, 140])
def test_prologue(holds, depth):
    op = Conv2d(stride=(1, 2), prologue=parse("relu(add(mul($0, $1), $2))"), n_prologue=2)
    shapes = ((2, depth, 5, 7), (70, depth, 1, 1), (1, depth, 1, 1), (1, depth, 1, 1))
    kinds = (F32, BF16, BF16, F32)
    holds(op, [exact_operands(s, k, RNG) for s, k in zip(shapes, kinds, strict=True)], exact=True)


def call_of(op, x, w, y, *, known=True, kind=F32, target=AMX, place=nhwc_view, exact=False):
    views = (place(kind, x), row_major(F32, w))
    return Call(op, views, (nhwc_view(F32, y),), (False, known), target, 2, exact)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (DEEP[0], "inner"), (DEEP[0], "pixels"), (DEEP[1], "depth"), (DEEP[4], "pad_top"),
        (DEEP[4], "taps_s"), (DEEP[4], "stride_h"), (DEEP[0], "steps"),
    ],
    ids=lambda one: getattr(one, "name", one),
)  # fmt: skip
def test_a_wrong_size_is_caught(holds, case, name):
    def wrong(call):
        (launch,) = CONV2D_LIMBS.launch(call)
        return (mistaken(launch, name, -1),)

    with pytest.raises((AssertionError, OutOfBoundsError)):
        holds(
            case.op, operands(case, exact_operands), exact=True,
            kernel=launched_as(CONV2D_LIMBS, wrong),
        )  # fmt: skip


def test_refusals():
    op, x, w, y = Conv2d(padding=SAME), (1, 32, 8, 8), (16, 32, 3, 3), (1, 16, 8, 8)
    reason = CONV2D_LIMBS.supports
    assert reason(call_of(op, x, w, y)) is None
    assert reason(call_of(op, x, w, y, target=ZEN4)) == "the machine has no tiles of matrices"
    assert reason(call_of(op, x, w, y, exact=True)) == "limbs leave out the smallest products"
    assert reason(call_of(op, x, w, y, known=False)) == "the weights are not constant"
    assert reason(call_of(op, x, w, y, kind=BF16)) == "elements are bfloat16 and float32"
    assert "apart" in reason(call_of(op, x, w, y, place=row_major))
    assert "not finite" in reason(call_of(replace(op, finite=False), x, w, y))
    assert "a prologue" in reason(call_of(replace(op, prologue=parse("relu($0)")), x, w, y))
