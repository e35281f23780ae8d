"""Pooling for GPUs in Triton's interpreter: integers, storage, windows of the whole image."""

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cuda import kernel_named, kernels_for
from saccade.opdefs import Pool2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close, assert_exact
from saccade.testing.triton import H200, interpret

F16, F32 = DType.F16, DType.F32
DIRECT, WHOLE = kernel_named("pool.direct"), kernel_named("pool.whole_image")


def called(op, x, source, to):
    (truth,) = op.reference(x)
    dtype = DType.of(x.dtype)
    return Call(op, (source(dtype, x.shape),), (to(dtype, truth.shape),), (False,), H200), truth


def whole_numbers(shape, dtype=np.float32):
    return np.random.default_rng(1).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("source", [nhwc_view, row_major])
@pytest.mark.parametrize("to", [nhwc_view, row_major])
def test_every_variant_in_any_storage(source, to):
    x = whole_numbers((1, 21, 5, 6))
    call, truth = called(Pool2d("max", (3, 2), (2, 1), (1, 0, 1, 1)), x, source, to)
    for variant in list(DIRECT.variants(call))[::3]:
        assert_exact(interpret(DIRECT, call, [x], variant.launches)[0], truth)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_the_largest_integer(dtype):
    x = whole_numbers((1, 5, 6, 7), dtype)
    x[0, 1] = np.iinfo(dtype).min
    call, truth = called(Pool2d("max", (3, 3), padding=(1, 1, 1, 1)), x, nhwc_view, nhwc_view)
    assert_exact(interpret(DIRECT, call, [x])[0], truth)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_a_window_of_many_taps(kind):
    x = whole_numbers((1, 8, 5, 5))
    call, truth = called(Pool2d(kind, (7, 7), padding=(3, 3, 3, 3)), x, nhwc_view, nhwc_view)
    assert_close(interpret(DIRECT, call, [x])[0], truth.astype(np.float64), dtype=F32, k=49)


def test_a_window_of_the_whole_image_is_a_reduction():
    op = Pool2d("average", (7, 7), epilogue=parse("relu($0)"))
    call, truth = called(op, whole_numbers((2, 24, 7, 7)), nhwc_view, nhwc_view)
    assert WHOLE in kernels_for("Pool2d")
    (launch,) = WHOLE.launch(call)
    assert type(launch.config).__name__ == "CudaReduceConfig"
    result = interpret(WHOLE, call, [whole_numbers((2, 24, 7, 7))])[0]
    assert_close(result, truth.astype(np.float64), dtype=F32, k=49)


def test_smaller_windows_are_none():
    call, _ = called(Pool2d("max", (3, 3)), whole_numbers((1, 4, 5, 5)), nhwc_view, nhwc_view)
    assert WHOLE.supports(call) == "windows are not the whole image"


def test_another_size_of_an_image_needs_no_code():
    op = Pool2d("max", (3, 3), (2, 2), (1, 1, 1, 1))
    configs = []
    for batch, edge in ((64, 112), (32, 128)):
        x = nhwc_view(F16, (batch, 64, edge, edge))
        y = nhwc_view(F16, (batch, 64, edge // 2, edge // 2))
        configs.append(DIRECT.launch(Call(op, (x,), (y,), (False,), H200))[0].config)
    assert configs[0] == configs[1]
