"""Convolutions in tiles of matrices: by the instructions where there are any, and played."""

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
from saccade.kernels.cpu.conv2d.amx import CONV2D_AMX
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4, tile_targets
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(16)
F32, BF16 = DType.F32, DType.BF16
SAME = (1, 1, 1, 1)
BIAS_RELU = parse("relu(add($0, $1))")
AMX = described_target("sapphire-rapids-amx")
RUNS = ((False, 2, (1, 0)), (True, 7, (6, 2, 4, 0, 1, 5, 3)))
TARGETS = tile_targets()


@pytest.fixture(name="holds")
def holds_fixture(hold):
    if not TARGETS or os.environ.get("SACCADE_TEST_ARM"):
        pytest.skip("no vectors as wide as a row of a tile")

    def holds(
        op, arrays, y=BF16, *, x=nhwc_view, place=nhwc_view, views=(), kernel=CONV2D_AMX, **more
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


def operands(case, kinds, make):
    return [make(shape, kind, RNG) for shape, kind in zip((case.x, case.w), kinds, strict=False)]


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
@pytest.mark.parametrize("w", [F32, BF16])
def test_integers_are_exact(holds, case, w):
    holds(case.op, operands(case, (BF16, w), exact_operands), F32, exact=True)


SHIFTED = (
    ConvShape("same", (2, 64, 9, 11), (48, 64, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("deep", (1, 96, 5, 6), (16, 96, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("stride-2", (2, 32, 13, 75), (33, 32, 3, 3), Conv2d((2, 2), (1, 1, 1, 1))),
    ConvShape("asymmetric", (1, 32, 7, 8), (19, 32, 3, 2), Conv2d((2, 1), (0, 2, 1, 1))),
    ConvShape("dilated", (1, 32, 12, 9), (40, 32, 3, 3), Conv2d((1, 1), (3, 2, 3, 2), (3, 2))),
    ConvShape("beyond", (1, 32, 12, 9), (24, 32, 2, 2), Conv2d((3, 3), (0, 0, 0, 0))),
    ConvShape("grouped", (2, 64, 8, 7), (48, 32, 3, 3), Conv2d(padding=(1, 1, 1, 1), groups=2)),
    ConvShape("wide", (1, 32, 5, 40), (80, 32, 1, 5), Conv2d(padding=(0, 2, 0, 2))),
    ConvShape("far", (2, 32, 9, 10), (40, 32, 3, 3), Conv2d((1, 1), (8, 7, 8, 7), (8, 7))),
    ConvShape("point", (2, 64, 9, 11), (70, 64, 1, 1), Conv2d()),
    ConvShape("point-2", (1, 64, 9, 11), (70, 64, 1, 1), Conv2d((2, 2))),
)


def only(source):
    """The kernel with windows read in one way, best first."""

    def launches(call):
        ways = [v for v in CONV2D_AMX.variants(call) if v.code[0] == source]
        return ways[0].launches

    return launched_as(CONV2D_AMX, launches)


@pytest.mark.parametrize("case", SHIFTED, ids=lambda case: case.name)
def test_each_source_of_windows(holds, case):
    arrays = operands(case, (BF16, F32), exact_operands)
    sources = ("there",) if case.name == "point" else ("shifted", "gathered")
    sources += ("sparse",) if case.name == "far" else ()
    for source in sources:
        holds(case.op, arrays, F32, exact=True, kernel=only(source))


@pytest.mark.parametrize("channels", [32, 7])
def test_no_images(holds, channels):
    for op, taps in ((Conv2d(padding=SAME), 3), (Conv2d((2, 2), SAME), 3), (Conv2d(), 1)):
        shapes = ((0, channels, 5, 6), (9, channels, taps, taps))
        holds(op, [exact_operands(shape, BF16, RNG) for shape in shapes], exact=True)


PLANES = (
    ConvShape("stem", (2, 3, 21, 30), (40, 3, 7, 7), Conv2d((2, 2), (3, 3, 3, 3))),
    ConvShape("odd", (1, 3, 9, 11), (16, 3, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("gray", (1, 1, 13, 33), (20, 1, 5, 9), Conv2d((1, 3), (0, 4, 2, 1), (2, 1))),
    ConvShape("tall", (1, 4, 40, 5), (33, 4, 4, 4), Conv2d((4, 4))),
)


@pytest.mark.parametrize("kind", [F32, BF16])
@pytest.mark.parametrize("case", PLANES, ids=lambda case: case.name)
def test_windows_from_planes(holds, case, kind):
    arrays = operands(case, (kind, F32), exact_operands)
    holds(case.op, arrays, x=row_major, kernel=only("planes"))


@pytest.mark.parametrize("case", WINDOWS[:6], ids=lambda case: case.name)
def test_random_operands(holds, case):
    op = replace(case.op, epilogue=BIAS_RELU)
    bias = random_operands((1, case.w[0], 1, 1), F32, RNG)
    holds(op, [*operands(case, (BF16, F32), random_operands), bias], k=case.depth)


def test_played_tiles_have_the_bits_of_the_instructions():
    """In each order that sums are made in: 32 products of a tile, even ones and odd ones apart."""
    if len(TARGETS) < 2:
        pytest.skip("no tiles of matrices here")
    op, found = Conv2d(padding=SAME), []
    arrays = [random_operands(shape, BF16, RNG) for shape in ((1, 70, 9, 11), (40, 70, 3, 3))]
    views = [nhwc_view(BF16, arrays[0].shape), row_major(BF16, arrays[1].shape)]
    for target in TARGETS:
        found += run_kernel(
            CONV2D_AMX, op, arrays, [nhwc_view(F32, (1, 40, 9, 11))], inputs=views,
            constant=(False, True), isa=target,
        )  # fmt: skip
    assert found[0].tobytes() == found[1].tobytes()


def gapped(kind, shape):
    """NaN lies between the pixels, which zero does not silence."""
    return nhwc_view(kind, shape, shape[1] + 7)


@pytest.mark.parametrize("channels", [7, 32, 45])
def test_neighbours_of_a_pixel_are_not_multiplied(holds, channels):
    for op, taps in ((Conv2d(padding=SAME), 3), (Conv2d(), 1), (Conv2d((2, 2)), 2)):
        shapes = ((2, channels, 5, 6), (9, channels, taps, taps))
        arrays = [exact_operands(shape, BF16, RNG) for shape in shapes]
        holds(op, arrays, x=gapped, place=gapped, exact=True)


@pytest.mark.parametrize("kind", [BF16, F32])
@pytest.mark.parametrize("taps", [1, 3])
def test_epilogue_operands(holds, kind, taps):
    op = Conv2d(
        padding=(taps // 2,) * 4, epilogue=parse("relu(add(mul(add($0, $1), $2), $3))")
    )  # fmt: skip
    shapes = ((2, 32, 5, 4), (37, 32, taps, taps), (1, 37, 1, 1), (2, 37, 1, 1), (2, 37, 5, 4))
    kinds = (BF16, BF16, F32, kind, kind)
    arrays = [exact_operands(s, k, RNG) for s, k in zip(shapes, kinds, strict=True)]
    views = (nhwc_view(kind, shapes[3]), nhwc_view(kind, shapes[4], 40))
    holds(op, arrays, views=views, exact=True)


@pytest.mark.parametrize("place", [nhwc_view, row_major], ids=["last", "rows"])
@pytest.mark.parametrize(("block", "channels"), [(2, 12), (2, 128), (3, 45)])
def test_depth_to_space(holds, block, channels, place):
    op = Conv2d(padding=SAME, epilogue=BIAS_RELU, store=DepthToSpaceStore(block, "CRD"))
    for depth in (5, 32):
        arrays = [exact_operands(s, BF16, RNG) for s in ((2, depth, 4, 5), (channels, depth, 3, 3))]
        arrays.append(exact_operands((1, channels, 1, 1), BF16, RNG))
        holds(op, arrays, place=place, exact=True)


def test_interleaving(holds):
    op = Conv2d(epilogue=BIAS_RELU, store=InterleaveStore(2, 1))
    shapes = ((2, 6, 5, 4), (58, 6, 1, 1), (1, 58, 1, 1), (2, 58, 5, 4))
    arrays = [
        exact_operands(s, k, RNG) for s, k in zip(shapes, (BF16, BF16, F32, BF16), strict=True)
    ]
    holds(op, arrays, views=(nhwc_view(BF16, shapes[3], 61),), exact=True)


@pytest.mark.parametrize("depth", [32, 37])
@pytest.mark.parametrize("kind", [BF16, F32])
def test_prologue(holds, kind, depth):
    op = Conv2d(stride=(1, 2), prologue=parse("relu(add(mul($0, $1), $2))"), n_prologue=2)
    shapes = ((2, depth, 5, 7), (70, depth, 1, 1), (1, depth, 1, 1), (1, depth, 1, 1))
    arrays = [
        exact_operands(s, k, RNG) for s, k in zip(shapes, (BF16, BF16, kind, F32), strict=True)
    ]
    holds(op, arrays, exact=True)


def call_of(op, x, w, y, *, known=True, kind=BF16, target=AMX, place=nhwc_view, exact=False):
    views = (place(kind, x), row_major(F32, w))
    return Call(op, views, (nhwc_view(BF16, y),), (False, known), target, 2, exact)


@pytest.mark.parametrize(
    "case", [SHIFTED[0], SHIFTED[2], SHIFTED[8], SHIFTED[9], PLANES[0]], ids=lambda c: c.name
)
def test_all_variants_have_the_same_bits(case):
    """Blocks of tiles, their cuts and where windows are read are no part of what is computed."""
    if not TARGETS:
        pytest.skip("no vectors as wide as a row of a tile")
    arrays, target = operands(case, (BF16, F32), random_operands), TARGETS[0]
    shape = storage.reference(case.op, arrays)[0].shape
    place = row_major if case in PLANES else nhwc_view
    call = call_of(case.op, case.x, case.w, shape, target=target, place=place)
    found, seen = set(), set()
    for variant in CONV2D_AMX.variants(call):
        if variant.code in seen:
            continue
        seen.add(variant.code)
        (result,) = run_kernel(
            launched_as(CONV2D_AMX, lambda _, chosen=variant: chosen.launches), case.op, arrays,
            [nhwc_view(BF16, shape)], inputs=call.inputs, constant=(False, True), isa=target,
        )  # fmt: skip
        found.add(result.tobytes())
    assert len(seen) >= 5 and len(found) == 1


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (SHIFTED[0], "line"), (SHIFTED[0], "across"), (SHIFTED[2], "pad_top"),
        (WINDOWS[0], "depth"), (WINDOWS[0], "pairs"), (SHIFTED[9], "x_w"),
        (PLANES[0], "out_width"), (PLANES[0], "stride_w"),
    ],
    ids=lambda one: getattr(one, "name", one),
)  # fmt: skip
def test_a_wrong_size_is_caught(holds, case, name):
    def wrong(call):
        (launch,) = CONV2D_AMX.launch(call)
        return (mistaken(launch, name, -1),)

    with pytest.raises((AssertionError, OutOfBoundsError)):
        holds(
            case.op, operands(case, (BF16, F32), exact_operands), F32, exact=True,
            x=row_major if case in PLANES else nhwc_view, kernel=launched_as(CONV2D_AMX, wrong),
        )  # fmt: skip


def test_refusals():
    op, x, w, y = Conv2d(padding=SAME), (1, 32, 8, 8), (16, 32, 3, 3), (1, 16, 8, 8)
    reason = CONV2D_AMX.supports
    assert reason(call_of(op, x, w, y)) is None
    assert reason(call_of(op, x, w, y, target=ZEN4)) == "the machine has no tiles of matrices"
    assert reason(call_of(op, x, w, y, known=False)) == "the weights are not constant"
    assert reason(call_of(op, x, w, y, kind=F32)) == "elements are float32 and float32"
    assert "apart" in reason(call_of(op, x, w, y, place=row_major))
    assert "not finite" in reason(call_of(replace(op, finite=False), x, w, y))
    assert "a prologue" in reason(call_of(replace(op, prologue=parse("relu($0)")), x, w, y))
    planes = (1, 3, 8, 8), (16, 3, 3, 3), (1, 16, 8, 8)
    assert reason(call_of(op, *planes, kind=F32, place=row_major)) is None
    rounded = reason(call_of(op, *planes, kind=F32, place=row_major, exact=True))
    assert rounded == "elements are float32 and float32"


def test_the_best_way_of_reading_windows():
    """Shifted rows where channels fill tiles, and taps do not reach far beyond the image."""

    def source(op, x, w):
        shape = op.sum_shape(x, w)
        return CONV2D_AMX.launch(call_of(op, x, w, tuple(shape)))[0].config.source

    assert source(Conv2d(padding=SAME), (1, 64, 56, 56), (64, 64, 3, 3)) == "shifted"
    assert source(Conv2d(), (1, 64, 56, 56), (64, 64, 1, 1)) == "there"
    assert source(Conv2d(padding=SAME), (1, 40, 56, 56), (64, 40, 3, 3)) == "gathered"
    far = Conv2d(padding=(36,) * 4, dilation=(36, 36))
    assert source(far, (1, 960, 33, 33), (256, 960, 3, 3)) == "sparse"
