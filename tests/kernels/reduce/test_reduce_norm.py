"""Norms of any power: every walk, cuts, float64."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.reduce.direct import NORM
from saccade.opdefs import VectorNorm
from saccade.testing.kernels import off_by, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(18)
INF = float("inf")
RUN = [("avx512", False, 1, None)]
POWERS = [0.0, 1.0, 2.0, 3.0, 2.5, -1.0, INF, -INF]


def norm(p, axes, dtype=DType.F32, keepdims=False):
    return VectorNorm(p, axes, keepdims, dtype)


@pytest.mark.parametrize("p", POWERS)
def test_powers(hold, p):
    for axes in ((1,), (0,)) if p in (3.0, -1.0) else ((1,),):
        hold(NORM, norm(p, axes), [random_operands((37, 41), DType.F32, RNG)], k=41)


@pytest.mark.parametrize("p", [2.0, 2.5, INF])
def test_float64(hold, p):
    x = random_operands((5, 37), DType.F64, RNG)
    for axes in ((0,), (1,)):
        hold(NORM, norm(p, axes, DType.F64), [x], k=37)
    hold(NORM, norm(p, (1,), DType.F64), [x.astype(np.float32)], k=37)


@pytest.mark.parametrize("axes", [(0, 1), (0,), (1,)])
def test_cut_and_streamed(hold, axes):
    """Few results over many elements, along and across; rows too wide for one sweep."""
    x = exact_operands((2600, 120), DType.F32, RNG)
    hold(NORM, norm(1.0, axes), [x], exact=True)
    hold(NORM, norm(INF, axes), [x], exact=True)
    wide = exact_operands((2600, 60), DType.F64, RNG)
    hold(NORM, norm(1.0, axes, DType.F64), [wide], exact=True)


def test_strides_and_16_bits(hold):
    view = View(DType.F32, (6, 5, 7), (9, 80, 1))
    hold(NORM, norm(2.0, (0, 2)), [random_operands((6, 5, 7), DType.F32, RNG)], inputs=[view], k=42)
    for dtype in (DType.BF16, DType.F16):
        x = random_operands((33, 70), dtype, RNG)
        for axes in ((0,), (1,)):
            hold(
                NORM,
                norm(INF, axes),
                [x],
                outputs=[row_major(DType.F32, (70, 33)[axes[0] : axes[0] + 1])],
            )


@pytest.mark.parametrize("p", [2.0, 2.5, INF, -INF])
def test_nan_and_infinity(hold, p):
    x = random_operands((4, 40), DType.F32, RNG)
    x[0, 5], x[1, 6], x[2, 1:3] = np.nan, -np.inf, (np.nan, np.inf)
    for axes in ((0,), (1,)):
        hold(NORM, norm(p, axes), [x], k=40)


def test_over_no_elements(hold):
    for p in (0.0, 2.0, 3.0, 0.5, -1.0):
        want = INF if p < 0 else 0.0
        (y,) = hold(NORM, norm(p, (1,)), [np.zeros((3, 0), np.float32)], exact=True, runs=RUN)
        np.testing.assert_array_equal(y, want)


def test_refusals():
    def reason(source, result):
        views = row_major(source, (4, 5)), row_major(result, (4,))
        call = Call(norm(2.0, (1,), result), views[:1], views[1:], (False,), ZEN4)
        return NORM.supports(call)

    assert reason(DType.F32, DType.F64) is None
    assert "float16, float64" in reason(DType.F16, DType.F64)
    assert "int32" in reason(DType.I32, DType.F32)


def test_a_planted_mistake_is_caught(hold):
    """The exponent of the root, one unit too large: hardly anything, in each result."""
    x = random_operands((5, 37), DType.F32, RNG)
    wrong = off_by(NORM, "root", 1 << 40)
    with pytest.raises(AssertionError):
        hold(wrong, norm(2.5, (0,)), [x], k=37, runs=RUN)
