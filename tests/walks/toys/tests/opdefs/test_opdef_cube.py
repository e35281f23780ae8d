import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.dim import symbol
from saccade.opdefs import Cube


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 3, 5, 7)], ids=str)
def test_third_powers(shape):
    x = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)
    (y,) = Cube(0.5).reference(x)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, 0.5 * x.astype(np.float64) ** 3)


def test_what_it_gives_and_costs():
    wide = TensorType(DType.F64, (symbol("N"), 3))
    assert Cube().infer([wide]) == (wide,)
    x = TensorType(DType.F32, (5, 3))
    work = Cube().work([x], [x])
    assert (work.flops, work.bytes) == (45, 120)


def test_what_it_refuses():
    with pytest.raises(ModelError, match="Cube: x must be floating point, is int64"):
        Cube().infer([TensorType(DType.I64, (3,))])
    with pytest.raises(ModelError, match="Cube: takes 1 operands, got 2"):
        Cube().infer([TensorType(DType.F32, (3,))] * 2)
