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
SHAPES = [(), (0, 3), (3, 0), (1,), (7,), (17,), (64,), (5, 13), (2, 3, 5, 7), (16385,), (3, 16384)]


@pytest.mark.parametrize("unroll", [4, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_sizes(hold, shape, unroll):
    kernel = launched_as(CUBE, lambda call: launch(call, unroll))
    whole = RNG.integers(-9, 10, shape).astype(np.float32)
    hold(kernel, Cube(0.5), [whole], exact=True)
    hold(kernel, Cube(0.3), [random_operands(shape, DType.F32, RNG)])


def test_channels_last(hold):
    view = nhwc_view(DType.F32, (2, 3, 5, 7))
    x = random_operands(view.shape, DType.F32, RNG)
    hold(CUBE, Cube(), [x], inputs=[view], outputs=[view])


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
