"""Softmax on GPUs: rows in registers, longer ones, rows side by side, in every variant."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named
from saccade.opdefs import Softmax
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close
from saccade.testing.triton import H200, interpret

SOFTMAX = kernel_named("softmax.direct")


def hold(op, x, source, result):
    call = Call(op, (source,), (result,), (False,), H200)
    (truth,) = op.reference(x.astype(np.float64))
    configs = []
    for variant in SOFTMAX.variants(call):
        actual = interpret(SOFTMAX, call, (x,), variant.launches)[0]
        assert_close(actual, truth, dtype=result.dtype, k=64)
        configs += [launch.config for launch in variant.launches]
    return configs


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("shape", [(2, 9000), (2, 8192), (2, 3, 1), (1, 1000), (40, 21)])
def test_rows(shape, log):
    x = np.random.default_rng(1).normal(0, 5, shape).astype(np.float32)
    views = row_major(DType.F32, shape), row_major(DType.F32, shape)
    configs = hold(Softmax(len(shape) - 1, log), x, *views)
    assert configs[0].once == (shape[-1] <= 8192)


@pytest.mark.parametrize("axis", range(4))
def test_every_axis_of_every_storage(axis):
    shape = (2, 5, 3, 7)
    x = np.random.default_rng(2).normal(0, 5, shape).astype(np.float16)
    rows, last = row_major(DType.F16, shape), nhwc_view(DType.F16, shape, 8)
    for source, result in ((rows, last), (last, rows), (last, last), (rows, rows)):
        hold(Softmax(axis, axis % 2 == 0), x, source, result)


def test_long_columns():
    x = np.random.default_rng(3).normal(0, 5, (5000, 3)).astype(np.float32)
    views = row_major(DType.F32, x.shape), row_major(DType.F32, x.shape)
    configs = hold(Softmax(0), x, *views)
    assert {config.once for config in configs} == {False}


def test_extremes():
    rows = [
        [np.inf, 0, 1],
        [-np.inf, -np.inf, -np.inf],
        [-np.inf, 0, 0],
        [np.nan, 1, 2],
        [3e38, 0, 0],
    ]
    x = np.float32(rows)
    view = row_major(DType.F32, x.shape)
    call = Call(Softmax(1), (view,), (view,), (False,), H200)
    with np.errstate(all="ignore"):
        (truth,) = Softmax(1).reference(x)
    np.testing.assert_array_equal(interpret(SOFTMAX, call, (x,))[0], truth)


def test_a_float64_is_refused():
    view = row_major(DType.F64, (3, 4))
    call = Call(Softmax(1), (view,), (view,), (False,), H200)
    assert SOFTMAX.supports(call) == "elements of type float64"
