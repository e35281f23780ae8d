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
KERNEL = kernel_named("norm.gradient")


def called(p, axes, x, image=row_major):
    (norm,) = VectorNorm(p, axes, True, F32).reference(x)
    grad = np.random.default_rng(2).standard_normal(norm.shape).astype(np.float32)
    small, large = row_major(F32, norm.shape), image(F32, x.shape)
    op = VectorNormGrad(p, axes, True)
    return Call(op, (small, large, small), (large,), (False,) * 3, H200), (grad, x, norm)


def close(call, arrays, variant):
    (result,) = interpret(KERNEL, call, arrays, variant.launches)
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
