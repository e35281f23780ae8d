"""Deformable convolution's meaning: against a plain one, and its gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import Conv2d, DeformConv, DeformConvGradient

RNG = np.random.default_rng(3)
GEOMETRY = {"stride": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": 2}


def operands(offset_groups=1, kernel=(2, 3)):
    x, w = RNG.standard_normal((2, 4, 6, 7)), RNG.standard_normal((6, 2, *kernel))
    taps = offset_groups * kernel[0] * kernel[1]
    offset = RNG.standard_normal((2, 2 * taps, 4, 4)) * 2
    return x, w, offset, RNG.standard_normal(6), RNG.standard_normal((2, taps, 4, 4))


def test_no_offsets_are_a_convolution():
    x, w, offset, bias, mask = operands()
    op = DeformConv(bias=True, mask=True, **GEOMETRY)
    (y,) = op.reference(x, w, 0 * offset, bias, 0 * mask + 1)
    (plain,) = Conv2d(**GEOMETRY).reference(x, w)
    np.testing.assert_allclose(y, plain + bias[:, None, None], rtol=1e-12)


def test_whole_offsets_move_pixels():
    x = RNG.standard_normal((1, 1, 5, 5))
    offset = np.zeros((1, 2, 5, 5))
    offset[:, 0], offset[:, 1] = 1, -2
    (y,) = DeformConv().reference(x, np.ones((1, 1, 1, 1)), offset)
    wanted = np.zeros_like(x)
    wanted[:, :, :4, 2:] = x[:, :, 1:, :3]
    np.testing.assert_array_equal(y, wanted)


def test_gradients_are_differences():
    op = DeformConv(bias=True, mask=True, offset_groups=2, **GEOMETRY)
    x, w, offset, _, mask = inputs = list(operands(2))
    (y,) = op.reference(*inputs)
    grad = RNG.standard_normal(y.shape)
    wanted = DeformConvGradient.WANTED
    back = DeformConvGradient(mask=True, wanted=wanted, offset_groups=2, **GEOMETRY)
    found = dict(zip(wanted, back.reference(grad, x, w, offset, mask), strict=True))
    places = {"x": 0, "weight": 1, "offset": 2, "bias": 3, "mask": 4}
    for name, place in places.items():
        direction, step = RNG.standard_normal(inputs[place].shape), 1e-6
        ahead, behind = (
            op.reference(*inputs[:place], inputs[place] + s * direction, *inputs[place + 1 :])[0]
            for s in (step, -step)
        )
        slope = ((ahead - behind) * grad).sum() / (2 * step)
        assert slope == pytest.approx((found[name] * direction).sum(), rel=1e-5), name


@pytest.mark.parametrize(
    ("position", "shape", "message"),
    [
        (0, (2, 5, 6, 7), "channels"),
        (1, (5, 2, 2, 3), "5 channels in 2 groups"),
        (2, (2, 13, 4, 4), "axis 1 of offset"),
        (2, (2, 12, 4, 5), "axis 3 of offset"),
        (4, (2, 7, 4, 4), "axis 1 of mask"),
    ],
)
def test_refusals(position, shape, message):
    shapes = [a.shape for a in operands()]
    shapes[position] = shape
    op = DeformConv(bias=True, mask=True, **GEOMETRY)
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(DType.F32, s) for s in shapes])
