"""Element types of what nodes give, as ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saccade.errors import ModelError
from saccade.frontend.onnx.refusal import MisfitError, Refusal
from saccade.ir import BodyOp, DType, Op, TensorType, storage
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Pointwise

__all__ = ["is_cast", "refuse_narrow", "result_types"]


def is_cast(op: Op, operands: Sequence[TensorType]) -> bool:
    """Whether an operator only casts between float16 and float32."""
    if not isinstance(op, Pointwise) or op.expr != IDENTITY or len(operands) != 1:
        return False
    return {op.dtype, operands[0].dtype} == {DType.F16, DType.F32}


def refuse_narrow(op: Op, operands: Sequence[TensorType]) -> None:
    """Raise for arithmetic on elements of few bits, which ONNX has none of."""
    for t in operands:
        if t.dtype.is_narrow and not (op.moves or op.bitwise or isinstance(op, Pointwise)):
            raise Refusal(f"works on elements of type {t.dtype.value}")


def result_types(op: Op, operands: Sequence[TensorType], name: str) -> tuple[TensorType, ...]:
    """Types of the results: in float16 where an operand is, unless the operator says its type.

    Args:
        op: The operator.
        operands: Types of its operands.
        name: Of the node.

    Raises:
        MisfitError: If the operands do not fit.
    """
    try:
        types = storage.infer(op, operands)
    except ModelError as error:
        raise MisfitError(f"node {name!r}: {error}") from None
    # A `Pointwise` has its own dtype, and a Cast to float32 must not come back as float16; what
    # bodies give was settled in them.
    if isinstance(op, Pointwise | BodyOp) or op.bitwise:
        return types
    if all(t.dtype is not DType.F16 for t in operands):
        return types
    return tuple(replace(t, dtype=DType.F16) if t.dtype is DType.F32 else t for t in types)
