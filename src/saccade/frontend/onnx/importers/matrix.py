"""MatMul and Gemm."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.moves import reshaped
from saccade.ir import Value
from saccade.ir.expr import IDENTITY, Expr, apply, arg, const
from saccade.opdefs import MatMul

__all__ = ["import_gemm", "import_matmul", "multiplied"]


def import_matmul(call: OnnxNode) -> Sequence[Operand]:
    """ONNX MatMul 1 to 13."""
    return [multiplied(call, call.value(0), call.value(1))]


def multiplied(call: OnnxNode, a: Value, b: Value, op: MatMul | None = None) -> Value:
    """A product in which vectors are matrices of one row or column for as long as it takes.

    Args:
        call: The node.
        a: A vector, or matrices.
        b: The same.
        op: A product of matrices, whose operands are not transposed where they are vectors, and
            whose epilogue takes no operands.
    """
    if a.rank == 0 or b.rank == 0:
        raise call.broken("an operand has no axes")
    op = op or MatMul()
    row, column = a.rank == 1, b.rank == 1
    if row:
        a = reshaped(call, a, (1, a.shape[0]))
    if column:
        b = reshaped(call, b, (b.shape[0], 1))
    y = call.emit(op, a, b)
    shape = list(y.shape)
    if column:
        del shape[-1]
    if row:
        # The column's axis is gone already.
        del shape[-2 if not column else -1]
    return reshaped(call, y, shape)


def import_gemm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Gemm 6 to 13: `alpha · A'B' + beta · C`, the latter two in the epilogue."""
    a, b = call.value(0), call.value(1)
    if a.rank != 2 or b.rank != 2:
        raise call.broken(f"operands of {a.rank} and {b.rank} axes")
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    operands = [a, b]
    epilogue = IDENTITY if alpha == 1 else apply("mul", arg(0), const(alpha))
    # As in BLAS, what is scaled by 0 is not read.
    if call.has(2) and beta != 0:
        operands.append(call.value(2))
        epilogue = apply("add", epilogue, _scaled(beta))
    op = MatMul(
        transpose_a=call.flag("transA"),
        transpose_b=call.flag("transB"),
        epilogue=epilogue,
    )
    return [call.emit(op, *operands)]


def _scaled(beta: float) -> Expr:
    return arg(1) if beta == 1 else apply("mul", arg(1), const(beta))
