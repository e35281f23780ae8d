"""Gradients of norms for GPUs in Triton's interpreter: every phase, NaN, storage."""

from math import inf, nan

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import VectorNorm, VectorNormGrad
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close
from saccade.testing.triton import H200, interpret

F32 = DType.F32
KERNEL, FLAT = kernel_named("norm.gradient"), kernel_named("norm.gradient_flat")


def called(p, axes, x, image=row_major):
    (norm,) = VectorNorm(p, axes, True, F32).reference(x)
    grad = np.random.default_rng(2).standard_normal(norm.shape).astype(np.float32)
    small, large = row_major(F32, norm.shape), image(F32, x.shape)
    op = VectorNormGrad(p, axes, True)
    return Call(op, (small, large, small), (large,), (False,) * 3, H200), (grad, x, norm)


def close(call, arrays, variant, kernel=KERNEL):
    (result,) = interpret(kernel, call, arrays, variant.launches)
    (truth,) = call.op.reference(*(a.astype(np.float64) for a in arrays))
    assert_close(result, truth, dtype=F32, k=4)


@pytest.mark.parametrize("p", [inf, -inf, 1.7])
@pytest.mark.parametrize("image", [row_major, nhwc_view])
@pytest.mark.parametrize("axes", [(2, 3), (1,)])
def test_every_phase(p, image, axes):
    x = np.random.default_rng(1).integers(-3, 4, (2, 21, 6, 5)).astype(np.float32)
    call, arrays = called(p, axes, x, image)
    seen = {}
    for variant in KERNEL.variants(call):
        seen.setdefault(tuple(launch.config.phase for launch in variant.launches), variant)
    assert set(seen) == ({("once",), ("ties", "apply")} if p in (inf, -inf) else {("plain",)})
    for variant in seen.values():
        close(call, arrays, variant)


@pytest.mark.parametrize("p", [1.0, 2.0, inf])
def test_nan_and_zeros(p):
    x = np.array([[0, 0, 0, 0], [1, nan, 0, 2], [inf, 1, -inf, 0]], np.float32)
    call, arrays = called(p, (1,), x)
    with np.errstate(all="ignore"):
        close(call, arrays, next(iter(KERNEL.variants(call))))


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 2.5])
@pytest.mark.parametrize("shape", [(3, 4), (300, 5), (2, 70, 31), (1, 5000), (41, 64)])
def test_rows_one_behind_the_other(p, shape):
    """Groups of four within one row and over two, more than a program has, and the last one."""
    x = np.random.default_rng(3).integers(-3, 4, shape).astype(np.float32)
    call, arrays = called(p, (len(shape) - 1,), x)
    assert FLAT.supports(call) is None
    variants = list(FLAT.variants(call))
    assert len({variant.launches[0].config for variant in variants}) == 3
    for variant in variants[: 1 if p != 2.0 else 3]:
        close(call, arrays, variant, FLAT)


def test_nan_and_zeros_of_neighbouring_rows_stay_where_they_are():
    rows = [[0.0] * 9, [nan, *range(8)], [1.0] * 9, [inf, *range(8)]]
    call, arrays = called(2.0, (1,), np.array(rows, np.float32))
    with np.errstate(all="ignore"):
        close(call, arrays, next(iter(FLAT.variants(call))), FLAT)


def test_rows_that_do_not_lie_one_behind_the_other_are_left_to_others():
    x = np.ones((4, 20, 6, 3), np.float32)
    wanted = [
        (called(2.0, (3,), x), "less than 16"),  # of three elements
        (called(2.0, (1,), x), None),  # across, as the next but two
        (called(2.0, (1,), x, nhwc_view), None),
        (called(2.0, (2, 3), x), None),
        (called(2.0, (2, 3), x, nhwc_view), None),
        (called(2.0, (1, 3), x), "one behind"),
        (called(inf, (2, 3), x), "ties"),
        (called(2.0, (1,), x, lambda kind, shape: nhwc_view(kind, shape, 23)), "one behind"),
        (called(2.0, (2, 3), x, lambda kind, shape: nhwc_view(kind, shape, 23)), "one behind"),
    ]
    for (call, _), reason in wanted:
        found = FLAT.supports(call)
        assert found is None if reason is None else reason in found


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("shape", [(3, 7, 5), (1, 300, 6), (2, 70, 31), (4, 2, 9), (5, 3, 64)])
def test_norms_across_rows_that_lie_one_behind_the_other(p, shape):
    x = np.random.default_rng(3).integers(-3, 4, shape).astype(np.float32)
    call, arrays = called(p, (1,), x)
    assert FLAT.supports(call) is None
    variant = next(iter(FLAT.variants(call)))
    assert variant.launches[0].config.across
    close(call, arrays, variant, FLAT)


def test_halves_across_rows_are_left_to_others():
    small, large = row_major(F32, (3, 8)), row_major(DType.F16, (3, 7, 8))
    call = Call(VectorNormGrad(2.0, (1,), False), (small, large, small), (large,), (), H200)
    assert "one behind" in FLAT.supports(call)


def test_halves_move_in_whole_accesses():
    """Of 16 bytes, wherever rows begin: a row of 250 is a multiple of 4 alone."""
    small, large = row_major(F32, (75_000,)), row_major(DType.F16, (75_000, 250))
    op = VectorNormGrad(2.0, (1,), False)
    call = Call(op, (small, large, small), (large,), (False,) * 3, H200)
    variant = next(iter(FLAT.variants(call)))
    assert variant.micros < next(iter(KERNEL.variants(call))).micros
    (launch,) = variant.launches
    assert launch.config.step == 8
