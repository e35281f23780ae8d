"""Deformable convolution with packed weights, and at places that are no numbers."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.deform.implicit_gemm import DEFORM_IMPLICIT_GEMM
from saccade.opdefs import DeformConv
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, interpret


def check(op, shape, outputs, offset, mask=None, last=False):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    w = rng.integers(-3, 4, (outputs, shape[1] // op.groups, 2, 2)).astype(np.float32)
    arrays = [x, w, offset, *([] if mask is None else [mask])]
    with np.errstate(all="ignore"):
        (truth,) = op.reference(*arrays)
    inputs = [row_major(DType.F32, a.shape) for a in arrays]
    if last:
        inputs[0] = nhwc_view(DType.F32, shape, shape[1])
    outputs_ = (row_major(DType.F32, truth.shape),)
    call = Call(op, tuple(inputs), outputs_, (False, True, False, False)[: len(arrays)], H200)
    (found,) = interpret(DEFORM_IMPLICIT_GEMM, call, arrays)
    assert np.allclose(found, truth, rtol=1e-5, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 3), (3, 2)])
def test_packed_weights(groups, offset_groups):
    op = DeformConv(groups=groups, offset_groups=offset_groups)
    rng = np.random.default_rng(1)
    offset = rng.integers(-8, 9, (1, 8 * offset_groups, 3, 4)) / 4
    check(op, (1, 12, 4, 5), 6, offset.astype(np.float32), last=groups == 2)


def test_places_that_are_no_numbers():
    offset = np.zeros((1, 8, 3, 4), np.float32)
    offset[0, 0, 0, 0] = np.nan
    offset[0, 1, 0, 1] = np.inf
    offset[0, 2, 1, 0] = -np.inf
    offset[0, 3, 2, 3] = 1e30
    offset[0, 4, 1, 1], offset[0, 5, 1, 1] = np.inf, np.nan
    mask = np.ones((1, 4, 3, 4), np.float32)
    mask[0, 0, 2, 2] = np.nan
    mask[0, 1, 2, 1] = np.inf
    check(DeformConv(mask=True), (1, 3, 4, 5), 2, offset, mask)
