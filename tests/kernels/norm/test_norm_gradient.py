"""Gradients of norms: every rule, both layouts of rows, ties in cached and in long rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.norm.gradient import NORM_GRAD
from saccade.opdefs import VectorNorm, VectorNormGrad
from saccade.testing.kernels import off_by, row_major
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(4)
INF = float("inf")
RUN = [("avx512", False, 1, None)]


def operands(p, shape, axes, dtype=DType.F32, keepdims=False):
    """Gradient, x with ties and zeros, norm."""
    x = np.round(random_operands(shape, DType.F64, RNG) * 4).astype(dtype.numpy) / 4
    x.reshape(-1)[: shape[-1]] = 0
    wide = DType.F64 if dtype is DType.F64 else DType.F32
    (norm,) = VectorNorm(p, axes, keepdims, wide).reference(x.astype(wide.numpy))
    grad = random_operands(norm.shape, wide, RNG)
    return [grad, x, norm], VectorNormGrad(p, axes, keepdims)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 2.5, 1.5, 0.5, -2.0, INF, -INF])
def test_rules(hold, p):
    for axes in ((1,), (0,)) if p in (2.0, 0.5) else ((1,),):
        arrays, op = operands(p, (37, 41), axes)
        hold(NORM_GRAD, op, arrays, k=1)


@pytest.mark.parametrize("p", [2.0, 2.5, INF])
def test_float64(hold, p):
    for axes in ((0,), (1,)):
        arrays, op = operands(p, (13, 21), axes, DType.F64)
        hold(NORM_GRAD, op, arrays, k=1)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
@pytest.mark.parametrize("p", [2.0, INF])
def test_16_bits(hold, p, dtype):
    arrays, op = operands(p, (11, 35), (1,), dtype)
    hold(NORM_GRAD, op, arrays, outputs=[row_major(dtype, (11, 35))])


@pytest.mark.parametrize(
    ("shape", "axes", "stages"),
    [
        ((37, 41), (0,), ["blocks"]),
        ((37, 3), (0,), ["rows"]),
        ((37, 41), (1,), ["rows"]),
        ((3, 50_000), (1,), ["ties", "sums", "mark"]),
        ((50_000, 3), (0,), ["ties", "sums", "mark"]),
        ((70_001,), (0,), ["ties", "sums", "mark"]),
    ],
)
def test_ties_of_short_and_long_rows(hold, shape, axes, stages):
    arrays, op = operands(INF, shape, axes)
    types = [row_major(DType.F32, a.shape) for a in arrays]
    call = Call(op, tuple(types), (types[1],), (False,) * 3, ZEN4, 2)
    assert [launch.config.stage for launch in NORM_GRAD.launch(call)] == stages
    hold(NORM_GRAD, op, arrays, k=1)


SMALL = dataclasses.replace(runnable_target(), l2=1 << 12, l3=1 << 10)
"""A machine whose caches hold next to nothing: dx goes past them, ties are counted in parts."""


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
@pytest.mark.parametrize(
    ("shape", "axes", "stages"),
    [
        ((70, 4200), (0,), ["ties", "sums", "paint"]),
        ((2, 3, 40, 4099), (0, 2), ["ties", "sums", "paint"]),
        ((3, 300, 70), (1,), ["ties", "sums", "mark"]),
        ((3, 9000), (1,), ["ties", "sums", "mark"]),
        ((40, 450), (1,), ["rows"]),
    ],
)
def test_past_the_caches(hold, shape, axes, stages, dtype):
    arrays, op = operands(-INF if axes == (1,) else INF, shape, axes, dtype)
    grad, x, norm = arrays
    grad.reshape(-1)[-1], x.reshape(-1)[-2] = np.inf, np.nan
    with np.errstate(all="ignore"):
        norm[...] = VectorNorm(op.p, axes, False, DType.F32).reference(x.astype(np.float32))[0]
    types = [row_major(DType.F32, grad.shape), row_major(dtype, shape)]
    call = Call(op, (*types, types[0]), (types[1],), (False,) * 3, SMALL, 2)
    assert [launch.config.stage for launch in NORM_GRAD.launch(call)] == stages
    runs = ((SMALL, False, 1, None), (SMALL, True, 7, (6, 2, 4, 0, 1, 5, 3)))
    hold(NORM_GRAD, op, arrays, outputs=[types[1]], runs=runs)


@pytest.mark.parametrize(("p", "axis"), [(1.0, 0), (2.0, 1), (3.0, 0)])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_factors_past_the_caches(hold, p, axis, dtype):
    arrays, op = operands(p, (5, 4099), (axis,), dtype)
    types = [row_major(DType.F32, arrays[0].shape), row_major(dtype, (5, 4099))]
    call = Call(op, (*types, types[0]), (types[1],), (False,) * 3, SMALL, 2)
    assert NORM_GRAD.launch(call)[-1].config.streamed == SMALL.fills_lines
    runs = ((SMALL, False, 1, None), (SMALL, True, 3, (2, 0, 1)))
    hold(NORM_GRAD, op, arrays, outputs=[types[1]], runs=runs)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
@pytest.mark.parametrize(
    ("shape", "axes"), [((37, 75), (0,)), ((2, 5, 33), (1,)), ((3, 2, 120), (0, 1))]
)
def test_ties_bit_by_bit(hold, shape, axes, dtype):
    """Denormal and infinite ones, zeros of either sign, NaN, norms that no element is."""
    arrays, op = operands(INF, shape, axes, dtype)
    grad, x, norm = arrays
    small = 2.0**-23 if dtype is DType.F16 else 2.0**-130
    x[..., 1], x[..., 2] = small, -0.0
    x[0, ..., 3] = -np.inf
    x[0, ..., 4] = np.nan
    norm[...] = np.abs(x.astype(norm.dtype)).max(axis=axes)
    norm[..., 5] += norm.dtype.type(1e-4)
    grad[..., 6], grad[..., 7] = np.nan, -np.inf
    types = [row_major(DType.of(norm.dtype), grad.shape), row_major(dtype, shape)]
    call = Call(op, (*types, types[0]), (types[1],), (False,) * 3, ZEN4, 2)
    assert [launch.config.stage for launch in NORM_GRAD.launch(call)] == ["blocks"]
    hold(NORM_GRAD, op, arrays, outputs=[types[1]])


@pytest.mark.parametrize(("p", "keepdims"), [(2.0, True), (INF, False)])
def test_any_strides(hold, p, keepdims):
    arrays, op = operands(p, (6, 5, 7), (1,), keepdims=keepdims)
    views = [row_major(DType.F32, a.shape) for a in arrays]
    views[1] = View(DType.F32, (6, 5, 7), (1, 60, 8))
    out = View(DType.F32, (6, 5, 7), (7, 50, 1))
    hold(NORM_GRAD, op, arrays, inputs=views, outputs=[out])
    repeated = View(DType.F32, (6, 5, 7), (0, 1, 5))
    arrays[1] = np.broadcast_to(arrays[1][:1], (6, 5, 7)).copy()
    (arrays[2],) = VectorNorm(p, (1,), keepdims, DType.F32).reference(arrays[1])
    hold(NORM_GRAD, op, arrays, inputs=[views[0], repeated, views[2]])


@pytest.mark.parametrize("p", [1.0, 2.0, 0.5, INF])
def test_nan_and_infinity_as_the_reference(hold, p):
    arrays, op = operands(p, (8, 20), (1,))
    grad, x, _ = arrays
    x[1, 4], x[2, 5], grad[3], grad[4], grad[0] = np.nan, np.inf, np.nan, np.inf, np.nan
    with np.errstate(all="ignore"):
        (arrays[2],) = VectorNorm(p, (1,), False, DType.F32).reference(x)
    hold(NORM_GRAD, op, arrays, k=1)


def test_refusals():
    def reason(x, norm, strides=(5, 1)):
        views = (row_major(norm, (4,)), row_major(x, (4, 5)), row_major(norm, (4,)))
        out = View(x, (4, 5), strides)
        op = VectorNormGrad(2.0, (1,), False)
        return NORM_GRAD.supports(Call(op, views, (out,), (False,) * 3, ZEN4))

    assert reason(DType.F32, DType.F64) is None
    assert "bfloat16, float64" in reason(DType.BF16, DType.F64)
    assert "repeats" in reason(DType.F32, DType.F32, (0, 1))
    call = Call(
        VectorNormGrad(2.0, (0,), False),
        (row_major(DType.F32, ()),) + (row_major(DType.F32, (4,)),) * 2,
        (row_major(DType.BF16, (4,)),),
        (False,) * 3,
        ZEN4,
    )
    assert "differ in type" in NORM_GRAD.supports(call)


@pytest.mark.parametrize(
    ("p", "name", "axis"),
    [(2.0, "sizes", 1), (INF, "sizes", 1), (INF, "sizes", 0), (2.5, "exponent", 1)],
)
def test_planted_mistakes_are_caught(hold, p, name, axis):
    """A row too many, and another exponent."""
    arrays, op = operands(p, (9, 41), (axis,))
    wrong = off_by(NORM_GRAD, name, -1 if name == "sizes" else 1 << 45)
    with pytest.raises(AssertionError):
        hold(wrong, op, arrays, k=1, runs=RUN)
