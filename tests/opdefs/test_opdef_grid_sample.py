"""Sampling at places: the reference against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import GridSample
from saccade.testing.tolerance import assert_close

PYTORCH = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", PYTORCH)
def test_images(mode, padding, aligned):
    generator = np.random.default_rng(3)
    x = generator.normal(size=(2, 3, 5, 7))
    grid = generator.uniform(-2.5, 2.5, (2, 4, 6, 2))
    (y,) = GridSample(mode, padding, aligned).reference(x, grid)
    expected = torch.nn.functional.grid_sample(
        torch.from_numpy(x), torch.from_numpy(grid), PYTORCH[mode], padding, aligned
    )
    np.testing.assert_allclose(y, expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("aligned", [False, True])
def test_cubic_samples_beyond_the_border_are_onnxruntimes(peer, aligned):
    generator = np.random.default_rng(5)
    x = generator.normal(size=(2, 3, 5, 7)).astype(np.float32)
    grid = generator.uniform(-2.5, 2.5, (2, 4, 6, 2)).astype(np.float32)
    wide = x.astype(np.float64), grid.astype(np.float64)
    (truth,) = GridSample("cubic", "border", aligned).reference(*wide)
    theirs = peer(
        "GridSample", [x, grid], mode="cubic", padding_mode="border", align_corners=int(aligned)
    )
    assert_close(theirs, truth, dtype=DType.F32, k=1000)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volumes(mode, padding):
    generator = np.random.default_rng(4)
    x, grid = generator.normal(size=(2, 3, 4, 5, 6)), generator.uniform(-2, 2, (2, 3, 4, 2, 3))
    (y,) = GridSample(mode, padding).reference(x, grid)
    expected = torch.nn.functional.grid_sample(
        torch.from_numpy(x), torch.from_numpy(grid), PYTORCH[mode], padding, False
    )
    np.testing.assert_allclose(y, expected.numpy(), atol=1e-12)


def test_pixels_outside_take_no_part():
    x = np.full((1, 1, 2, 2), np.inf)
    grid = np.array([[[[-9.0, 0.0], [np.nan, 0.0], [0.0, 9.0]]]])
    (y,) = GridSample().reference(x, grid)
    np.testing.assert_array_equal(y, np.zeros((1, 1, 1, 3)))


@pytest.mark.parametrize(
    ("op", "grid"),
    [
        (GridSample("area"), (1, 2, 3, 2)), (GridSample(padding="wrap"), (1, 2, 3, 2)),
        (GridSample(), (1, 2, 3, 3)), (GridSample(), (2, 2, 3, 2)), (GridSample(), (1, 2, 2)),
    ],
)  # fmt: skip
def test_what_does_not_fit(op, grid):
    with pytest.raises(ModelError):
        op.infer([TensorType(DType.F32, (1, 3, 4, 5)), TensorType(DType.F32, grid)])
