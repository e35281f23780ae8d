"""Bits read as another element type, against NumPy's views."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType, storage
from saccade.opdefs import BitCast, Concat, MatMul, Pad

F32, I32, I4, U4, F16, BF16 = (
    DType.F32, DType.I32, DType.I4, DType.U4, DType.F16, DType.BF16,
)  # fmt: skip


def test_bits_stay_and_results_are_arrays_of_their_own():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::2]
    (found,) = BitCast(I32).reference(x)
    np.testing.assert_array_equal(found, x.copy().view(np.int32), strict=True)
    assert not np.shares_memory(found, x)
    (point,) = BitCast(F32).reference(np.array(0x3F800000, np.int32))
    assert point.shape == () and point == 1


@pytest.mark.parametrize(
    ("source", "to", "why"),
    [
        (F32, DType.I64, "int64 has not as many bits as float32"),
        (I4, DType.I8, "int8 has not as many bits as int4"),
        (I4, DType.U2, "uint2 has not as many bits as int4"),
        (DType.U8, DType.BOOL, "bits are read as bool"),
    ],
)
def test_other_widths_are_refused(source, to, why):
    with pytest.raises(ModelError, match=why):
        BitCast(to).infer([TensorType(source, (2,))])


@pytest.mark.parametrize("stored", [F16, BF16])
def test_bits_are_those_of_the_storage(stored):
    """To every other operator such a value is float32."""
    x = np.array([1.5, -2], stored.numpy)
    (kind,) = storage.infer(BitCast(DType.I16), [TensorType(stored, (2,))])
    assert kind == TensorType(DType.I16, (2,))
    (found,) = storage.reference(BitCast(DType.I16), [x])
    np.testing.assert_array_equal(found, x.view(np.int16), strict=True)


def test_what_only_moves_stays_narrow_and_what_computes_does_not():
    x = TensorType(DType.F8E5M2, (2, 2))
    assert storage.infer(Concat(0), [x, x]) == (TensorType(DType.F8E5M2, (4, 2)),)
    assert storage.infer(MatMul(), [x, x]) == (TensorType(F32, (2, 2)),)
    wide = TensorType(F16, (2, 2))
    assert storage.infer(Concat(0), [wide, wide])[0].dtype is F32
    with pytest.raises(ModelError, match="different types"):
        storage.infer(Concat(0), [x, wide])
    # Not a number, of another code than the usual one: no widening keeps it.
    odd = np.array([0x7D, 0xFF], np.uint8).view(DType.F8E5M2.numpy)
    (padded,) = storage.reference(Pad(((1, 0),)), [odd])
    np.testing.assert_array_equal(padded.view(np.uint8), [0, 0x7D, 0xFF])


def test_narrow_types_are_stored_in_a_byte():
    for dtype in (d for d in DType if d.is_narrow):
        assert dtype.itemsize == dtype.numpy.itemsize == 1
        assert DType.of(dtype.numpy) is dtype
        wide = storage.widened(np.zeros(3, np.uint8).view(dtype.numpy))
        assert wide.dtype == dtype.arithmetic.numpy
        assert storage.holds(dtype, dtype.arithmetic)
    assert (I4.bits, U4.bits, DType.U2.bits, DType.F8E8M0.bits, F32.bits) == (4, 4, 2, 8, 32)
    assert (I4.arithmetic, U4.arithmetic) == (DType.I8, DType.U8)
