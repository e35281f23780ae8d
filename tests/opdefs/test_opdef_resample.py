"""Interpolation along one axis: against PyTorch's antialiased resizes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import Resample
from saccade.opdefs._resample_numpy import axis_tables

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("after", [1, 3, 7, 16, 17, 40])
@pytest.mark.parametrize(("mode", "torch_mode"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_antialiased_without_what_lies_outside_is_pytorchs(mode, torch_mode, after):
    x = RNG.normal(size=(2, 3, 17, 5))
    op = Resample(2, after, mode=mode, cubic_a=-0.5, exclude_outside=True, antialias=True)
    (y,) = op.reference(x)
    wanted = torch.nn.functional.interpolate(
        torch.from_numpy(x), (after, 5), mode=torch_mode, antialias=True
    )
    # Positions are made in float32.
    np.testing.assert_allclose(y, wanted.numpy(), atol=2e-5)


def test_weights_sum_to_one_and_constants_stay():
    x = np.full((4, 19), 3.0, np.float32)
    for after in (2, 5, 19, 31):
        for mode in ("linear", "cubic"):
            (y,) = Resample(1, after, mode=mode, antialias=True).reference(x)
            np.testing.assert_allclose(y, 3.0, rtol=1e-6)


def test_what_is_read_is_inside_and_no_more_than_it_weighs():
    """Edges take the weights of what lies beyond them: no element is read twice."""
    rule = Resample(0, 3, mode="cubic", antialias=True).rule(20, 3)
    tables = axis_tables(rule, 20, 3)
    assert (tables.first >= 0).all() and (tables.first + tables.length <= 20).all()
    np.testing.assert_allclose(tables.weights.sum(axis=1), 1.0)
    assert tables.weights.shape[1] == tables.length.max() > 8


def test_nothing_outside_a_region_is_read():
    """What lies there may be infinite."""
    x = np.array([np.inf, 1, 2, 3, np.nan], np.float32)
    op = Resample(0, 4, coordinate="tf_crop_and_resize", region=(1.25, 2.0), fill=9.0)
    np.testing.assert_array_equal(op.reference(x)[0], np.full(4, 9.0, np.float32))


@pytest.mark.parametrize(
    ("op", "shape", "message"),
    [
        (Resample(2, 3), (4, 5), "axis"),
        (Resample(0, -1), (4,), "size -1 is negative"),
        (Resample(0, 3), (0, 2), "cannot make 3 out of none"),
        (Resample(0, 3, mode="area"), (4,), "mode 'area'"),
        (Resample(0, 3, coordinate="corner"), (4,), "coordinate 'corner'"),
        (Resample(0, 3, nearest="up"), (4,), "nearest 'up'"),
        (Resample(0, 3, scale=-1.0), (4,), "must be positive"),
    ],
)
def test_refusals(op, shape, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(DType.F32, shape)])


def test_integers_are_refused():
    with pytest.raises(ModelError, match="x"):
        Resample(0, 3).infer([TensorType(DType.I32, (4,))])
