"""The gates of squeeze-and-excite blocks: images of any size, one channel, no image."""

from __future__ import annotations

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import BF16, F32, GAPS, LAST, Case, Operand, Result, Storage
from saccade.opdefs import Conv2d, Excite

__all__ = ["CASES"]


def _case(
    name: str,
    x: tuple[int, int, int, int],
    hidden: int,
    gates: int,
    outer: str = "relu(add($0, $1))",
    kinds: tuple[DType, DType] = (F32, F32),
    storage: Storage = GAPS,
) -> Case:
    inner = Conv2d(epilogue=parse("relu(add($0, $1))"))
    op = Excite(x[2] * x[3], inner, Conv2d(epilogue=parse(outer)), 1)
    shapes = ((hidden, x[1], 1, 1), (gates, hidden, 1, 1), (1, hidden, 1, 1), (1, gates, 1, 1))
    constants = (Operand(shape, constant=True) for shape in shapes)
    # Weights may be rounded like the gates are: a sum of halves has as many such errors.
    terms = x[1] * hidden * (1 if BF16 not in kinds else 4)
    result = Result(dtype=kinds[1])
    return Case(name, op, (Operand(x, kinds[0], storage), *constants), (result,), terms)


CASES = (
    _case("one-column", (1, 40, 5, 1), 7, 40),
    _case("two-images", (2, 65, 4, 3), 20, 33),
    _case("one-channel", (1, 1, 1, 1), 1, 1),
    _case("more-hidden-than-seen", (1, 96, 3, 1), 300, 150),
    _case("no-image", (0, 16, 2, 2), 4, 16),
    _case("tails", (2, 272, 6, 2), 33, 271),
    _case("dense", (1, 48, 7, 7), 12, 48, "sigmoid(add($0, $1))", storage=LAST),
    _case("hard-gates", (1, 24, 9, 5), 8, 24, "hard_sigmoid(add($0, $1), 0.2, 0.5)"),
    _case("bf16-image", (1, 40, 2, 1), 7, 20, kinds=(BF16, F32)),
)
