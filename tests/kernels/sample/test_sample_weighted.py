"""Weighted samples: what lies outside, every way that operands lie in memory, mistakes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cases.sample import CASES
from saccade.kernels.cpu.sample.weighted import WEIGHTED
from saccade.opdefs import WeightedSamples
from saccade.testing.cases import arrays_of, inputs_of, outputs_of, stored_as
from saccade.testing.kernels import nhwc_view, off_by, row_major, run_kernel
from saccade.testing.targets import ZEN4

F32, F16, BF16 = DType.F32, DType.F16, DType.BF16
CHECKED = (("avx512", True, 2, (1, 0)), ("avx2", True, 3, (1, 2, 0)))
SIZES = ((4, 8), (2, 2))
WEIGHTED_CASES = [case for case in CASES if isinstance(case.op, WeightedSamples)]


def operands(heads, each, points, n=2, queries=5, kind=np.float32):
    """Whole pixels and weights, and places at quarters of pixels, some outside: sums are exact."""
    rng = np.random.default_rng(7)
    sizes = SIZES[: len(points)]
    images = [rng.integers(-8, 9, (n, heads * each, *size)).astype(kind) for size in sizes]
    grids = []
    for p, (h, w) in zip(points, sizes, strict=True):
        at = rng.integers([-8, -8], [4 * w + 4, 4 * h + 4], (n, queries, heads, p, 2)) / 4
        grids.append(((2 * at + 1) / [w, h] - 1).astype(np.float32))
    weights = rng.integers(-2, 3, (n, queries, heads, sum(points))).astype(kind)
    return [*images, *grids, weights]


def images_last(arrays, levels):
    """Views of the operands, of the images with channels last."""
    return [
        nhwc_view(F32, a.shape) if i < levels else row_major(DType.of(a.dtype), a.shape)
        for i, a in enumerate(arrays)
    ]


def permuted(kind, shape, order):
    """A view whose axes lie in memory in this order."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return View(kind, shape, tuple(strides))


@pytest.mark.parametrize("kind", [F16, BF16], ids=lambda kind: kind.value)
@pytest.mark.parametrize("case", WEIGHTED_CASES, ids=lambda case: case.name)
def test_halves(hold, case, kind):
    made = stored_as(case, kind)
    arrays = arrays_of(made)
    views = {"inputs": inputs_of(made), "outputs": outputs_of(made)}
    hold(WEIGHTED, made.op, arrays, k=400, runs=CHECKED, **views)


@pytest.mark.parametrize("points", [(1,), (17, 3), (0, 4), (16, 8), (0,)], ids=str)
@pytest.mark.parametrize("each", [1, 2, 33, 300])
def test_any_number_of_places_and_channels(hold, each, points):
    arrays = operands(2, each, points)
    op = WeightedSamples(len(points), 2)
    hold(WEIGHTED, op, arrays, inputs=images_last(arrays, len(points)), exact=True)


@pytest.mark.parametrize("grid", [(0, 1, 2, 4, 3), (4, 3, 2, 1, 0)], ids=str)
@pytest.mark.parametrize("weights", [(0, 1, 3, 2), (3, 2, 1, 0)], ids=str)
def test_grids_and_weights_in_any_order(hold, grid, weights):
    arrays = operands(3, 17, (3, 4))
    views = images_last(arrays, 2)
    views[2:4] = [permuted(F32, a.shape, grid) for a in arrays[2:4]]
    views[4] = permuted(F32, arrays[4].shape, weights)
    hold(WEIGHTED, WeightedSamples(2, 3), arrays, inputs=views, exact=True)


def test_results_whose_channels_are_no_neighbours(hold):
    arrays = operands(2, 8, (3, 4))
    out = permuted(F32, (2, 5, 16), (2, 0, 1))
    inputs = images_last(arrays, 2)
    hold(WEIGHTED, WeightedSamples(2, 2), arrays, inputs=inputs, outputs=[out], exact=True)


