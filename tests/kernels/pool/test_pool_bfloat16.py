"""Pools of bfloat16: maxima compared as integers, sums of even and odd elements."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cpu.pool import direct_lanes
from saccade.kernels.cpu.pool.direct import POOL
from saccade.opdefs.pool import Pool2d
from saccade.testing.kernels import nhwc_view, off_by, row_major
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(7)
BF16 = DType.BF16
WINDOWS = [
    # shape, operator: windows of 2, 3, 5; strides of 1 to 3; channels beside all widths of vectors
    ((1, 1, 5, 7), {"kernel": (2, 2)}),
    ((2, 3, 9, 8), {"kernel": (2, 2), "stride": (2, 2)}),
    ((1, 17, 7, 12), {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
    ((1, 48, 10, 9), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 0, 1, 1)}),
    ((1, 31, 11, 10), {"kernel": (3, 3), "stride": (3, 3)}),
    ((2, 33, 6, 11), {"kernel": (5, 5), "padding": (2, 2, 2, 2)}),
    ((1, 100, 9, 6), {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 1, 1, 1)}),
]


def special(shape):
    """Numbers, both zeros, both infinities and denormal ones; NaN of both signs here and there."""
    x = random_operands(shape, BF16, RNG).ravel()
    values = [0.0, -0.0, np.inf, -np.inf, 2.0**-133, -(2.0**-133), -np.nan, np.nan]
    picked = RNG.random(x.size) < 0.4
    odds = [0.2, 0.2, 0.05, 0.4, 0.05, 0.06, 0.02, 0.02]
    x[picked] = RNG.choice(np.array(values, x.dtype), picked.sum(), p=odds)
    bits = x.view(np.uint16)
    nan = (bits & 0x7FFF) > 0x7F80
    bits[nan] = RNG.choice([0x7F81, 0x7FFF, 0xFF81, 0xFFC0, 0xFFFF], nan.sum())
    return x.reshape(shape)


def views(x, op, pitch=None, dtype=BF16):
    shape = op.reference(np.zeros(x.shape, np.float32))[0].shape
    return {
        "inputs": [nhwc_view(BF16, x.shape, pitch)],
        "outputs": [nhwc_view(dtype, shape, pitch and pitch + 1)],
    }


@pytest.mark.parametrize(("shape", "attributes"), WINDOWS, ids=str)
def test_maxima_are_exact(hold, shape, attributes):
    x, op = special(shape), Pool2d("max", **attributes)
    with np.errstate(invalid="ignore"):  # NumPy minds signalling NaN
        hold(POOL, op, [x], exact=True, **views(x, op, shape[1] + 3))
        hold(POOL, op, [x], exact=True, **views(x, op, dtype=DType.F32))


@pytest.mark.parametrize("sign", [0x0000, 0x8000])
@pytest.mark.parametrize("channels", [5, 40])
def test_nan_of_either_sign_wins(hold, sign, channels):
    """Also over infinity, and in windows of nothing else or of negative numbers."""
    x = np.full((1, channels, 6, 9), -1.0, BF16.numpy)
    x[0, 1], x[0, 2] = np.inf, -np.inf
    x.view(np.uint16)[0, :4, 3, 4] = 0x7F81 + sign
    x.view(np.uint16)[0, 4] = 0x7FFF + sign
    op = Pool2d("max", (3, 3), padding=(1, 1, 1, 1))
    with np.errstate(invalid="ignore"):
        (y,) = hold(POOL, op, [x], exact=True, **views(x, op))
    nan = np.isnan(y.astype(np.float32))
    assert nan[0, :4].sum() == 4 * 9
    assert nan[0, 4].all()
    assert not nan[0, 5:].any()


def test_positive_zeros_are_above_negative_ones(hold):
    x = np.full((1, 33, 4, 6), -0.0, BF16.numpy)
    x[0, ::2, 1, 1] = 0.0
    op = Pool2d("max", (2, 2), (2, 2))
    (y,) = hold(POOL, op, [x], exact=True, **views(x, op))
    assert np.array_equal(np.signbit(y[0, :, 0, 0].astype(np.float32)), np.arange(33) % 2 == 1)


@pytest.mark.parametrize(("shape", "attributes"), WINDOWS, ids=str)
def test_means(hold, shape, attributes):
    x = random_operands(shape, BF16, RNG)
    for include in (False, True):
        op = Pool2d("average", count_include_pad=include, **attributes)
        hold(POOL, op, [x], k=9, **views(x, op, shape[1] + 3))
        hold(POOL, op, [x], k=25, **views(x, op, dtype=DType.F32))


def test_means_are_as_exact_as_divisions(hold):
    """Nine times a number is divided by nine again, infinities stay what they are."""
    x = np.empty((1, 37, 6, 11), BF16.numpy)
    x[...] = np.arange(1, 38)[:, None, None]
    x[0, 3], x[0, 4], x[0, 5, 2, 2] = np.inf, -np.inf, np.nan
    op = Pool2d("average", (3, 3), padding=(1, 1, 1, 1))
    hold(POOL, op, [x], exact=True, **views(x, op))


@pytest.mark.parametrize("kind", ["max", "average"])
def test_epilogues_see_channels_in_order(hold, kind):
    x = random_operands((1, 41, 6, 7), BF16, RNG)
    scale = random_operands((41, 1, 1), DType.F32, RNG)
    op = Pool2d(kind, (2, 2), (2, 2), epilogue=parse("mul($0, $1)"))
    inputs = [nhwc_view(BF16, x.shape), row_major(DType.F32, scale.shape)]
    out = nhwc_view(BF16, (1, 41, 3, 3), 44)
    hold(POOL, op, [x, scale], inputs=inputs, outputs=[out], k=9)


@pytest.mark.parametrize(
    "name", ["channels", "q", "h", "w", "top", "left", "x_h", "x_w", "y_h", "y_w"]
)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_mutants_are_caught(hold, kind, name):
    op = Pool2d(kind, (3, 3), padding=(1, 1, 1, 1))
    x = random_operands((2, 37, 9, 19), BF16, RNG)
    with pytest.raises((AssertionError, IndexError)):
        hold(off_by(POOL, name), op, [x], k=9, **views(x, op))


def test_a_wrong_order_is_caught(hold, monkeypatch):
    """Bits as they are put negative numbers in the wrong order, and negative NaN below all."""
    monkeypatch.setattr(direct_lanes.Ordered, "_key", lambda _self, raw: raw)
    emitter = dataclasses.replace(POOL, name="pool.mutant")
    x, op = -abs(random_operands((1, 40, 6, 7), BF16, RNG)), Pool2d("max", (3, 3))
    with pytest.raises(AssertionError):
        hold(emitter, op, [x], exact=True, **views(x, op))
