import numpy as np
import pytest

from saccade.errors import OutOfBoundsError
from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.cube.direct import CUBE, launch
from saccade.opdefs import Cube
from saccade.testing.kernels import launched_as, nhwc_view, off_by, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import random_operands

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("size", [1, 17, 65, 16385])
def test_short_rounds(hold, size):
    kernel = launched_as(CUBE, lambda call: launch(call, 1))
    hold(kernel, Cube(0.5), [RNG.integers(-9, 10, size).astype(np.float32)], exact=True)


def refusal(x, out):
    return CUBE.supports(Call(Cube(), (x,), (out,), (False,), ZEN4, 2))


def test_refusals():
    rows, shape = row_major(DType.F32, (2, 3, 5, 7)), (2, 3, 5, 7)
    assert refusal(rows, rows) is None
    assert refusal(*[row_major(DType.F16, shape)] * 2) == "elements of type float16"
    alike = "operand and result are not stored alike, without gaps"
    assert refusal(nhwc_view(DType.F32, shape), rows) == alike
    assert refusal(*[nhwc_view(DType.F32, shape, 4)] * 2) == alike
    assert refusal(*[View(DType.F32, (2, 2), (3, 0))] * 2) == alike


CHECKED = [("avx512", True, 2, (1, 0)), ("avx2", True, 1, None)]


def test_an_element_too_many_is_caught(hold):
    x = random_operands((64,), DType.F32, RNG)
    with pytest.raises(OutOfBoundsError, match=r"access x\[\d+\] of a buffer of 64 elements"):
        hold(off_by(CUBE, 0), Cube(), [x], runs=CHECKED)


def test_an_element_too_few_is_caught(hold):
    x = random_operands((65,), DType.F32, RNG)
    with pytest.raises(AssertionError):
        hold(off_by(CUBE, 0, -1), Cube(), [x], runs=CHECKED)
