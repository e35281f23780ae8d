"""Deformable convolution with packed weights, and at places that are no numbers."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda.deform.implicit_gemm import DEFORM_IMPLICIT_GEMM
from saccade.opdefs import DeformConv
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.triton import H200, interpret


def check(op, shape, outputs, offset, mask=None, last=False, ends=(DType.F32, DType.F32)):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    w = rng.integers(-3, 4, (outputs, shape[1] // op.groups, 2, 2)).astype(np.float32)
    arrays = [x, w, offset, *([] if mask is None else [mask])]
    with np.errstate(all="ignore"):
        (truth,) = op.reference(*arrays)
    arrays[0] = x.astype(ends[0].numpy)
    inputs = [row_major(DType.F32, a.shape) for a in arrays]
    inputs[0] = nhwc_view(ends[0], shape, shape[1]) if last else row_major(ends[0], shape)
    outputs_ = (row_major(ends[1], truth.shape),)
    call = Call(op, tuple(inputs), outputs_, (False, True, False, False)[: len(arrays)], H200)
    (found,) = interpret(DEFORM_IMPLICIT_GEMM, call, arrays)
    loose = 1e-5 if ends == (DType.F32, DType.F32) else 1e-3
    assert np.allclose(found, truth, rtol=loose, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 3), (3, 2)])
def test_packed_weights(groups, offset_groups):
    op = DeformConv(groups=groups, offset_groups=offset_groups)
    rng = np.random.default_rng(1)
    offset = rng.integers(-8, 9, (1, 8 * offset_groups, 3, 4)) / 4
    check(op, (1, 12, 4, 5), 6, offset.astype(np.float32), last=groups == 2)


@pytest.mark.parametrize("ends", [(DType.F16, DType.F32), (DType.F32, DType.F16)])
def test_constant_weights_are_as_narrow_as_the_narrower_end(ends):
    offset = np.random.default_rng(2).integers(-8, 9, (1, 8, 3, 4)) / 4
    check(DeformConv(), (1, 12, 4, 5), 6, offset.astype(np.float32), ends=ends)


def test_weights_of_another_type_that_are_no_constants_are_refused():
    views = [row_major(DType.F16, (1, 4, 4, 5)), row_major(DType.F32, (6, 4, 2, 2)),
             row_major(DType.F32, (1, 8, 3, 4))]  # fmt: skip
    outputs = (row_major(DType.F16, (1, 6, 3, 4)),)
    call = Call(DeformConv(), tuple(views), outputs, (False,) * 3, H200)
    assert DEFORM_IMPLICIT_GEMM.supports(call) == "x and weights of different types"


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
