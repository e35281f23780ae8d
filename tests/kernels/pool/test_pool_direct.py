from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.pool.direct import POOL
from saccade.opdefs.pool import Pool2d
from saccade.testing.kernels import nhwc_view, off_by, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(6)
CASES = [
    # shape, operator
    ((1, 16, 9, 11), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}),
    ((2, 7, 6, 6), {"kernel": (2, 2), "stride": (2, 2)}),
    ((2, 33, 7, 5), {"kernel": (3, 2), "padding": (1, 0, 2, 1)}),
    ((1, 70, 8, 8), {"kernel": (3, 3), "dilation": (2, 3), "padding": (2, 3, 2, 3)}),
    ((1, 64, 7, 7), {"kernel": (7, 7)}),
    ((1, 130, 13, 13), {"kernel": (13, 13), "padding": (6, 6, 6, 6)}),
    ((1, 5, 10, 9), {"kernel": (3, 3), "stride": (3, 3), "padding": (0, 1, 2, 0), "ceil_mode": 1}),
    ((1, 3, 5, 5), {"kernel": (1, 1), "stride": (2, 2)}),
    ((1, 1, 1, 12), {"kernel": (1, 9), "padding": (0, 4, 0, 4)}),
    ((1, 37, 5, 27), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}),
    ((2, 19, 6, 33), {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    ((1, 16, 6, 31), {"kernel": (2, 2), "stride": (2, 2)}),
    ((1, 16, 3, 24), {"kernel": (2, 3), "dilation": (2, 1), "padding": (1, 2, 1, 2)}),
    ((1, 40, 11, 14), {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    ((2, 24, 7, 9), {"kernel": (5, 5), "padding": (2, 2, 2, 2)}),
    ((1, 20, 13, 9), {"kernel": (4, 3), "stride": (3, 2), "padding": (3, 2, 3, 2)}),
    ((1, 18, 4, 7), {"kernel": (2, 3), "padding": (1, 0, 0, 2)}),
    ((0, 4, 5, 5), {"kernel": (2, 2)}),
    ((1, 0, 5, 5), {"kernel": (2, 2)}),
]  # fmt: skip


def last(shape, pitch=None):
    return nhwc_view(DType.F32, shape, pitch)


def run(hold, op, x, *operands, pitch=None, kernel=POOL, dtype=DType.F32, k=64):
    arrays = [x, *operands]
    shape = op.reference(*arrays)[0].shape
    views = [nhwc_view(dtype, x.shape, pitch), *(row_major(dtype, o.shape) for o in operands)]
    out = nhwc_view(dtype, shape, pitch and pitch + 3)
    return hold(kernel, op, arrays, inputs=views, outputs=[out], k=k)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize(("shape", "attributes"), CASES, ids=str)
def test_windows(hold, kind, shape, attributes):
    x = random_operands(shape, DType.F32, RNG)
    run(hold, Pool2d(kind, **attributes), x)
    if kind == "average" and 0 not in shape:
        run(hold, Pool2d(kind, count_include_pad=True, **attributes), x, pitch=shape[1] + 5)


def test_epilogue(hold):
    x, scale = (
        random_operands((2, 21, 6, 7), DType.F32, RNG),
        random_operands((21, 1, 1), DType.F32, RNG),
    )
    residual = random_operands((2, 21, 2, 3), DType.F32, RNG)
    op = Pool2d("average", (3, 3), (2, 2), epilogue=parse("relu(add(mul($0, $1), 0.5))"))
    run(hold, op, x, scale)
    op = dataclasses.replace(op, epilogue=parse("add($0, $1)"))
    view = nhwc_view(DType.F32, residual.shape, 40)
    hold(POOL, op, [x, residual], inputs=[last(x.shape), view], outputs=[last((2, 21, 2, 3))], k=9)


def test_half_precision(hold):
    x = random_operands((1, 40, 6, 6), DType.F16, RNG)
    for kind in ("max", "average"):
        run(hold, Pool2d(kind, (3, 3), (2, 2), (1, 1, 1, 1)), x, dtype=DType.F16, k=1)


@pytest.mark.parametrize("kernel", [(3, 3), (9, 9)])
@pytest.mark.parametrize("width", [9, 34])  # 34: groups of windows that share their columns
def test_nan_wins(hold, kernel, width):
    x = random_operands((1, 18, 9, width), DType.F32, RNG)
    x[0, 5, 4, 4] = x[0, 17, 3, width // 2] = np.nan
    x[0, 6, 0, 8] = np.inf
    x[0, 7] = -np.inf
    run(hold, Pool2d("max", kernel, padding=(1, 1, 1, 1)), x)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_bfloat16(hold, mixed, kind):
    source, result = mixed
    x = random_operands((2, 37, 6, 7), source, RNG)
    scale = random_operands((37, 1, 1), DType.F32, RNG)
    op = Pool2d(kind, (3, 3), (2, 2), (1, 1, 1, 1), epilogue=parse("mul($0, $1)"))
    views = [nhwc_view(source, x.shape, 40), row_major(DType.F32, scale.shape)]
    out = nhwc_view(result, (2, 37, 3, 4), 41)
    hold(POOL, op, [x, scale], inputs=views, outputs=[out], k=9)


def test_refusals():
    planar, inner = row_major(DType.F32, (1, 8, 4, 4)), last((1, 8, 4, 4))
    op = Pool2d("max", (1, 1))
    target = ZEN4
    assert "planar" in POOL.supports(Call(op, (planar,), (inner,), (False,), target))
    wide = nhwc_view(DType.F64, (1, 8, 4, 4))
    assert "float64" in POOL.supports(Call(op, (wide,), (wide,), (False,), target))
    op = Pool2d("max", (1, 1), epilogue=parse("add($0, $1)"))
    call = Call(op, (inner, planar), (inner,), (False, False), target)
    assert "strided" in POOL.supports(call)


def test_means_are_as_exact_as_divisions(hold):
    """Nine times a number is divided by nine again, infinities stay what they are."""
    x = np.full((1, 19, 6, 11), 1.0, np.float32) * np.arange(1, 20, dtype=np.float32)[:, None, None]
    x[0, 3], x[0, 4], x[0, 5, 2, 2] = np.inf, -np.inf, np.inf
    op = Pool2d("average", (3, 3), padding=(1, 1, 1, 1))
    view = last(x.shape)
    (y,) = hold(POOL, op, [x], inputs=[view], outputs=[view], exact=True)
    assert np.array_equal(y[0, :3, 0, 0], [1.0, 2.0, 3.0])
    assert np.isposinf(y[0, 5, 1, 1])


def test_what_exceeds_the_caches_is_asked_for_ahead():
    def fetch(side):
        view = last((1, 64, side, side))
        call = Call(Pool2d("max", (3, 3), (1, 1), (1,) * 4), (view,), (view,), (False,), target)
        return POOL.launch(call)[0].config.fetch

    target = dataclasses.replace(ZEN4, l3=32 << 20)
    assert not fetch(56) and fetch(224)


NAMES = ("channels", "q", "h", "w", "top", "left", "x_h", "x_w", "y_h", "y_w")
WINDOWS = ("r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w")


@pytest.mark.parametrize("name", (*NAMES, *WINDOWS))
def test_mutants_are_caught(hold, name):
    """Sizes, taps, strides, dilations or pads that are off by one are noticed."""
    op = Pool2d("average", (3, 3), (2, 2), (1, 1, 1, 1), (2, 2))
    assert_caught(hold, op, random_operands((2, 20, 9, 9), DType.F32, RNG), name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_mutants_of_blocks_are_caught(hold, kind, name):
    op = Pool2d(kind, (3, 3), padding=(1, 1, 1, 1))
    assert_caught(hold, op, random_operands((2, 20, 9, 35), DType.F32, RNG), name)


def assert_caught(hold, op, x, name):
    mutant = off_by(POOL, name)
    with pytest.raises((AssertionError, IndexError)):
        run(hold, op, x, kernel=mutant)


@pytest.mark.parametrize("stored", [DType.F32, DType.BF16], ids=lambda d: d.value)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_results_past_the_caches(hold, past_caches, kind, stored):
    op = Pool2d(kind, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=parse("relu($0)"))
    x = random_operands((2, 64, 9, 7), stored, RNG)
    x[0, 5, 4, 4] = np.nan if kind == "max" else 1.0  # what is done again goes the same way
    views = {"inputs": [nhwc_view(stored, x.shape)], "outputs": [nhwc_view(stored, x.shape)]}
    hold(POOL, op, [x], k=16, runs=past_caches, **views)


@pytest.mark.parametrize(
    ("channels", "pitch", "streamed"),
    [(64, 64, True), (64, 80, True), (64, 72, False), (72, 80, False), (8, 16, False)],
)
def test_only_whole_lines_go_past_the_caches(past_caches, channels, pitch, streamed):
    target = past_caches[0][0]
    view = nhwc_view(DType.F32, (1, channels, 8, 8), pitch)
    op = Pool2d("max", (3, 3), (1, 1), (1, 1, 1, 1))
    for size, expected in ((0, streamed), (view.nbytes, False)):
        machine = dataclasses.replace(target, l3=size)
        (phase,) = POOL.launch(Call(op, (view,), (view,), (False,), machine, 2))
        assert phase.config.streamed == (expected and target.fills_lines)
