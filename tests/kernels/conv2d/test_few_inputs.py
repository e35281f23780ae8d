"""Convolutions of few input channels: cases, borders, epilogues, stores, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cases.conv2d import ConvShape
from saccade.kernels.cpu import packing
from saccade.kernels.cpu.conv2d.few_inputs import CONV2D_FEW_INPUTS
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(11)
F32 = DType.F32
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))
BIAS_RELU = parse("relu(add($0, $1))")

CASES = (
    ConvShape("first", (1, 3, 13, 37), (16, 3, 3, 3), Conv2d((2, 2), (1, 1, 1, 1))),
    ConvShape("stem", (2, 3, 20, 18), (24, 3, 7, 7), Conv2d((2, 2), (3, 3, 3, 3))),
    ConvShape("wide", (1, 3, 5, 70), (70, 3, 3, 3), Conv2d(padding=(1, 1, 1, 1))),
    ConvShape("one-channel", (1, 1, 10, 10), (1, 1, 5, 5), Conv2d(padding=(2, 2, 2, 2))),
    ConvShape("no-border", (3, 2, 6, 9), (33, 2, 2, 3)),
    ConvShape("asymmetric", (1, 4, 7, 8), (19, 4, 3, 2), Conv2d((2, 1), (0, 2, 1, 1))),
    ConvShape("dilated", (1, 3, 12, 19), (16, 3, 3, 3), Conv2d((1, 3), (3, 2, 3, 2), (3, 2))),
    ConvShape("beyond", (1, 2, 2, 3), (8, 2, 3, 3), Conv2d((1, 1), (4, 4, 4, 4), (2, 2))),
    ConvShape("pointwise", (1, 3, 9, 40), (20, 3, 1, 1)),
    ConvShape("column", (1, 3, 9, 1), (16, 3, 3, 1), Conv2d(padding=(1, 0, 1, 0))),
    ConvShape("no-images", (0, 3, 9, 9), (16, 3, 3, 3)),
)


def run(hold, op, arrays, *, kernel=CONV2D_FEW_INPUTS, x=None, y=None, more=(), known=None, **kw):
    """Row-major images to channels-last ones unless views are given."""
    shape = op.reference(*arrays)[0].shape
    views = [x or row_major(F32, arrays[0].shape), row_major(F32, arrays[1].shape), *more]
    views += [row_major(F32, a.shape) for a in arrays[len(views) :]]
    constant = known or (False, *(True for _ in arrays[1:]))
    return hold(
        kernel, op, arrays, inputs=views, outputs=[y or nhwc_view(F32, shape)], constant=constant,
        **kw,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_integers_are_exact(hold, case):
    arrays = [exact_operands(case.x, F32, RNG), exact_operands(case.w, F32, RNG)]
    run(hold, case.op, arrays, exact=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_random_operands_with_bias_and_relu(hold, case):
    arrays = [random_operands(s, F32, RNG) for s in (case.x, case.w, (1, case.w[0], 1, 1))]
    op = dataclasses.replace(case.op, epilogue=BIAS_RELU)
    run(hold, op, arrays, k=case.depth, runs=FEW)


@pytest.mark.parametrize("number", range(1, 12, 3))
def test_every_tile_gives_the_same(hold, number):
    def launch(call):
        return list(CONV2D_FEW_INPUTS.variants(call))[number].launches

    case = CASES[2]
    arrays = [exact_operands(case.x, F32, RNG), exact_operands(case.w, F32, RNG)]
    kernel = launched_as(CONV2D_FEW_INPUTS, launch)
    run(hold, case.op, arrays, kernel=kernel, exact=True, runs=FEW)


def test_a_view_of_a_larger_image_and_row_major_results(hold):
    case = CASES[0]
    arrays = [exact_operands(case.x, F32, RNG), exact_operands(case.w, F32, RNG)]
    shape = case.op.reference(*arrays)[0].shape
    wider = row_major(F32, (1, 4, 15, 40))
    view = wider._replace(shape=case.x)
    run(hold, case.op, arrays, x=view, y=nhwc_view(F32, shape, 20), exact=True, runs=FEW)
    run(hold, case.op, arrays, y=row_major(F32, shape), exact=True, runs=FEW)


EPILOGUES = {
    "channel": ("add($0, $1)", (1, 20, 1, 1)),
    "image-channel": ("mul($0, $1)", (2, 20, 1, 1)),
    "residual": ("relu(add($0, $1))", (2, 20, 6, 5)),
    "map": ("mul($0, $1)", (2, 1, 6, 5)),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue_operands(hold, name):
    text, shape = EPILOGUES[name]
    op = Conv2d(padding=(1, 1, 1, 1), epilogue=parse(text))
    arrays = [exact_operands(s, F32, RNG) for s in ((2, 3, 6, 5), (20, 3, 3, 3), shape)]
    run(hold, op, arrays, exact=True, runs=FEW)
    run(hold, op, arrays, more=(nhwc_view(F32, shape),), known=(0, 1, 0), exact=True, runs=FEW)


def test_stores(hold):
    op = Conv2d(padding=(1, 1, 1, 1), store=DepthToSpaceStore(2, "CRD"))
    arrays = [exact_operands(s, F32, RNG) for s in ((2, 3, 4, 5), (12, 3, 3, 3))]
    run(hold, op, arrays, exact=True, runs=FEW)
    out = row_major(F32, op.reference(*arrays)[0].shape)
    run(hold, op, arrays, y=out, exact=True, runs=FEW)
    op = Conv2d(store=InterleaveStore(2, 1))
    arrays = [exact_operands(s, F32, RNG) for s in ((2, 3, 5, 4), (58, 3, 1, 1), (2, 58, 5, 4))]
    views = (nhwc_view(F32, (2, 58, 5, 4)),)
    run(hold, op, arrays, more=views, known=(0, 1, 0), exact=True, runs=FEW)


def test_bfloat16_images(hold):
    case = CASES[1]
    arrays = [exact_operands(case.x, F32, RNG), exact_operands(case.w, F32, RNG)]
    bf16 = DType.BF16
    arrays = [a.astype(bf16.numpy) for a in arrays]
    views = [row_major(bf16, case.x), row_major(bf16, case.w)]
    shape = case.op.reference(*(a.astype(np.float32) for a in arrays))[0].shape
    hold(
        CONV2D_FEW_INPUTS, case.op, arrays, inputs=views, outputs=[nhwc_view(bf16, shape)],
        constant=(False, True), k=case.depth, runs=FEW,
    )  # fmt: skip


def call(op, *, x=(1, 3, 8, 8), w=(16, 3, 3, 3), constant=True, storage=row_major, dtype=F32):
    shape = tuple(int(str(n)) for n in op.sum_shape(x, w))
    views = (storage(dtype, x), row_major(F32, w))
    return Call(op, views, (nhwc_view(F32, shape),), (False, constant), ZEN4)


REFUSED = [
    (call(Conv2d(), constant=False), "not constant"),
    (call(Conv2d(), dtype=DType.F16), "float16"),
    (call(Conv2d(), x=(1, 5, 8, 8), w=(16, 5, 3, 3)), "more than 4 channels"),
    (call(Conv2d(groups=3), w=(9, 1, 3, 3)), "groups"),
    (call(Conv2d(prologue=parse("relu($0)")), w=(9, 3, 1, 1)), "prologue"),
    (call(Conv2d(), storage=nhwc_view), "apart"),
    (call(Conv2d(), x=(1, 3, 20, 20), w=(4, 3, 3, 12)), "taps"),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_refusals(refused, reason):
    assert reason in CONV2D_FEW_INPUTS.supports(refused)


MUTANTS = {
    "padding": lambda op: dataclasses.replace(op, padding=(1, 0, 1, 2)),
    "stride": lambda op: dataclasses.replace(op, stride=(1, 2), padding=(1, 1, 0, 2)),
    "dilation": lambda op: dataclasses.replace(op, dilation=(2, 1), padding=(2, 1, 2, 1)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_mistakes_are_seen(mutant):
    op = Conv2d(padding=(1, 1, 1, 1))
    if mutant == "stride":
        op = dataclasses.replace(op, stride=(2, 1), padding=(1, 1, 1, 1))
    arrays = [exact_operands(s, F32, RNG) for s in ((1, 3, 8, 8), (9, 3, 3, 3))]
    truth = op.reference(*arrays)[0]
    wrong = MUTANTS[mutant](op)
    shape = wrong.reference(*arrays)[0].shape
    views = [row_major(F32, a.shape) for a in arrays]
    (result,) = run_kernel(
        CONV2D_FEW_INPUTS, wrong, arrays, [nhwc_view(F32, shape)], inputs=views,
        constant=(False, True),
    )  # fmt: skip
    with pytest.raises(AssertionError):
        assert_exact(result, truth)


BF16 = DType.BF16
WITHOUT = "avx512-plain"  # without dot products of bfloat16
PAIRS = (("avx512", False, 3, (2, 0, 1)), (WITHOUT, False, 1, None))


@pytest.mark.parametrize("kind", [F32, BF16])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bfloat16(hold, case, kind):
    """Integers that are exact in bfloat16: pairs of taps where they are not dilated."""
    arrays = [exact_operands(case.x, kind, RNG), exact_operands(case.w, F32, RNG)]
    shape = case.op.reference(*(a.astype(np.float32) for a in arrays))[0].shape
    x, y = row_major(kind, case.x), nhwc_view(BF16, shape)
    checked = (("avx512", True, 1, None),) if case.depth < 20 else ()
    run(hold, case.op, arrays, x=x, y=y, exact=True, runs=PAIRS + checked)


def test_a_result_in_float32_is_not_rounded_on_the_way(hold):
    """Images that bfloat16 would round: their differences show."""
    x = (257 + np.arange(3 * 8 * 30, dtype=np.float32)).reshape(1, 3, 8, 30)
    w = exact_operands((20, 3, 3, 3), F32, RNG)
    run(hold, Conv2d(padding=(1, 1, 1, 1)), [x, w], exact=True, runs=PAIRS)


@pytest.mark.parametrize("taps", [2, 3])
def test_what_stands_behind_the_last_tap_is_not_read(taps):
    """One NaN in the image reaches the windows that hold it, and no other."""
    x = np.ones((1, 1, 3, 40), np.float32)
    x[0, 0, 1, 20] = np.nan
    w = np.ones((16, 1, 1, taps), np.float32)
    op = Conv2d()
    out = nhwc_view(BF16, (1, 16, 3, 41 - taps))
    (result,) = run_kernel(CONV2D_FEW_INPUTS, op, [x, w], [out], constant=(False, True))
    seen = np.isnan(result.astype(np.float32))[0, 0]
    assert seen.sum() == taps and seen[1, 21 - taps : 21].all()


def test_pairs_of_taps_in_another_order_are_seen(monkeypatch):
    arrays = [exact_operands(s, F32, RNG) for s in (CASES[1].x, CASES[1].w)]
    right = packing.FUNCTIONS["pack_pairs_of_taps"]
    wrong = {
        **packing.FUNCTIONS,
        "pack_pairs_of_taps": lambda *args: right(*args)[..., ::-1].copy(),
    }
    monkeypatch.setattr(packing, "FUNCTIONS", wrong)
    truth = CASES[1].op.reference(*arrays)[0]
    (result,) = run_kernel(
        CONV2D_FEW_INPUTS, CASES[1].op, arrays, [nhwc_view(BF16, truth.shape)],
        constant=(False, True), isa="avx512",
    )  # fmt: skip
    with pytest.raises(AssertionError):
        assert_exact(result, truth.astype(BF16.numpy))
