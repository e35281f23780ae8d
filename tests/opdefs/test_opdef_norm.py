"""References of norms and their gradients against NumPy's norm and differences."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.opdefs import VectorNorm, VectorNormGrad

POWERS = [1.0, 2.0, 3.0, 2.5, 1.5, 0.5, -1.0, float("inf"), float("-inf")]
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("p", [0.0, *POWERS])
def test_as_numpy(p):
    x = RNG.standard_normal((4, 9))
    (y,) = VectorNorm(p, (1,), False, DType.F64).reference(x)
    np.testing.assert_allclose(y, [np.linalg.norm(row, p) for row in x], rtol=1e-14)
    (y,) = VectorNorm(p, (0, 1), True, DType.F32).reference(x.astype(np.float32))
    assert y.shape == (1, 1)
    assert y.dtype == np.float32


@pytest.mark.parametrize("p", POWERS)
def test_gradients_are_slopes(p):
    x, g, step = RNG.standard_normal((3, 5)), RNG.standard_normal(3), 1e-6
    forward = VectorNorm(p, (1,), False, DType.F64)
    (dx,) = VectorNormGrad(p, (1,), False).reference(g, x, forward.reference(x)[0])
    for i in range(5):
        moved = np.zeros_like(x)
        moved[:, i] = step
        (high,), (low,) = forward.reference(x + moved), forward.reference(x - moved)
        np.testing.assert_allclose(dx[:, i], g * (high - low) / (2 * step), rtol=1e-5, atol=1e-8)


def test_ties_share_and_zeros_are_still():
    x, n, g = np.array([[2.0, -2.0, 1.0], [0, 0, 0]]), np.array([2.0, 0]), np.array([6.0, 6.0])
    (dx,) = VectorNormGrad(float("inf"), (1,), False).reference(g, x, n)
    np.testing.assert_array_equal(dx, [[3, -3, 0], [0, 0, 0]])
    for p in (1.5, 2.0, 3.0, 0.5):
        (n,) = VectorNorm(p, (1,), False, DType.F64).reference(x)
        (dx,) = VectorNormGrad(p, (1,), False).reference(g, x, n)
        np.testing.assert_array_equal(dx[1], 0)


def test_refusals():
    x, y = TensorType(DType.F32, (2, 3)), TensorType(DType.F32, (2,))
    with pytest.raises(ModelError, match="not sorted"):
        VectorNorm(2.0, (1, 0), False, DType.F32).infer([x])
    with pytest.raises(ModelError, match="axis 2"):
        VectorNorm(2.0, (2,), False, DType.F32).infer([x])
    with pytest.raises(ModelError, match="do not fit"):
        VectorNormGrad(2.0, (0,), False).infer([y, x, y])
    with pytest.raises(ModelError, match="no gradient"):
        VectorNormGrad(0.0, (1,), False).infer([y, x, y])
    with pytest.raises(ModelError, match="floating point"):
        VectorNorm(2.0, (0,), False, DType.F32).infer([TensorType(DType.I32, (2,))])
