"""Reductions for GPUs in Triton's interpreter: cuts, integers, NaN; and how they are planned."""

from math import inf, nan

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cuda import kernels_for
from saccade.kernels.cuda.reduce.axis_loops import axis_loops, common_step, padded
from saccade.opdefs import ArgReduce, CumSum, Reduce, VectorNorm
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close, assert_exact
from saccade.testing.triton import H200, interpret

F16, F32 = DType.F16, DType.F32


def called(op, *arrays, views=None):
    given = tuple(views or (row_major(DType.of(a.dtype), a.shape) for a in arrays))
    (truth,) = op.reference(*arrays)
    to = row_major(DType.of(truth.dtype), truth.shape)
    return Call(op, given, (to,), (False,) * len(given), H200), truth


def run(op, *arrays, views=None, variant=0):
    call, truth = called(op, *arrays, views=views)
    (kernel,) = kernels_for(type(op).__name__)
    launches = list(kernel.variants(call))[variant].launches
    (result,) = interpret(kernel, call, arrays, launches)
    return result, truth


def test_every_variant_of_a_cut_sum_is_right():
    x = np.random.default_rng(1).integers(-4, 5, (1, 24, 40, 45)).astype(np.float32)
    view = nhwc_view(F32, x.shape, 27)
    op = Reduce("sum", (2, 3))
    call, truth = called(op, x, views=[view])
    (kernel,) = kernels_for("Reduce")
    variants = list(kernel.variants(call))
    assert {len(v.launches) for v in variants} == {1, 2}
    for variant in variants[:3]:
        assert_exact(interpret(kernel, call, [x], variant.launches)[0], truth)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod", "l1", "sum_square"])
def test_integers_wrap_around_as_their_type_does(kind, dtype):
    info = np.iinfo(dtype)
    low, high = max(info.min, -(2**20)), min(info.max, 2**20)
    x = np.random.default_rng(2).integers(low, high, (5, 33), endpoint=True).astype(dtype)
    assert_exact(*run(Reduce(kind, (1,)), x))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_of_bools_and_of_nothing(kind):
    x = np.random.default_rng(3).integers(0, 2, (6, 3)).astype(bool)
    assert_exact(*run(Reduce(kind, (1,)), x))
    for dtype in (bool, np.int8, np.uint16, np.float32):
        assert_exact(*run(Reduce(kind, (1,)), np.zeros((4, 0), dtype)))


@pytest.mark.parametrize("kind", ["max", "min", "sum", "mean", "l2"])
def test_nan_and_infinities(kind):
    rows = [[1, nan, 2], [nan, nan, nan], [inf, 1, -inf], [inf, inf, 1], [-inf, 3, 4]]
    assert_exact(*run(Reduce(kind, (1,)), np.array(rows, np.float32)))


def test_log_sum_exp_at_the_ends_of_the_range():
    rows = [[-inf, -inf], [-inf, -1000.0], [inf, 1], [nan, 1], [3e4, 3e4], [inf, -inf], [-inf, nan]]
    x = np.array(rows, np.float32)
    result, truth = run(Reduce("log_sum_exp", (1,)), x)
    assert_close(result, truth.astype(np.float64), dtype=F32, k=4)


def test_log_sum_exp_of_a_long_row_in_parts():
    x = np.random.default_rng(4).standard_normal((2, 150_000)).astype(np.float32) * 20
    call, _ = called(Reduce("log_sum_exp", (1,)), x)
    (kernel,) = kernels_for("Reduce")
    cut = next(v for v in kernel.variants(call) if len(v.launches) == 2)
    (result,) = interpret(kernel, call, [x], cut.launches)
    (truth,) = call.op.reference(x.astype(np.float64))
    assert_close(result, truth, dtype=F32, k=64)


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int8", "uint8", "int64", "uint64", "bool"]
)
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("last", [False, True])
def test_places_of_extremes_in_every_type(kind, dtype, last):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 4, (7, 40)).astype(dtype)
    if x.dtype.kind == "f":
        x[1, [3, 7]] = nan
        x[2] = -0.0
        x[2, 5] = 0.0
        x[3], x[4] = inf, -inf
    elif dtype in ("int64", "uint64"):
        x[1, [3, 7]], x[2] = np.iinfo(dtype).max, np.iinfo(dtype).min
    assert_exact(*run(ArgReduce(kind, 1, True, last), x))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums_along_any_axis_of_an_image(axis):
    x = np.random.default_rng(6).integers(-9, 9, (3, 19, 17)).astype(np.int8)
    assert_exact(*run(CumSum(axis, True, True), x))


def test_a_norm_of_float64_is_kept_in_float64():
    x = np.random.default_rng(7).standard_normal((3, 500))
    result, truth = run(VectorNorm(2.5, (1,), False, DType.F64), x)
    assert_close(result, truth, dtype=DType.F64, k=500)


def test_rows_that_merge_into_no_three_axes_are_refused():
    x = View(F32, (2, 3, 2, 3, 2, 3, 4), (9000, 1000, 500, 100, 50, 10, 1))
    to = row_major(F32, (2, 1, 2, 1, 2, 1, 4))
    call = Call(Reduce("sum", (1, 3, 5)), (x,), (to,), (False,), H200)
    (kernel,) = kernels_for("Reduce")
    assert kernel.supports(call) == "more than 3 separate axes are kept, or reduced"


def planned(shape):
    x, y = nhwc_view(F16, shape), nhwc_view(F16, (*shape[:2], 1, 1))
    call = Call(Reduce("mean", (2, 3)), (x,), (y,), (False,), H200)
    (kernel,) = kernels_for("Reduce")
    return kernel.launch(call)


def test_global_average_pools_fill_the_machine():
    (last,) = planned((1, 1280, 7, 7))
    assert last.chunks >= 64
    first, second = planned((1, 960, 56, 56))
    assert first.chunks >= 132
    assert second.chunks >= 16


def test_another_size_of_a_mean_needs_no_code():
    one, other = planned((64, 1280, 7, 7)), planned((32, 960, 8, 8))
    assert [launch.config for launch in one] == [launch.config for launch in other]


def test_axes_merge_in_the_order_of_memory():
    loops = axis_loops([4, 3, 5, 1], [[1, 20, 4, 7]])
    assert (loops.sizes, loops.strides, loops.axes) == ((1, 1, 60), ((0, 0, 1),), 1)
    apart = axis_loops([4, 3], [[1, 5], [3, 1]])
    assert (apart.sizes, apart.strides) == ((1, 3, 4), ((0, 5, 1), (0, 1, 3)))
    assert axis_loops([4, 0], [[1, 5]]).count == 0


def test_steps_of_vectors():
    view = row_major(F16, (1,))
    assert common_step((24, 48), (view,)) == 8
    assert common_step((20,), (view,)) == 4
    assert common_step((21, 8), (view,)) == 1
    assert (padded(21, 24, 8), padded(21, 23, 8), padded(24, 24, 8)) == (24, 21, 24)
