"""What kernels are held against: types of results, and the truth, for every way to store floats."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import Case, Given, Operand
from saccade.opdefs import Pointwise
from saccade.testing.cases import arrays_of, hold, outputs_of, truth, types_of

F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
SUM = "add(add($0, $1), $2)"


def three(dtype):
    """Whose sum float16 and bfloat16 cannot make in two steps: 2048 + 1 + 1, 256 + 1 + 1."""
    large = 256 if dtype is BF16 else 2048
    return [np.full(5, value, dtype.numpy) for value in (large, 1, 1)], large + 2


@pytest.mark.parametrize(("dtype", "to"), [(F16, F16), (BF16, F32), (F32, F32)])
def test_results_have_the_operands_type_but_for_bfloat16(dtype, to):
    given = [TensorType(dtype, (5,))] * 3
    assert types_of(Pointwise(parse(SUM), to), given) == (TensorType(to, (5,)),)


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
def test_halves_are_computed_in_float32(dtype):
    arrays, wanted = three(dtype)
    op = Pointwise(parse(SUM), F32 if dtype is BF16 else dtype)
    (exact,) = truth(op, arrays, exact=True)
    assert (exact.astype(dtype.numpy) == wanted).all()
    (wide,) = truth(op, arrays, exact=False)
    assert wide.dtype == np.float64 and (wide == wanted).all()


def test_a_case_is_held_against_that():
    values = [Given((float(array[0]),) * 5) for array in three(F16)[0]]
    case = Case(
        "sum", Pointwise(parse(SUM), F16), tuple(Operand((5,), F16, values=v) for v in values),
        terms=0,
    )  # fmt: skip
    (view,) = outputs_of(case)
    assert view.dtype is F16
    assert truth(case.op, arrays_of(case), exact=True)[0][0] == 2050
    hold(case, lambda *_: [np.full(5, 2050, np.float16)])
    with pytest.raises(AssertionError, match="5 of 5 elements differ"):
        hold(case, lambda *_: [np.full(5, 2048, np.float16)])