def test_images_of_which_one_has_its_channels_first(hold):
    arrays = operands(2, 8, (3, 4))
    inputs = images_last(arrays, 1)
    hold(WEIGHTED, WeightedSamples(2, 2), arrays, inputs=inputs, exact=True)


@pytest.mark.parametrize("last", [False, True])
def test_pixels_outside_are_no_numbers_of_the_image(last):
    """The corner pixel is the only one that is finite, and all that some of the places reach."""
    x = np.full((1, 8, 4, 8), np.inf, np.float32)
    x[:, :, 0, 0] = 3
    far = [[-9, 0], [np.nan, 0], [0, np.inf], [-np.inf, 1e30]]
    corner = [-1.0, -1.0]  # a quarter of its four pixels is inside
    grid = np.array([*far, corner], np.float32).reshape(1, 5, 1, 1, 2)
    weights = np.ones((1, 5, 1, 1), np.float32)
    arrays = [x, grid, weights]
    inputs = images_last(arrays, int(last))
    for checked in (False, True):
        (y,) = run_kernel(
            WEIGHTED, WeightedSamples(), arrays, [row_major(F32, (1, 5, 8))], inputs=inputs,
            checked=checked,
        )  # fmt: skip
        np.testing.assert_array_equal(y[0, :4], 0)
        np.testing.assert_array_equal(y[0, 4], 0.75)


def called(arrays, views, out=None):
    levels = (len(arrays) - 1) // 2
    y = out or row_major(F32, (2, 5, 16))
    return Call(WeightedSamples(levels, 2), tuple(views), (y,), (False,) * len(views), ZEN4, 2)


def test_refusals():
    arrays = operands(2, 8, (3, 4))
    views = images_last(arrays, 2)
    assert WEIGHTED.supports(called(arrays, views)) is None
    twice = View(F32, (2, 5, 16), (0, 16, 1))
    assert WEIGHTED.supports(called(arrays, views, twice)) == "the result repeats elements"
    double = [views[0]._replace(dtype=DType.F64), *views[1:]]
    assert WEIGHTED.supports(called(arrays, double)) == "elements of type float64"
    other = [views[0]._replace(dtype=F16), *views[1:]]
    assert WEIGHTED.supports(called(arrays, other)) == "elements of different types"
    huge = [views[0]._replace(strides=(1, 1, 2**29, 16)), *views[1:]]
    assert WEIGHTED.supports(called(arrays, huge)) == "an image of 2^31 elements and more"


def test_more_threads_take_less_time_and_channels_apart_more():
    arrays = operands(2, 8, (3, 4), queries=500)
    call = called(arrays, images_last(arrays, 2), row_major(F32, (2, 500, 16)))
    rows = called(arrays, images_last(arrays, 0), row_major(F32, (2, 500, 16)))
    fewer = dataclasses.replace(call, threads=1)
    assert math.isfinite(WEIGHTED.cost(call))
    assert WEIGHTED.cost(call) < WEIGHTED.cost(fewer) and WEIGHTED.cost(call) < WEIGHTED.cost(rows)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("channels", 0), ("queries", 0), ("rows", 0), ("sizes0", 0), ("sizes1", 1),
        ("x0_strides", 0), ("x0_strides", 2), ("x1_strides", 3), ("grid0_strides", 2),
        ("grid1_strides", 1), ("weight_strides", 1), ("weight_strides", 2), ("y_strides", 1),
    ],
)  # fmt: skip
def test_mistakes_are_noticed(hold, name, at):
    arrays = operands(2, 8, (3, 4))
    with pytest.raises((AssertionError, OutOfBoundsError)):
        hold(
            off_by(WEIGHTED, name, at=at), WeightedSamples(2, 2), arrays,
            inputs=images_last(arrays, 2), exact=True, runs=CHECKED,
        )  # fmt: skip
