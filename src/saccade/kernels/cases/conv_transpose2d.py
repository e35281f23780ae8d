"""Transposed convolutions: strides with gaps and without, whatever is cut off or added."""

from __future__ import annotations

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    BF16,
    F32,
    GAPS,
    LAST,
    ROWS,
    WHOLE,
    Case,
    CaseStorage,
    Operand,
    Result,
)
from saccade.opdefs import ConvTranspose2d

__all__ = ["CASES"]

_SAME = (1, 1, 1, 1)


def _case(
    name: str,
    x: tuple[int, int, int, int],
    w: tuple[int, int, int, int],
    op: ConvTranspose2d,
    *more: Operand,
    storage: CaseStorage = LAST,
    computed: CaseStorage | None = None,
) -> Case:
    """With weights that are constants, or computed and stored as `computed`."""
    weights = Operand(w, storage=computed or ROWS, constant=computed is None)
    operands = (Operand(x, storage=storage), weights, *more)
    return Case(name, op, operands, (Result(storage),), w[0] * w[2] * w[3])


def _bf16(name: str, kind: DType, result: DType) -> Case:
    operands = (
        Operand((2, 9, 5, 4), kind, GAPS, values=WHOLE),
        Operand((9, 20, 4, 4), constant=True, values=WHOLE),
    )
    # At most 9 channels of 4 x 4 taps are summed.
    return Case(name, ConvTranspose2d((2, 2), _SAME), operands, (Result(GAPS, result),), 144)


_PLAIN, _DOUBLE = ConvTranspose2d(), ConvTranspose2d((2, 2), _SAME)
_FUSED = ConvTranspose2d((2, 2), epilogue=parse("relu(add(add($0, $1), $2))"))

CASES = (
    _case("plain", (1, 5, 4, 6), (5, 17, 3, 3), _PLAIN),
    _case("row-major", (1, 5, 4, 6), (5, 17, 3, 3), _PLAIN, storage=ROWS),
    _case("double", (2, 9, 5, 4), (9, 20, 4, 4), _DOUBLE, storage=GAPS),
    _case("output-padding", (1, 8, 5, 7), (8, 33, 3, 3), ConvTranspose2d((2, 2), _SAME, (1, 1))),
    _case("gaps", (1, 3, 4, 4), (3, 16, 2, 1), ConvTranspose2d((3, 3))),
    _case("dilated", (1, 4, 5, 5), (4, 7, 3, 2), ConvTranspose2d((2, 3), dilation=(2, 2))),
    _case("common-factor", (1, 4, 5, 5), (4, 7, 3, 3), ConvTranspose2d((4, 2), dilation=(2, 4))),
    _case("asymmetric", (1, 4, 6, 5), (4, 8, 5, 3), ConvTranspose2d((2, 1), (3, 0, 1, 2))),
    _case("grouped", (1, 12, 4, 5), (12, 5, 3, 3), ConvTranspose2d((2, 2), groups=3)),
    _case("all-cut", (1, 3, 2, 2), (3, 4, 2, 2), ConvTranspose2d((2, 2), (2, 1, 2, 1))),
    _case("one-pixel", (1, 7, 1, 1), (7, 1, 4, 4), ConvTranspose2d((2, 2))),
    _case("no-images", (0, 3, 4, 4), (3, 5, 3, 3), ConvTranspose2d((2, 2))),
    _case(
        "epilogue", (2, 6, 4, 5), (6, 19, 2, 2), _FUSED,
        Operand((1, 19, 1, 1), constant=True), Operand((2, 19, 8, 10), storage=GAPS),
    ),
    _case("computed", (2, 9, 5, 4), (9, 20, 4, 4), _DOUBLE, computed=ROWS),
    _case("computed-last", (1, 4, 5, 5), (4, 7, 3, 2), ConvTranspose2d((4, 4)), computed=LAST),
    _case(
        "computed-grouped", (1, 12, 4, 5), (12, 5, 3, 3), ConvTranspose2d((2, 2), groups=3),
        computed=LAST,
    ),
    _bf16("bf16", BF16, BF16),
    _bf16("bf16-to-f32", BF16, F32),
)  # fmt: skip
