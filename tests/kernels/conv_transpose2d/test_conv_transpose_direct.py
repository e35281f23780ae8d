"""Transposed convolution: every phase of every stride, with and without taps."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType, storage
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv_transpose2d.direct import CONV_TRANSPOSE2D_DIRECT
from saccade.opdefs import ConvTranspose2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(12)
F32, BF16 = DType.F32, DType.BF16
WITHOUT = "avx512-plain"  # without dot products of bfloat16
PAIRS = (("avx512", False, 2, (1, 0)), ("avx512", True, 1, None), (WITHOUT, False, 1, None))
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))
CASES = {
    "plain": ((1, 5, 4, 6), (5, 17, 3, 3), {}),
    "double": ((2, 9, 5, 4), (9, 20, 4, 4), {"stride": (2, 2), "padding": (1, 1, 1, 1)}),
    "output-padding": (
        (1, 8, 5, 7),
        (8, 33, 3, 3),
        {"stride": (2, 2), "padding": (1, 1, 1, 1), "output_padding": (1, 1)},
    ),
    "gaps": ((1, 3, 4, 4), (3, 16, 2, 1), {"stride": (3, 3)}),
    "dilated": ((1, 4, 5, 5), (4, 7, 3, 2), {"stride": (2, 3), "dilation": (2, 2)}),
    "common-factor": ((1, 4, 5, 5), (4, 7, 3, 3), {"stride": (4, 2), "dilation": (2, 4)}),
    "asymmetric": ((1, 4, 6, 5), (4, 8, 5, 3), {"stride": (2, 1), "padding": (3, 0, 1, 2)}),
    "grouped": ((1, 12, 4, 5), (12, 5, 3, 3), {"stride": (2, 2), "groups": 3}),
    "all-cut": ((1, 3, 2, 2), (3, 4, 2, 2), {"stride": (2, 2), "padding": (2, 1, 2, 1)}),
    "no-images": ((0, 3, 4, 4), (3, 5, 3, 3), {"stride": (2, 2)}),
}


def run(hold, op, arrays, *, rows=False, **kwargs):
    shape = op.reference(*arrays)[0].shape
    store = (lambda s: row_major(F32, s)) if rows else (lambda s: nhwc_view(F32, s))
    views = [store(arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:])]
    return hold(
        CONV_TRANSPOSE2D_DIRECT, op, arrays, inputs=views, outputs=[store(shape)],
        constant=(False, *(True for _ in arrays[1:])), **kwargs,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [False, True], ids=["last", "rows"])
@pytest.mark.parametrize("name", CASES)
def test_integers_are_exact(hold, name, rows):
    x, w, attributes = CASES[name]
    arrays = [exact_operands(s, F32, RNG) for s in (x, w)]
    run(hold, ConvTranspose2d(**attributes), arrays, rows=rows, exact=True, runs=FEW)


def test_epilogue(hold):
    op = ConvTranspose2d(stride=(2, 2), epilogue=parse("relu(add(add($0, $1), $2))"))
    shapes = ((2, 6, 4, 5), (6, 19, 2, 2), (1, 19, 1, 1), (2, 19, 8, 10))
    run(hold, op, [random_operands(s, F32, RNG) for s in shapes], k=24)


@pytest.mark.parametrize("mix", [(BF16, BF16), (BF16, F32), (F32, BF16)], ids=str)
@pytest.mark.parametrize("name", ["double", "gaps", "dilated", "grouped", "all-cut"])
def test_bfloat16(hold, name, mix):
    """Even and odd depths; without the instructions, sums of float32."""
    x, w, attributes = CASES[name]
    op, (kind, y) = ConvTranspose2d(**attributes), mix
    arrays = [exact_operands(x, kind, RNG), exact_operands(w, F32, RNG)]
    shape = storage.reference(op, arrays)[0].shape
    hold(
        CONV_TRANSPOSE2D_DIRECT, op, arrays, inputs=[nhwc_view(kind, x), row_major(F32, w)],
        outputs=[nhwc_view(y, shape)], constant=(False, True), exact=True, runs=PAIRS,
    )  # fmt: skip


def test_refuses_computed_weights():
    op = ConvTranspose2d()
    views = (nhwc_view(F32, (1, 4, 3, 3)), row_major(F32, (4, 8, 1, 1)))
    call = Call(op, views, (nhwc_view(F32, (1, 8, 3, 3)),), (False, False), ZEN4)
    assert "not constant" in CONV_TRANSPOSE2D_DIRECT.supports(call)
