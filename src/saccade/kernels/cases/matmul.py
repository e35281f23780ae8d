"""Matrix products: ranks, batches that broadcast, transposes, constants, epilogues."""

from __future__ import annotations

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import BF16, F32, WHOLE, Case, CaseStorage, Operand, Result
from saccade.opdefs import MatMul

__all__ = ["CASES"]

_Shape = tuple[int, ...]


def _case(
    name: str, a: _Shape, b: _Shape, *more: _Shape, known: bool = False, op: MatMul | None = None
) -> Case:
    """A product of small whole numbers, whose sums are exact in any order."""
    op = op or MatMul()
    operands = [Operand(a, values=WHOLE), Operand(b, constant=known, values=WHOLE)]
    operands += [Operand(shape, constant=True, values=WHOLE) for shape in more]
    return Case(name, op, tuple(operands), terms=0)


def _bf16(name: str, kinds: tuple[DType, DType, DType]) -> Case:
    a, b = Operand((5, 33), kinds[0], values=WHOLE), Operand((33, 40), kinds[1], values=WHOLE)
    return Case(name, MatMul(), (a, b), (Result(dtype=kinds[2]),), 33)


# As attention cuts them: four heads of eight side by side in each row.
_HEADS = Operand((2, 4, 9, 8), storage=CaseStorage(strides=(9 * 32, 8, 32, 1)))
_APART = Operand((2, 4, 8, 11), storage=CaseStorage(strides=(2000, 300, 23, 2)))
_ADD = MatMul(epilogue=parse("add($0, $1)"))

CASES = (
    _case("small", (5, 7), (7, 9)),
    _case("vector", (1, 100), (100, 300)),
    _case("tails", (49, 33), (33, 130)),
    _case("constant", (49, 33), (33, 130), known=True),
    _case("batches", (2, 3, 20, 17), (2, 3, 17, 33)),
    _case("shared-matrix", (3, 20, 17), (17, 40), known=True),
    _case("both-broadcast", (2, 1, 5, 6), (1, 3, 6, 7)),
    _case("ranks", (2, 3), (4, 3, 5)),
    _case("no-terms", (3, 4, 0), (3, 0, 5)),
    _case("no-rows", (0, 4), (4, 5)),
    _case("no-columns", (4, 5), (5, 0)),
    _case("transposed-a", (2, 3, 35, 20), (2, 3, 35, 41), op=MatMul(transpose_a=True)),
    _case("transposed-b", (2, 3, 20, 35), (2, 3, 41, 35), op=MatMul(transpose_b=True)),
    _case("transposed-constant", (20, 35), (41, 35), known=True, op=MatMul(transpose_b=True)),
    _case("eights", (2, 37, 136), (136, 72), (72,), known=True, op=_ADD),
    _case(
        "eights-transposed",
        (70, 40),
        (24, 40),
        (70, 24),
        known=True,
        op=MatMul(transpose_b=True, epilogue=_ADD.epilogue),
    ),
    # So far apart, and used so often, that the CPU packs b first.
    _case("rows-far-apart", (100, 24), (24, 600)),
    _case("epilogue-columns", (2, 3, 20, 17), (3, 17, 33), (33,), op=_ADD),
    _case("epilogue-rows", (2, 3, 20, 17), (3, 17, 33), (20, 1), op=_ADD),
    _case("epilogue-batch", (2, 3, 20, 17), (3, 17, 33), (3, 1, 1), op=_ADD),
    _case("epilogue-scalar", (2, 3, 20, 17), (3, 17, 33), (), op=_ADD),
    Case("any-strides", MatMul(), (_HEADS, _APART), terms=8),
    _bf16("bf16", (BF16, BF16, BF16)),
    _bf16("bf16-to-f32", (BF16, BF16, F32)),
    _bf16("bf16-by-f32", (BF16, F32, BF16)),
)
