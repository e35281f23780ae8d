"""Operators over values that are stored in float16, bfloat16, or in 8 bits and less.

All are ways to store float32, and 4-bit and 2-bit integers those of 8: to every operator of a graph
such an operand is the wider number that it stands for, and a result may be kept rounded to any. So
any mix of them fits every operator, and a result that ONNX has in float16 is computed in float32
and rounded once. A `Pointwise` whose `dtype` is float16 (a Cast to it, for one) rounds by itself.

Elements of 8 bits and less that are only moved stay what they are, every bit of them: what is not a
number in them has no wider form that comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType

__all__ = ["as_stored", "holds", "infer", "narrowed", "reference", "widened"]

_STORED = {d.value: d.arithmetic for d in DType if d.arithmetic is not d}


def as_stored(op: Op, operands: Sequence[DType]) -> bool:
    """Whether the operator takes and gives elements as they are stored, and widens none."""
    return op.bitwise or (op.moves and any(dtype.is_narrow for dtype in operands))


def infer(op: Op, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """What the operator gives, in the types that it computes in.

    Raises:
        ModelError: If the operands do not fit the operator.
    """
    if as_stored(op, [t.dtype for t in operands]):
        return op.infer(operands)
    return op.infer([TensorType(t.dtype.arithmetic, t.shape) for t in operands])


def holds(stored: DType, given: DType) -> bool:
    """Whether a value of type `stored` may be the result of an operator that gives `given`."""
    # Not the reverse: what an operator itself rounds to 16 bits may not be kept as float32.
    return stored is given or stored.arithmetic is given


def reference(op: Op, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The operator's NumPy reference; results are not yet rounded to their storage."""
    if as_stored(op, [DType.of(array.dtype) for array in operands]):
        return op.reference(*operands)
    return op.reference(*map(widened, operands))


def widened(array: Array) -> Array:
    """The array in the type that operators compute in."""
    # By name: NumPy knows most of them only once `ml_dtypes` is imported.
    wide = _STORED.get(array.dtype.name)
    return array if wide is None else array.astype(wide.numpy)


def narrowed(array: Array, dtype: DType) -> Array:
    """A float32 array stored as `dtype`, if that rounds no element of it; else as it is."""
    # What overflows becomes infinite, differs from the array, and is not used.
    with np.errstate(over="ignore"):
        stored = array.astype(dtype.numpy)
    return stored if np.array_equal(widened(stored), array, equal_nan=True) else array
