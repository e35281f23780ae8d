"""Operators over values that are stored in bfloat16.

bfloat16 is a way to store float32: to every operator such an operand is the float32 that it widens
to, and a float32 result may be kept rounded to bfloat16. So any mix of the two fits every operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array, Op, TensorType

__all__ = ["infer", "reference", "widened"]


def infer(op: Op, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """What the operator gives, in the types that it computes in.

    Raises:
        ModelError: If the operands do not fit the operator.
    """
    return op.infer([TensorType(t.dtype.arithmetic, t.shape) for t in operands])


def reference(op: Op, operands: Sequence[Array]) -> tuple[Array, ...]:
    """The operator's NumPy reference; results are not yet rounded to their storage."""
    return op.reference(*map(widened, operands))


def widened(array: Array) -> Array:
    """The array in the type that operators compute in."""
    # By name: NumPy knows bfloat16 only once `ml_dtypes` is imported.
    return array.astype(np.float32) if array.dtype.name == DType.BF16.value else array
