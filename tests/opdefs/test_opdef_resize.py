"""Resize in all its modes against onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import mul, symbol
from saccade.ir.expr import parse
from saccade.opdefs import Resize
from saccade.testing.tolerance import random_operands

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
SIZES = [(1, 2, 13, 11), (1, 2, 3, 4), (1, 2, 1, 7), (1, 2, 10, 14), (0, 2, 8, 9)]


def attributes(op):
    return {
        "mode": op.mode,
        "coordinate_transformation_mode": op.coordinate,
        "nearest_mode": op.nearest,
        "cubic_coeff_a": op.cubic_a,
        "exclude_outside": int(op.exclude_outside),
    }


def by_sizes(peer, op, x):
    sizes = np.array(op.sizes, np.int64)
    return peer("Resize", (x, None, None, sizes), **attributes(op))


def operand(sizes, rng):
    return random_operands((sizes[0], 2, 5, 7), DType.F32, rng)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("coordinate", "nearest"), [*itertools.product(COORDINATES, NEAREST)])
def test_nearest_agrees(sizes, coordinate, nearest, *, rng, peer, agrees_exactly):
    op = Resize(sizes, coordinate=coordinate, nearest=nearest)
    x = operand(sizes, rng)
    agrees_exactly(op, (x,), by_sizes(peer, op, x))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("coordinate", COORDINATES)
def test_linear_agrees(sizes, coordinate, *, rng, peer, agrees):
    op = Resize(sizes, mode="linear", coordinate=coordinate)
    x = operand(sizes, rng)
    agrees(op, (x,), by_sizes(peer, op, x), k=4)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize(("a", "exclude"), [(-0.75, False), (-0.5, True)])
def test_cubic_agrees(sizes, coordinate, a, exclude, *, rng, peer, agrees):
    op = Resize(sizes, None, "cubic", coordinate, cubic_a=a, exclude_outside=exclude)
    x = operand(sizes, rng)
    agrees(op, (x,), by_sizes(peer, op, x), k=64)  # onnxruntime rounds coordinates to float32


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_given_scales_place_the_samples(mode, rng, peer, agrees):
    """13 = floor(5 · 2.7): the ratio of sizes is not the scale."""
    x = random_operands((1, 2, 5, 7), DType.F32, rng)
    scales = (1.0, 1.0, 2.7, 0.6)
    op = Resize((1, 2, 13, 4), scales, mode, nearest="floor")
    theirs = peer("Resize", (x, None, np.array(scales, np.float32)), **attributes(op))
    agrees(op, (x,), theirs, k=64)
    (other,) = Resize((1, 2, 13, 4), None, mode, nearest="floor").reference(x)
    assert not np.allclose(other, theirs)


def test_half_pixel_symmetric_keeps_the_middle(rng, peer, agrees):
    x = random_operands((1, 1, 5, 7), DType.F32, rng)
    scales = (1.0, 1.0, 2.7, 1.5)
    op = Resize((1, 1, 13, 10), scales, "linear", "half_pixel_symmetric")
    theirs = peer("Resize", (x, None, np.array(scales, np.float32)), **attributes(op))
    agrees(op, (x,), theirs, k=64)
    row = np.arange(7.0).reshape(1, 1, 1, 7)
    (wide,) = Resize((1, 1, 1, 10), (1, 1, 1, 1.5), "linear", "half_pixel_symmetric").reference(row)
    np.testing.assert_allclose(wide[0, 0, 0] + wide[0, 0, 0, ::-1], 6.0)


def test_channels_and_rank_5(rng, peer, agrees):
    x = random_operands((1, 2, 3, 4, 5), DType.F32, rng)
    op = Resize((1, 2, 5, 3, 7), mode="linear")
    agrees(op, (x,), by_sizes(peer, op, x), k=64)


def test_sizes_are_bound_and_epilogue_follows(rng):
    h = symbol("H")
    op = Resize((1, 2, mul(h, 2), 14), epilogue=parse("relu($0)"))
    x = rng.standard_normal((1, 2, 5, 7))
    (got,) = op.bind({"H": 5}).reference(x)
    np.testing.assert_array_equal(got, np.maximum(x, 0).repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Resize((1, 2, 3)), "for x"),
        (Resize((1, 2, 3, 4), (1.0, 1.0, 0.0, 1.0)), "must be positive"),
        (Resize((1, 2, 3, 4), mode="lanczos"), "mode 'lanczos'"),
        (Resize((1, 2, 3, 4), coordinate="tf_crop_and_resize"), "coordinate"),
    ],
)
def test_misfits_are_refused(op, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(DType.F32, (1, 2, 5, 7))])


def test_integers_only_by_nearest():
    with pytest.raises(ModelError, match="floating point"):
        Resize((2,), mode="linear").infer([TensorType(DType.U8, (1,))])
