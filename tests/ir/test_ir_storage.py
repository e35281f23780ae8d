"""float16 and bfloat16 are ways to store float32."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType, TensorType, storage
from saccade.ir.expr import IDENTITY, parse
from saccade.opdefs import MatMul, Pointwise

F32, F16, BF16, I64 = DType.F32, DType.F16, DType.BF16, DType.I64


@pytest.mark.parametrize("stored", [F32, F16, BF16])
def test_any_of_the_three_holds_float32(stored):
    assert storage.holds(stored, F32)


@pytest.mark.parametrize(
    ("stored", "given"), [(F32, F16), (BF16, F16), (I64, F32), (F16, I64), (F16, DType.F64)]
)
def test_nothing_else_holds_what_an_operator_gives(stored, given):
    assert not storage.holds(stored, given)
    assert storage.holds(given, given)


def test_operators_take_any_mix_and_give_float32_unless_they_name_a_type():
    operands = [TensorType(F16, (2, 3)), TensorType(F32, (3, 4))]
    assert storage.infer(MatMul(), operands) == (TensorType(F32, (2, 4)),)
    (cast,) = storage.infer(Pointwise(IDENTITY, F16), operands[1:])
    assert cast.dtype is F16


def test_arithmetic_is_float32_s():
    x = np.array([2048, 60000], np.float16)
    op = Pointwise(parse("sub(mul($0, $0), mul($0, $0))"), F32)
    (found,) = storage.reference(op, [x])
    np.testing.assert_array_equal(found, np.zeros(2, np.float32), strict=True)
    (rounded,) = storage.reference(Pointwise(parse("div(add($0, 1.0), 2.0)"), F16), [x])
    np.testing.assert_array_equal(rounded, np.array([1024.5, 30000.5], np.float16), strict=True)


def test_bools_alone_are_computed_with_in_float32_too():
    op = Pointwise(parse("div(where($0, 2049.0, 1.0), 3.0)"), F16)
    (found,) = op.reference(np.array([True]))
    assert found.dtype == np.float16 and found.item() == 683


@pytest.mark.parametrize(
    ("number", "fits"), [(1.5, True), (-0.0, True), (np.nan, True), (np.inf, True), (0.1, False),
                         (2049, False), (1e6, False), (1e-9, False)],
)  # fmt: skip
def test_arrays_are_narrowed_where_that_rounds_nothing(number, fits):
    array = np.array([number, 1], np.float32)
    found = storage.narrowed(array, F16)
    assert found.dtype == (np.float16 if fits else np.float32)
    wide = storage.widened(found)
    assert wide.tobytes() == array.tobytes()
