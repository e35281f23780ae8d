"""Deformable convolution against its definition: layouts, dtypes, contents of the offsets."""

from __future__ import annotations

import numpy as np
import pytest
from deform_cases import CASES, RNG, chosen, operands, results, stored

from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.deform.forward import DEFORM_CONV2D
from saccade.opdefs import DeformConv
from saccade.testing.kernels import launched_as, mistaken, row_major
from saccade.testing.targets import ZEN4

RUNS = (
    ("avx512", False, 1, None),
    ("avx512", True, 7, (6, 2, 4, 0, 1, 5, 3)),
    ("avx2", True, 2, (1, 0)),
)
FEW = (RUNS[0], RUNS[1])


def held(hold, op, arrays, *, last=False, exact=False, kernel=DEFORM_CONV2D, **more):
    """Channels-last images have gaps between their pixels, weights have their taps outside."""
    views = [stored(a, last, 3 * (i == 0)) for i, a in enumerate(arrays)]
    (result,) = results(op, arrays)
    out = stored(result, last, 2)
    k = max(1, arrays[1][0].size)
    return hold(kernel, op, arrays, inputs=views, outputs=[out], k=k, exact=exact, **more)


@pytest.mark.parametrize("last", [False, True], ids=["planar", "last"])
@pytest.mark.parametrize(("shape", "outputs", "window", "attributes"), CASES, ids=str)
def test_exact(hold, shape, outputs, window, attributes, last):
    op = DeformConv(bias=not last, mask=not last, **attributes)
    arrays = chosen(op, operands(RNG, op, shape, outputs, window, exact=True))
    held(hold, op, arrays, last=last, exact=True, runs=FEW[:2] if last else RUNS)


@pytest.mark.parametrize("dtype", [DType.F64, DType.F16], ids=str)
def test_dtypes(hold, dtype):
    """Offsets and masks of another type than the image."""
    op = DeformConv(bias=True, mask=True, padding=(1, 1, 1, 1), offset_groups=2)
    other = DType.F16 if dtype is DType.F64 else DType.F64
    arrays = operands(RNG, op, (2, 38, 6, 7), 21, (3, 3), dtype, other)
    held(hold, op, arrays, last=dtype is DType.F64, stored=dtype, runs=FEW)


def test_bfloat16(hold):
    """Samples are rounded where the target multiplies pairs; whole ones need none."""
    op = DeformConv(bias=True, mask=True, padding=(1, 1, 1, 1), offset_groups=3, groups=3)
    x, w, offset, bias, mask = operands(
        RNG, op, (2, 27, 6, 7), 15, (3, 3), DType.BF16, DType.F32, exact=True
    )
    held(hold, op, [x, w, np.round(offset), bias, np.round(mask)], exact=True, runs=FEW)


def test_wherever_offsets_point(hold):
    """At the border, far outside, at infinity: 0. At NaN: NaN. Infinities are read only where
    a sample has a share in them."""
    op = DeformConv(mask=False, padding=(1, 1, 1, 1))
    x, w, offset, *_ = operands(RNG, op, (1, 19, 5, 6), 8, (3, 3))
    special = [-1.0, 1.0, 5.0, 6.0, -2.0, 1e9, -1e30, 3e38, np.inf, -np.inf, 0.5]
    offset[...] = RNG.choice(np.array(special, np.float32), offset.shape)
    x[0, :, 0, 0], x[0, :, 4, 5] = np.float32(1e30), np.float32(-1e30)
    held(hold, op, [x, w, offset])
    offset[0, ::5, 2, 2] = np.nan
    held(hold, op, [x, w, offset], runs=FEW)


def test_nothing_but_padding(hold):
    op = DeformConv(padding=(2, 1, 1, 2))
    x, w, offset, *_ = operands(RNG, op, (1, 4, 0, 3), 3, (2, 2))
    (y,) = held(hold, op, [x, w, offset], runs=FEW)
    assert not y.any()


# Not `tap_columns` (a tap's row and column are made of it), blocks of a unit and their channels,
# which one block has alone.
MUTANTS = (
    "pixels", "across", "height", "width", "taps", "stride_y", "stride_x", "top", "left",
    "dilation_y", "dilation_x", "pitch", "blocks", "outputs", "steps",
)  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(hold, name):
    def launch(call):
        *first, last = DEFORM_CONV2D.launch(call)
        return (*first, mistaken(last, name, -1))

    attributes = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 2, 1, 2)}
    op = DeformConv(bias=True, mask=True, groups=2, offset_groups=4, **attributes)
    arrays = operands(RNG, op, (2, 40, 9, 12), 44, (3, 3))
    with pytest.raises((AssertionError, OutOfBoundsError)):
        held(hold, op, arrays, kernel=launched_as(DEFORM_CONV2D, launch), runs=FEW[1:2])


def test_tiles_of_short_products_are_vectors_of_pixels():
    op = DeformConv(padding=(1, 1, 1, 1))
    shapes = [(1, 8, 8, 8), (8, 8, 3, 3), (1, 18, 8, 8)]
    inputs = tuple(row_major(DType.F32, s) for s in shapes)
    out = row_major(DType.F32, (1, 8, 8, 8))
    call = Call(op, inputs, (out,), (False,) * 3, ZEN4)
    assert DEFORM_CONV2D.launch(call)[-1].chunks <= 64 // ZEN4.lanes


@pytest.mark.parametrize(("images", "side"), [(1, 12), (1, 14), (1, 28), (2, 20), (1, 56), (6, 26)])
def test_small_images_spread(images, side):
    """An image, or a few, has chunks for a large team."""
    op = DeformConv(padding=(1, 1, 1, 1))
    shapes = [(images, 512, side, side), (256, 512, 3, 3), (images, 18, side, side)]
    out = row_major(DType.F32, (images, 256, side, side))
    inputs = tuple(row_major(DType.F32, s) for s in shapes)
    call = Call(op, inputs, (out,), (False,) * 3, ZEN4)
    assert DEFORM_CONV2D.launch(call)[-1].chunks >= 40


def test_refusals():
    op = DeformConv()
    views = [row_major(DType.F32, s) for s in ((1, 4, 5, 5), (2, 4, 1, 1), (1, 2, 5, 5))]
    out = row_major(DType.F32, (1, 2, 5, 5))

    def reason(x, y=out):
        known = (False,) * 3
        return DEFORM_CONV2D.supports(Call(op, (x, *views[1:]), (y,), known, ZEN4))

    assert reason(views[0]) is None
    assert "int32" in reason(row_major(DType.I32, (1, 4, 5, 5)))
    assert "apart" in reason(View(DType.F32, (1, 4, 5, 5), (400, 60, 10, 1)))
