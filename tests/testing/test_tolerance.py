"""The comparison helpers fail on wrong answers: planted faults of the sizes that kernels make."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType
from saccade.opdefs import Conv2d
from saccade.testing.tolerance import (
    assert_close,
    assert_exact,
    bound,
    exact_operands,
    random_operands,
)

F32, F64 = DType.F32, DType.F64


@pytest.fixture
def case():
    rng = np.random.default_rng(11)
    x, w = random_operands((1, 8, 12, 11), F32, rng), random_operands((8, 8, 3, 3), F32, rng)
    right = Conv2d(stride=(2, 1), padding=(1, 1, 1, 1))
    (truth,) = right.reference(x.astype(np.float64), w.astype(np.float64))
    return x, w, right, truth


def test_the_right_answer_passes(case):
    x, w, right, truth = case
    assert_close(right.reference(x, w)[0], truth, dtype=F32, k=w[0].size)


def mutants(x, w):
    """Faults of kernels; each leaves shape and type right."""
    (shifted,) = Conv2d(stride=(2, 1), padding=(0, 1, 2, 1)).reference(x, w)
    yield "an off-by-one pad", shifted
    (sums,) = Conv2d(stride=(2, 1), padding=(1, 1, 1, 1)).reference(x, w)
    yield (
        "swapped axes of the taps",
        Conv2d(stride=(2, 1), padding=(1, 1, 1, 1)).reference(x, w.swapaxes(2, 3))[0],
    )
    biased = sums + np.float32(1e-3)
    yield "a dropped bias", biased
    tail = sums.copy()
    tail[0, -1, -1, -1] = 0
    yield "an element not written", tail
    near = sums.copy()
    near[0, 3, 2, 1] *= np.float32(1.001)
    yield "one element somewhat off", near
    short = w.copy()
    short[:, -1, -1, -1] = 0
    yield "a dropped tap", Conv2d(stride=(2, 1), padding=(1, 1, 1, 1)).reference(x, short)[0]
    coarse = Conv2d(stride=(2, 1), padding=(1, 1, 1, 1)).reference(
        x.astype(np.float16).astype(np.float32), w
    )
    yield "operands rounded to float16", coarse[0]
    yield "NaN", np.where(sums == sums.max(), np.float32(np.nan), sums)


@pytest.mark.parametrize("index", range(8))
def test_mutants_are_caught(case, index):
    x, w, _, truth = case
    name, wrong = list(mutants(x, w))[index]
    with pytest.raises(AssertionError):
        assert_close(wrong, truth, dtype=F32, k=w[0].size)
    with pytest.raises(AssertionError):
        assert_exact(wrong, truth.astype(np.float32))
    assert wrong.shape == truth.shape, name


def test_form_is_checked():
    truth = np.ones((2, 3))
    with pytest.raises(AssertionError, match="shape"):
        assert_close(np.ones((3, 2), np.float32), truth, dtype=F32, k=1)
    with pytest.raises(AssertionError, match="shape"):
        assert_close(np.ones((1, 3), np.float32), truth, dtype=F32, k=1)
    with pytest.raises(AssertionError, match="type float64"):
        assert_close(truth, truth, dtype=F32, k=1)
    with pytest.raises(TypeError, match="not float64"):
        assert_close(np.ones(2, np.float32), np.ones(2, np.float32), dtype=F32, k=1)
    with pytest.raises(AssertionError, match="type float64"):
        assert_exact(truth, truth.astype(np.float32))


def test_zeros_infinities_and_nans():
    zeros = np.zeros(3)
    assert_close(zeros.astype(np.float32), zeros, dtype=F32, k=1)
    with pytest.raises(AssertionError, match="worst at"):
        assert_close(np.array([0, 1e-30, 0], np.float32), zeros, dtype=F32, k=1)
    special = np.array([np.inf, -np.inf, np.nan, 1.0])
    assert_close(special.astype(np.float32), special, dtype=F32, k=1)
    for at, value in ((0, 1e38), (1, np.inf), (2, 0.0), (3, np.nan), (3, np.inf)):
        wrong = special.astype(np.float32)
        wrong[at] = value
        with pytest.raises(AssertionError, match="infinities or NaNs"):
            assert_close(wrong, special, dtype=F32, k=1)
        with pytest.raises(AssertionError, match="1 of 4"):
            assert_exact(wrong, special.astype(np.float32))
    assert_close(np.zeros((0, 2), np.float32), np.zeros((0, 2)), dtype=F32, k=1)


@pytest.mark.parametrize("bits", [0x7FC0, 0x7F81, 0xFF81])
def test_any_nan_of_bfloat16_is_wrong(bits):
    """Signalling ones too, of which NumPy would warn."""
    truth = np.ones(40)
    actual = truth.astype(DType.BF16.numpy)
    actual.view(np.uint16)[7] = bits
    with pytest.raises(AssertionError, match="of its own"):
        assert_close(actual, truth, dtype=DType.BF16, k=4)


def test_the_message_names_the_worst_element():
    wrong = np.ones((2, 3), np.float32)
    wrong[1, 2] = 2
    with pytest.raises(AssertionError, match=r"worst at \(1, 2\): 2.0 for 1.0"):
        assert_close(wrong, np.ones((2, 3)), dtype=F32, k=1)
    with pytest.raises(AssertionError, match=r"first at \(1, 2\): 2.0, should be 1.0"):
        assert_exact(wrong, np.ones((2, 3), np.float32))


def test_the_bound():
    assert bound(F32, 100) == pytest.approx(4 * 2**-23 * 10)
    assert bound(F64, 1) == pytest.approx(4 * 2**-52)
    assert bound(DType.BF16, 100) == pytest.approx(2**-8 + bound(F32, 100))
    with pytest.raises(ValueError, match="0 terms"):
        bound(F32, 0)
    with pytest.raises(ValueError, match="exact"):
        bound(DType.I32, 1)


# Scales hold powers of two alone: no zero and no sign, of which exact operands are made.
@pytest.mark.parametrize("dtype", [one for one in DType if one is not DType.F8E8M0])
def test_exact_operands(dtype):
    rng = np.random.default_rng(5)
    values = exact_operands((40, 50), dtype, rng)
    assert values.dtype == dtype.numpy
    assert len(np.unique(values)) >= 2
    wide = values.astype(np.float64)
    assert (wide == np.rint(wide)).all()
    if dtype.is_float:
        products = values.astype(np.float32) @ values.T.astype(np.float32)
        sums = products.astype(dtype.arithmetic.numpy)
        assert_exact(sums.astype(np.float64), wide @ wide.T)


def test_random_operands_are_floats():
    rng = np.random.default_rng(5)
    assert random_operands((3,), DType.F16, rng).dtype == np.float16
    with pytest.raises(ValueError, match="exact_operands"):
        random_operands((3,), DType.I32, rng)
