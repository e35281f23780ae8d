"""Weighted sums of samples: the reference against PyTorch's samples, shapes, what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import WeightedSamples

F32 = DType.F32
SIZES = ((5, 7), (3, 4), (1, 2))
HEADS, EACH, QUERIES = 2, 3, 6


def operands(points, n=2, kind=np.float64):
    rng = np.random.default_rng(11)
    sizes = SIZES[: len(points)]
    images = [rng.normal(size=(n, HEADS * EACH, *size)).astype(kind) for size in sizes]
    grids = [rng.uniform(-1.5, 1.5, (n, QUERIES, HEADS, p, 2)).astype(kind) for p in points]
    weights = rng.normal(size=(n, QUERIES, HEADS, sum(points))).astype(kind)
    return [*images, *grids, weights]


def types(points=(4, 2), **changed):
    """Types of all operands by name, some of them changed."""
    made = {f"x{i}": (2, 6, *SIZES[i]) for i in range(len(points))}
    made |= {f"grid{i}": (2, QUERIES, HEADS, p, 2) for i, p in enumerate(points)}
    made["weights"] = (2, QUERIES, HEADS, sum(points))
    kinds = {name: changed.pop(f"{name}_type", F32) for name in made}
    return [TensorType(kinds[name], shape) for name, shape in (made | changed).items()]


def by_pytorch(images, grids, weights, aligned):
    """As Deformable DETR's own code has it: samples of all images side by side, then a sum."""
    n, queries, heads, _ = weights.shape
    found = []
    for x, grid in zip(images, grids, strict=True):
        flat = torch.from_numpy(x).reshape(n * heads, -1, *x.shape[2:])
        places = torch.from_numpy(grid).transpose(1, 2).flatten(0, 1)
        found.append(torch.nn.functional.grid_sample(flat, places, align_corners=aligned))
    shares = torch.from_numpy(weights).transpose(1, 2).reshape(n * heads, 1, queries, -1)
    total = (torch.cat(found, -1) * shares).sum(-1)
    return total.reshape(n, -1, queries).transpose(1, 2).numpy()


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("points", [(4,), (4, 4, 4), (1, 5, 2)], ids=str)
def test_the_reference_is_pytorchs(points, aligned):
    *rest, weights = arrays = operands(points)
    (y,) = WeightedSamples(len(points), HEADS, aligned).reference(*arrays)
    expected = by_pytorch(rest[: len(points)], rest[len(points) :], weights, aligned)
    assert y.dtype == np.float64 and y.flags.c_contiguous
    np.testing.assert_allclose(y, expected, atol=1e-12)


def test_heads_have_channels_places_and_weights_of_their_own():
    x = np.arange(1.0, 5.0).reshape(1, 4, 1, 1) * np.ones((1, 1, 1, 2))
    grid = np.zeros((1, 1, 2, 1, 2))
    grid[0, 0, 1, 0, 0] = 9  # outside
    (y,) = WeightedSamples(1, 2).reference(x, grid, np.full((1, 1, 2, 1), 10.0))
    np.testing.assert_array_equal(y, [[[10, 20, 0, 0]]])


def test_pixels_outside_take_no_part():
    x = np.full((1, 1, 2, 2), np.inf)
    grid = np.array([[-9.0, 0.0], [np.nan, 0.0], [0.0, 9.0]]).reshape(1, 3, 1, 1, 2)
    (y,) = WeightedSamples().reference(x, grid, np.ones((1, 3, 1, 1)))
    np.testing.assert_array_equal(y, np.zeros((1, 3, 1)))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_results_are_stored_like_the_images(kind):
    arrays = operands((4, 2), kind=kind)
    (y,) = WeightedSamples(2, HEADS).reference(*arrays)
    (truth,) = WeightedSamples(2, HEADS).reference(*(a.astype(np.float64) for a in arrays))
    assert y.dtype == kind
    np.testing.assert_allclose(y, truth, atol=64 * np.finfo(kind).eps)


def test_shapes():
    op = WeightedSamples(2, HEADS)
    assert op.infer(types()) == (TensorType(F32, (2, QUERIES, 6)),)
    none = op.infer(types((0, 3)))
    assert none == (TensorType(F32, (2, QUERIES, 6)),)


def test_work_counts_four_products_of_a_pixel_and_one_of_its_sum():
    op, inputs = WeightedSamples(2, HEADS), types()
    work = op.work(inputs, op.infer(inputs))
    places = 2 * QUERIES * HEADS * 6
    assert work.flops == 2 * 5 * places * EACH
    pixels = 2 * 6 * (5 * 7 + 3 * 4)
    assert work.bytes == 4 * (pixels + 2 * places + places + 2 * QUERIES * 6)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"x0": (2, 6, 5)}, "over"),
        ({"x1": (2, 8, 3, 4)}, "the number of channels"),
        ({"x1": (3, 6, 3, 4)}, "images"),
        ({"x1": (2, 6, 0, 4)}, "without pixels"),
        ({"x0": (2, 7, 5, 7), "x1": (2, 7, 3, 4)}, "7 channels for 2 heads"),
        ({"x0_type": DType.F16}, "float16"),
        ({"grid0_type": DType.I64}, "the grid"),
        ({"grid0": (2, QUERIES, HEADS, 4, 3)}, "a grid"),
        ({"grid0": (2, QUERIES, HEADS, 8)}, "a grid"),
        ({"grid0": (2, QUERIES, 1, 4, 2)}, "a grid"),
        ({"grid1": (2, 9, HEADS, 2, 2)}, "the number of queries"),
        ({"grid1": (1, QUERIES, HEADS, 2, 2)}, "images"),
        ({"weights": (2, QUERIES, HEADS, 7)}, "the number of places"),
        ({"weights": (2, QUERIES, 3, 6)}, "weights"),
        ({"weights": (2, QUERIES, 12)}, "weights"),
    ],
    ids=str,
)
def test_what_does_not_fit(changed, reason):
    with pytest.raises(ModelError, match=reason):
        WeightedSamples(2, HEADS).infer(types(**changed))


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (WeightedSamples(3, HEADS), "5 operands for 3 images"),
        (WeightedSamples(0, HEADS), "0 images"),
        (WeightedSamples(2, 0), "0 heads"),
    ],
)
def test_operands_that_are_not_there(op, reason):
    with pytest.raises(ModelError, match=reason):
        op.infer(types())
