"""MatMul and Gemm; determinants."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.moves import move, reshaped, slice_map
from saccade.frontend.onnx.open_axes import close
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Value
from saccade.ir.expr import IDENTITY, Expr, apply, arg, const
from saccade.opdefs import MatMul

__all__ = ["import_det", "import_gemm", "import_matmul", "multiplied"]


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
    y = call.emit(op, *_closed(call, op, a, b))
    shape = list(y.shape)
    if column:
        del shape[-1]
    if row:
        # The column's axis is gone already.
        del shape[-2 if not column else -1]
    return reshaped(call, y, shape)


def _closed(call: OnnxNode, op: MatMul, a: Value, b: Value) -> tuple[Value, Value]:
    """Operands whose summed axis ends in zeros where its size depends on data."""
    summed = a.rank - (2 if op.transpose_a else 1), b.rank - (1 if op.transpose_b else 2)
    return close(call, a, summed[0], 0), close(call, b, summed[1], 0)


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
    return [call.emit(op, *_closed(call, op, a, b), *operands[2:])]


def _scaled(beta: float) -> Expr:
    return arg(1) if beta == 1 else apply("mul", arg(1), const(beta))


def import_det(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Det 11 and 22, of matrices up to 4 x 4: sums of products of their elements."""
    x = call.value(0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise call.broken(f"the determinant of {list(x.shape)}")
    size = x.shape[-1]
    if not isinstance(size, int) or not 1 <= size <= 4:
        raise Refusal(f"determinants of {size} x {size} matrices")
    last, batch = x.rank - 1, x.shape[:-2]
    elements = []
    for row in range(size):
        for column in range(size):
            one = slice_map(x.shape, {last - 1: (row, 1, 1), last: (column, 1, 1)})
            elements.append(reshaped(call, move(call, x, one), batch))

    def make(*parts: Expr) -> Expr:
        rows = [parts[start : start + size] for start in range(0, size * size, size)]
        return _determinant(rows)

    return [pointwise(call, make, elements)]


def _determinant(rows: Sequence[Sequence[Expr]]) -> Expr:
    """Along the first row, the signs alternating."""
    first, *rest = rows
    if not rest:
        return first[0]
    terms = []
    for column, factor in enumerate(first):
        minor = [[*row[:column], *row[column + 1 :]] for row in rest]
        terms.append(apply("mul", factor, _determinant(minor)))
    total = terms[0]
    for column, term in enumerate(terms[1:], start=1):
        total = apply("sub" if column % 2 else "add", total, term)
    return total
