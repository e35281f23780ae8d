"""Operators over values that are stored in float16 or bfloat16.

Both are ways to store float32: to every operator of a graph such an operand is the float32 that it
widens to, and a float32 result may be kept rounded to either. So any mix of them fits every
operator, and a result that ONNX has in float16 is computed in float32 and rounded once. A
`Pointwise` whose `dtype` is float16 (a Cast to it, for one) rounds by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType

__all__ = ["holds", "infer", "narrowed", "reference", "widened"]

_STORED = frozenset({DType.F16.value, DType.BF16.value})


def infer(op: Op, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """What the operator gives, in the types that it computes in.

    Raises:
        ModelError: If the operands do not fit the operator.
    """
    return op.infer([TensorType(t.dtype.arithmetic, t.shape) for t in operands])


def holds(stored: DType, given: DType) -> bool:
    """Whether a value of type `stored` may be the result of an operator that gives `given`."""
    # Not the reverse: what an operator itself rounds to 16 bits may not be kept as float32.
    return stored is given or stored.arithmetic is given


def reference(op: Op, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The operator's NumPy reference; results are not yet rounded to their storage."""
    return op.reference(*map(widened, operands))


def widened(array: Array) -> Array:
    """The array in the type that operators compute in."""
    # By name: NumPy knows bfloat16 only once `ml_dtypes` is imported.
    return array.astype(np.float32) if array.dtype.name in _STORED else array


def narrowed(array: Array, dtype: DType) -> Array:
    """A float32 array stored as `dtype`, if that rounds no element of it; else as it is."""
    # What overflows becomes infinite, differs from the array, and is not used.
    with np.errstate(over="ignore"):
        stored = array.astype(dtype.numpy)
    return stored if np.array_equal(widened(stored), array, equal_nan=True) else array
