from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.resize.direct import RESIZE
from saccade.kernels.cpu.resize.rows import RESIZE_ROWS
from saccade.opdefs.resize import Resize
from saccade.testing.kernels import nhwc_view, off_by, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(11)
SIZES = [
    ((2, 5, 3, 4), (6, 8)),
    ((1, 33, 7, 5), (4, 9)),
    ((1, 70, 1, 6), (1, 3)),
    ((1, 3, 4, 4), (4, 16)),
    ((1, 21, 3, 3), (2, 40)),
    ((2, 32, 5, 5), (40, 36)),
]


def planar(shape, dtype=DType.F32, pad=3):
    """Rows of planes with a pitch."""
    _, c, h, w = shape
    return View(dtype, shape, (c * h * (w + pad), h * (w + pad), w + pad, 1))


def result_view(kind, shape, dtype=DType.F32):
    c = shape[1]
    views = {"planar": planar(shape, dtype), "runs": nhwc_view(dtype, shape, c + 2)}
    return views.get(kind) or nhwc_view(dtype, shape)


def inner(x):
    return nhwc_view(DType.of(x.dtype), x.shape, x.shape[1] + 1)


@pytest.mark.parametrize("kind", ["planar", "runs", "flat"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("shape", "size"), SIZES, ids=str)
def test_modes(hold, kind, mode, shape, size):
    """Tails on all sides; up and down."""
    x = random_operands(shape, DType.F32, RNG)
    op = Resize((*shape[:2], *size), None, mode)
    out = result_view(kind, op.sizes)
    hold(RESIZE_ROWS, op, [x], inputs=[inner(x)], outputs=[out], k=300)


@pytest.mark.parametrize("kind", ["planar", "runs", "flat"])
def test_several_bands_and_parts(hold, kind):
    """Each thread begins with other rows, and with other columns or channels."""
    x = random_operands((2, 40, 24, 16), DType.F32, RNG)
    op = Resize((2, 40, 72, 100), None, "linear", "align_corners")
    out = result_view(kind, op.sizes)
    call = Call(op, (inner(x),), (out,), (False,), ZEN4, threads=7)
    (launch,) = RESIZE_ROWS.launch(call)
    assert launch.integers["bands"] > 1
    assert launch.integers["parts"] > 1
    hold(RESIZE_ROWS, op, [x], inputs=[inner(x)], outputs=[out], k=300)


@pytest.mark.parametrize("kind", ["planar", "runs"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_bfloat16(hold, mixed, mode, kind):
    source, result = mixed
    x = random_operands((2, 19, 4, 5), source, RNG)
    op = Resize((2, 19, 8, 37), None, mode)
    out = result_view(kind, op.sizes, result)
    hold(RESIZE_ROWS, op, [x], inputs=[inner(x)], outputs=[out], k=300)


@pytest.mark.parametrize("kind", ["planar", "runs", "flat"])
def test_epilogues_and_half_precision(hold, kind):
    """By channel, and with a whole result; there are images of several batches."""
    x = random_operands((2, 19, 4, 4), DType.F32, RNG)
    op = Resize((2, 19, 8, 24), None, "linear", epilogue=parse("relu(add(mul($0, $1), $2))"))
    scale, other = (random_operands(s, DType.F32, RNG) for s in ((19, 1, 1), op.sizes))
    out = result_view(kind, op.sizes)
    beside = row_major(DType.F32, op.sizes) if kind == "planar" else nhwc_view(DType.F32, op.sizes)
    views = [inner(x), row_major(DType.F32, scale.shape), beside]
    hold(RESIZE_ROWS, op, [x, scale, other], inputs=views, outputs=[out], k=300)
    x, op = x.astype(np.float16), dataclasses.replace(op, epilogue=parse("relu($0)"))
    out = result_view(kind, op.sizes, DType.F16)
    hold(RESIZE_ROWS, op, [x], inputs=[inner(x)], outputs=[out], k=2)


def test_a_planar_result_equals_a_channels_last_one():
    x = random_operands((1, 21, 5, 7), DType.F32, RNG)
    op = Resize((1, 21, 40, 56), None, "cubic")
    results = [
        run_kernel(RESIZE_ROWS, op, [x], [result_view(kind, op.sizes)], inputs=[inner(x)])[0]
        for kind in ("planar", "runs", "flat")
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[1], results[2])


@pytest.mark.parametrize("kind", ["planar", "flat"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_results_beyond_the_caches(hold, monkeypatch, kind, dtype):
    """Written past them where the result begins at a line, and where it does not."""
    far = "saccade.kernels.cpu.resize.rows.beyond_caches"
    monkeypatch.setattr(far, lambda target, _: target.fills_lines)
    x = random_operands((1, 32, 3, 6), dtype, RNG)
    op = Resize((1, 32, 9, 75), None, "linear")
    out = row_major(dtype, op.sizes) if kind == "planar" else nhwc_view(dtype, op.sizes)
    call = Call(op, (inner(x),), (out,), (False,), ZEN4)
    assert RESIZE_ROWS.launch(call)[0].config.streamed
    runs = [("avx512", checked, 1, None) for checked in (False, True)]
    hold(RESIZE_ROWS, op, [x], inputs=[inner(x)], outputs=[out], k=300, runs=runs)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (1, 0, 4, 4)], ids=str)
@pytest.mark.parametrize("kind", ["planar", "flat"])
def test_empty(hold, shape, kind):
    x, op = random_operands(shape, DType.F32, RNG), Resize((*shape[:2], 8, 8), None, "linear")
    hold(RESIZE_ROWS, op, [x], inputs=[inner(x)], outputs=[result_view(kind, op.sizes)])


def test_few_rows_of_the_image_for_many_of_the_result():
    """Which way is estimated to be faster."""

    def faster(mode, size, planar=False):
        op = Resize((1, 64, *size), None, mode)
        x = nhwc_view(DType.F32, (1, 64, 40, 40))
        out = row_major(DType.F32, op.sizes) if planar else nhwc_view(DType.F32, op.sizes)
        call = Call(op, (x,), (out,), (False,), ZEN4, threads=2)
        costs = {k.name: k.cost(call) for k in (RESIZE, RESIZE_ROWS) if not k.supports(call)}
        return min(costs, key=costs.__getitem__)

    assert faster("linear", (320, 320)) == "resize.rows"
    assert faster("cubic", (80, 80)) == "resize.rows"
    assert faster("linear", (20, 20)) == "resize.direct"
    assert faster("nearest", (80, 80)) == "resize.direct"
    assert faster("nearest", (20, 20), planar=True) == "resize.rows"


def test_refusals():
    op, target = Resize((1, 4, 8, 8)), ZEN4
    source, out = row_major(DType.F32, (1, 4, 4, 4)), nhwc_view(DType.F32, (1, 4, 8, 8))
    assert "planar" in RESIZE_ROWS.supports(Call(op, (source,), (out,), (False,), target))
    apart = View(DType.F32, (1, 4, 8, 8), (512, 128, 16, 2))
    source = nhwc_view(DType.F32, (1, 4, 4, 4))
    assert "neither" in RESIZE_ROWS.supports(Call(op, (source,), (apart,), (False,), target))


@pytest.mark.parametrize("name", ["chunks", "bands", "parts", "x_n", "x_h", "x_w", "y_n", "y_h"])
@pytest.mark.parametrize("kind", ["planar", "runs"])
def test_mutants_are_caught(hold, name, kind):
    mutant = off_by(RESIZE_ROWS, name)
    x = random_operands((2, 17, 4, 5), DType.F32, RNG)
    op = Resize((2, 17, 36, 70), None, "linear")
    with pytest.raises((AssertionError, IndexError)):
        hold(
            mutant, op, [x], inputs=[inner(x)], outputs=[result_view(kind, op.sizes)], k=16,
            runs=[("avx512", True, 1, None)],
        )  # fmt: skip
