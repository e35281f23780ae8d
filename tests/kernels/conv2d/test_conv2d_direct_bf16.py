"""The direct convolution over bfloat16: storage of every operand, products in pairs, odd depths."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.target import described_target
from saccade.ir import DType, storage
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.conv2d import WINDOWS, ConvShape
from saccade.kernels.cpu import packing
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(9)
F32, BF16 = DType.F32, DType.BF16
WITHOUT = "avx512-plain"  # without dot products of bfloat16
AVX2 = (("avx2", False, 1, None), ("avx2", True, 3, (2, 0, 1)))
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))
EACH = (
    *(("avx512", False, 1, None), ("avx512", True, 3, (2, 0, 1)), (WITHOUT, False, 1, None)),
    ("avx2", False, 1, None),
)
BIAS_RELU = parse("relu(add($0, $1))")
MIXES = {
    "bf16": (BF16, BF16, BF16),
    "to-f32": (BF16, BF16, F32),
    "from-f32": (F32, F32, BF16),
    "weights-f32": (BF16, F32, BF16),
    "weights-bf16": (F32, BF16, F32),
}
DEPTHS = [
    ConvShape(f"{c}-{r}x{r}", (1, c, 5, 4), (33, c, r, r), Conv2d(padding=(r // 2,) * 4))
    for c in (1, 2, 3, 7, 9, 17, 48, 960)
    for r in ((1, 3) if c < 960 else (1,))
]


def run(hold, op, arrays, y, *, views=(), place=nhwc_view, **kwargs):
    """Weights and operands whose view is not given are constants."""
    shape = storage.reference(op, arrays)[0].shape
    found = [place(DType.of(arrays[0].dtype), arrays[0].shape)]
    found += [row_major(DType.of(a.dtype), a.shape) for a in arrays[1 : len(arrays) - len(views)]]
    known = (False, *(True for _ in found[1:]), *(False for _ in views))
    return hold(
        CONV2D_DIRECT, op, arrays, inputs=[*found, *views], outputs=[place(y, shape)],
        constant=known, **kwargs,
    )  # fmt: skip


def operands(case, mix, make):
    return [make(shape, kind, RNG) for shape, kind in zip((case.x, case.w), mix, strict=False)]


def each_mix():
    """All cases in bfloat16, some of them in every mix."""
    for case in WINDOWS:
        for mix in MIXES if case.name in ("same", "grouped", "pointwise") else ("bf16",):
            yield pytest.param(case, mix, id=f"{case.name}-{mix}")


@pytest.mark.parametrize(("case", "mix"), list(each_mix()))
def test_integers_are_exact(hold, case, mix):
    arrays = operands(case, MIXES[mix], exact_operands)
    run(hold, case.op, arrays, MIXES[mix][2], exact=True, runs=FEW)


@pytest.mark.parametrize("case", DEPTHS, ids=lambda case: case.name)
def test_even_and_odd_depths(hold, case):
    arrays = operands(case, MIXES["bf16"], exact_operands)
    run(hold, case.op, arrays, BF16, exact=True, runs=EACH)


@pytest.mark.parametrize("place", [nhwc_view, row_major], ids=["last", "rows"])
@pytest.mark.parametrize("depth", [1, 7, 8, 37])
def test_rows_that_are_copied_as_float32(hold, depth, place):
    """Before the products of several blocks of channels; a stride leaves pixels out."""
    for op in (Conv2d(), Conv2d(stride=(2, 1))):
        arrays = [exact_operands(s, BF16, RNG) for s in ((2, depth, 9, 5), (70, depth, 1, 1))]
        run(hold, op, arrays, BF16, place=place, exact=True, runs=AVX2)


@pytest.mark.parametrize("depth", [1, 9, 37])
@pytest.mark.parametrize(
    "op", [Conv2d(padding=(2,) * 4, dilation=(2, 2)), Conv2d(padding=(1,) * 4), Conv2d()], ids=str
)
def test_images_that_are_widened_ahead(hold, op, depth):
    """Borders of every kind, rows of images that lie apart, a residual beside."""
    op = dataclasses.replace(op, epilogue=parse("relu(add($0, $1))"))
    arrays = [exact_operands(s, BF16, RNG) for s in ((2, depth, 9, 7), (70, depth, 3, 3))]
    (y,) = storage.reference(dataclasses.replace(op, epilogue=Conv2d().epilogue), arrays)
    arrays.append(exact_operands(y.shape, BF16, RNG))
    wide = lambda kind, shape: nhwc_view(kind, shape, shape[1] + 3)  # noqa: E731
    views = (nhwc_view(BF16, y.shape),)
    run(hold, op, arrays, BF16, place=wide, views=views, exact=True, runs=AVX2)


def test_sums_in_parts_of_images_that_are_widened_ahead(hold):
    op = Conv2d(padding=(1,) * 4)
    arrays = [exact_operands(s, BF16, RNG) for s in ((1, 640, 3, 2), (70, 640, 3, 3))]
    views = (nhwc_view(BF16, (1, 640, 3, 2)), row_major(BF16, (70, 640, 3, 3)))
    target = described_target("zen4", "avx2")
    call = Call(op, views, (nhwc_view(BF16, (1, 70, 3, 2)),), (False, True), target)
    phases = [launch.config.phase for launch in CONV2D_DIRECT.launch(call)]
    assert phases[0] == "widen" and phases[-1] == "sum"
    run(hold, op, arrays, BF16, exact=True, runs=AVX2)


def test_images_are_widened_ahead_where_elements_are_read_often():
    avx2 = described_target("zen4", "avx2")
    image, same = (1, 32, 14, 14), Conv2d(padding=(1,) * 4)
    assert config(avx2, same, image, (64, 32, 3, 3)).phase == "widen"
    assert config(avx2, same, image, (32, 32, 3, 3)).phase == "whole"  # 288 products of each
    for op, kind, target in (
        (dataclasses.replace(same, stride=(2, 2)), BF16, avx2),  # 144
        (same, F32, avx2),
        (same, BF16, ZEN4),
    ):
        assert config(target, op, image, (64, 32, 3, 3), kind=kind).phase == "whole"
    assert config(avx2, dataclasses.replace(same, groups=2), image, (64, 16, 3, 3)).phase == "whole"
    assert config(avx2, same, (1, 32, 2, 2), (64, 32, 3, 3)).pairs  # a stream of weights


@pytest.mark.parametrize("depth", [6, 7])
def test_few_pixels_are_summed_in_pairs_everywhere(hold, depth):
    op = Conv2d(epilogue=BIAS_RELU)
    arrays = [exact_operands(s, BF16, RNG) for s in ((1, depth, 3, 2), (70, depth, 3, 2))]
    arrays.append(exact_operands((1, 70, 1, 1), F32, RNG))
    run(hold, op, arrays, BF16, exact=True, runs=(*AVX2, (WITHOUT, True, 1, None)))


@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.name)
def test_random_operands(hold, case):
    op = dataclasses.replace(case.op, epilogue=BIAS_RELU)
    bias = random_operands((1, case.w[0], 1, 1), F32, RNG)
    arrays = [*operands(case, MIXES["bf16"], random_operands), bias]
    run(hold, op, arrays, BF16, k=case.depth, runs=EACH)


@pytest.mark.parametrize("case", WINDOWS[:6], ids=lambda case: case.name)
def test_row_major_images(hold, case):
    arrays = operands(case, MIXES["bf16"], exact_operands)
    run(hold, case.op, arrays, BF16, place=row_major, exact=True, runs=FEW)


@pytest.mark.parametrize("channels", [1, 7, 17])
def test_neighbours_of_an_odd_pixel_are_not_multiplied(hold, channels):
    """Between the pixels of a view lies NaN, which zero does not silence."""
    op = Conv2d(padding=(1, 1, 1, 1))
    arrays = [exact_operands(s, BF16, RNG) for s in ((1, channels, 5, 6), (9, channels, 3, 3))]
    wide = lambda kind, shape: nhwc_view(kind, shape, shape[1] + 3)  # noqa: E731
    run(hold, op, arrays, BF16, place=wide, exact=True, runs=EACH)


@pytest.mark.parametrize("kind", [BF16, F32])
def test_epilogue_operands(hold, kind):
    op = Conv2d(epilogue=parse("relu(add(mul(add($0, $1), $2), $3))"))
    shapes = ((2, 9, 5, 4), (37, 9, 1, 1), (1, 37, 1, 1), (2, 37, 1, 1), (2, 37, 5, 4))
    kinds = (BF16, BF16, F32, kind, kind)
    arrays = [exact_operands(s, k, RNG) for s, k in zip(shapes, kinds, strict=True)]
    views = (nhwc_view(kind, shapes[3]), nhwc_view(kind, shapes[4], 40))
    run(hold, op, arrays, BF16, views=views, exact=True, runs=EACH)


@pytest.mark.parametrize("place", [nhwc_view, row_major], ids=["last", "rows"])
@pytest.mark.parametrize(("block", "channels"), [(2, 12), (2, 128), (3, 45)])
def test_depth_to_space(hold, block, channels, place):
    op = Conv2d(padding=(1,) * 4, epilogue=BIAS_RELU, store=DepthToSpaceStore(block, "CRD"))
    arrays = [exact_operands(s, BF16, RNG) for s in ((2, 5, 4, 5), (channels, 5, 3, 3))]
    arrays.append(exact_operands((1, channels, 1, 1), BF16, RNG))
    run(hold, op, arrays, BF16, place=place, exact=True, runs=FEW)


@pytest.mark.parametrize("kind", [BF16, F32])
def test_interleaving(hold, kind):
    op = Conv2d(epilogue=BIAS_RELU, store=InterleaveStore(2, 1))
    shapes = ((2, 6, 5, 4), (58, 6, 1, 1), (1, 58, 1, 1), (2, 58, 5, 4))
    kinds = (BF16, BF16, F32, kind)
    arrays = [exact_operands(s, k, RNG) for s, k in zip(shapes, kinds, strict=True)]
    run(hold, op, arrays, BF16, views=(nhwc_view(kind, shapes[3], 61),), exact=True, runs=FEW)


@pytest.mark.parametrize("place", [nhwc_view, row_major], ids=["last", "rows"])
@pytest.mark.parametrize("kind", [BF16, F32])
def test_prologue(hold, kind, place):
    op = Conv2d(stride=(1, 2), prologue=parse("relu(add(mul($0, $1), $2))"), n_prologue=2)
    shapes = ((2, 37, 5, 7), (70, 37, 1, 1), (1, 37, 1, 1), (1, 37, 1, 1))
    kinds = (BF16, BF16, kind, F32)
    arrays = [exact_operands(s, k, RNG) for s, k in zip(shapes, kinds, strict=True)]
    run(hold, op, arrays, BF16, place=place, exact=True, runs=EACH)


def config(target, op, x, w, constant=True, kind=BF16):
    y = storage.reference(op, [np.zeros(shape, np.float32) for shape in (x, w)])[0].shape
    views = (nhwc_view(kind, x), row_major(F32, w))
    return CONV2D_DIRECT.launch(Call(op, views, (nhwc_view(kind, y),), (False, constant), target))[
        0
    ].config


def test_rows_are_copied_where_blocks_of_channels_would_widen_each_element_anew():
    avx2 = described_target("zen4", "avx2")
    many, few = (1, 32, 14, 14), (1, 32, 2, 2)
    assert config(avx2, Conv2d(), many, (64, 32, 1, 1)).copied
    assert not config(avx2, Conv2d(), many, (32, 32, 1, 1)).copied  # too few blocks
    assert not config(avx2, Conv2d(), many, (64, 32, 1, 1), kind=F32).copied
    assert not config(avx2, Conv2d(groups=2), many, (64, 16, 1, 1)).copied
    assert not config(avx2, Conv2d(padding=(1,) * 4), many, (64, 32, 1, 1)).copied
    assert not config(avx2, Conv2d(padding=(1,) * 4), many, (64, 32, 3, 3)).copied
    assert not config(avx2, Conv2d(), few, (64, 32, 1, 1)).copied  # a stream of weights, in pairs
    assert config(avx2, Conv2d(), few, (64, 32, 1, 1)).pairs
    assert not config(ZEN4, Conv2d(), many, (64, 32, 1, 1)).copied
    assert config(dataclasses.replace(ZEN4, bf16=False), Conv2d(), many, (64, 32, 1, 1)).copied


def test_pairs_are_used_where_the_target_has_them():
    for target, kinds, pairs in (
        (ZEN4, (BF16, BF16), True),
        (ZEN4, (BF16, F32), True),
        (ZEN4, (F32, BF16), False),
        (dataclasses.replace(ZEN4, bf16=False), (BF16, BF16), False),
        (described_target("zen4", "avx2"), (BF16, BF16), False),
    ):
        views = (nhwc_view(kinds[0], (1, 9, 4, 4)), row_major(kinds[1], (16, 9, 1, 1)))
        call = Call(Conv2d(), views, (nhwc_view(BF16, (1, 16, 4, 4)),), (False, True), target)
        assert CONV2D_DIRECT.launch(call)[0].config.pairs is pairs


def swapped(packed):
    """Every pair the wrong way round."""
    return packed[..., ::-1].copy()


def shifted(packed):
    """Pairs of channels 1 and 2, 3 and 4, … instead of 0 and 1, 2 and 3, …"""
    return np.roll(packed.swapaxes(-1, -2), 1, axis=-2).swapaxes(-1, -2).copy()


@pytest.mark.parametrize("mutant", [swapped, shifted])
def test_planted_mistakes_are_seen(monkeypatch, mutant):
    arrays = [exact_operands(s, BF16, RNG) for s in ((1, 7, 4, 4), (9, 7, 3, 3))]
    op = Conv2d(padding=(1, 1, 1, 1))
    views = [nhwc_view(BF16, arrays[0].shape), row_major(BF16, arrays[1].shape)]
    right = packing.FUNCTIONS["pack_conv_weights"]
    wrong = {**packing.FUNCTIONS, "pack_conv_weights": lambda *args: mutant(right(*args))}
    monkeypatch.setattr(packing, "FUNCTIONS", wrong)
    (result,) = run_kernel(
        CONV2D_DIRECT, op, arrays, [nhwc_view(BF16, (1, 9, 4, 4))], inputs=views,
        constant=(False, True), isa="avx512",
    )  # fmt: skip
    with pytest.raises(AssertionError):
        assert_exact(result, storage.reference(op, arrays)[0].astype(BF16.numpy))
