"""Cases of operators that several devices add, as `saccade.kernels.cases` has those of `opdefs`."""

from __future__ import annotations

from math import inf

from saccade.backends.fusions.attention import Attention
from saccade.backends.fusions.gathered_pointwise import GatheredPointwise
from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.cases.base import (
    F32,
    I32,
    I64,
    LAST,
    ROWS,
    WHOLE,
    Case,
    CaseStorage,
    Given,
    Normal,
    Operand,
    Result,
    Whole,
)

__all__ = ["ATTENTIONS", "CHAINS", "COUNTED", "SLICES"]

_Shape = tuple[int, ...]


def _case(name: str, *shapes: _Shape, terms: int = 32, op: Attention | None = None) -> Case:
    operands = tuple(Operand(shape) for shape in shapes)
    return Case(name, op or Attention(0.25), operands, terms=terms)


_KEYS_APART = Attention(0.3, transpose_k=True)
_CURVED = Attention(0.25, epilogue=parse("hardswish($0)"))
_PER_TOKEN = 3 * 2 * 16  # q, k and v of two heads of 16, for each token
_TOKENS = CaseStorage(strides=(_PER_TOKEN, 16, 3 * _PER_TOKEN, 1))
_KEYS = CaseStorage(strides=(_PER_TOKEN, 16, 1, 3 * _PER_TOKEN))
_HEADS = (
    Operand((3, 2, 19, 16), storage=_TOKENS),
    Operand((3, 2, 16, 19), storage=_KEYS),
    Operand((3, 2, 19, 16), storage=_TOKENS),
)
_IN_WINDOWS = (3 * 49 * _PER_TOKEN, 49 * _PER_TOKEN, 16)
_PIXELS = CaseStorage(strides=(*_IN_WINDOWS, _PER_TOKEN, 1))
_WINDOWS = (
    Operand((2, 3, 2, 49, 16), storage=_PIXELS),
    Operand((2, 3, 2, 16, 49), storage=CaseStorage(strides=(*_IN_WINDOWS, 1, _PER_TOKEN))),
    Operand((2, 3, 2, 49, 16), storage=_PIXELS),
    Operand((1, 3, 2, 49, 49)),
)
"""Of images, windows, heads; the mask is the same in every image."""
_HIDDEN = Given((0.0, -inf, -inf, -inf, 0.0, 1.0, -inf, 2.0, -inf, -inf, -inf, -inf))
"""The second row hides some keys, the third one all of them."""

ATTENTIONS: tuple[Case, ...] = (
    _case("plain", (5, 7), (11, 7), (11, 7)),
    _case("heads", (2, 3, 37, 24), (2, 3, 41, 24), (2, 3, 41, 24)),
    _case("keys-apart", (3, 37, 40), (3, 40, 70), (3, 70, 40), op=_KEYS_APART),
    _case("other-width", (2, 20, 8), (2, 33, 8), (2, 33, 17)),
    _case("wide", (9, 256), (20, 256), (20, 256), op=Attention(1 / 16)),
    _case("one-key", (4, 5, 16), (4, 1, 16), (4, 1, 16)),
    _case("one-row", (2, 1, 64), (2, 300, 64), (2, 300, 64)),
    _case("broadcast", (2, 1, 20, 8), (1, 3, 21, 8), (3, 21, 8)),
    _case("no-row", (2, 0, 8), (2, 3, 8), (2, 3, 8)),
    _case("mask", (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 33, 8), (20, 33)),
    _case("mask-of-keys", (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 33, 8), (2, 1, 1, 33)),
    _case("mask-of-rows", (2, 3, 20, 8), (2, 3, 33, 8), (2, 3, 33, 8), (3, 20, 1)),
    _case("mask-of-windows", *(((2, 4, 3, 9, 8),) * 3), (4, 3, 9, 9)),
    _case("mask-of-windows-alone", *(((3, 4, 2, 9, 8),) * 3), (4, 1, 9, 1)),
    _case("many-keys", (2, 9, 8), (2, 1100, 8), (2, 1100, 20), terms=1100),
    _case("many-keys-masked", (5, 8), (1031, 8), (1031, 8), (5, 1031), terms=1031),
    Case("windows", Attention(0.25, True, (0, 1, 3, 2, 4)), _WINDOWS, terms=32),
    Case("views", Attention(0.25, transpose_k=True), _HEADS, terms=32),
    Case("merged-heads", Attention(0.25, True, (2, 0, 1, 3)), _HEADS, terms=32),
    Case(
        "strides-apart", Attention(0.25, order=(1, 0)),
        tuple(Operand((9, 12), storage=CaseStorage(strides=(61, 3))) for _ in range(3)),
        (Result(CaseStorage(strides=(2, 40))),), 32,
    ),
    Case(
        "hidden", Attention(1.0),
        (Operand((3, 4)), Operand((4, 4)), Operand((4, 4)), Operand((3, 4), values=_HIDDEN)),
        terms=32,
    ),
    Case(
        "hidden-rows", Attention(1.0, hidden=True),
        (Operand((3, 4)), Operand((4, 4)), Operand((4, 4)), Operand((3, 4), values=_HIDDEN)),
        terms=32,
    ),
    _case("epilogue", (2, 37, 24), (2, 41, 24), (2, 41, 24), op=_CURVED),
    Case(
        "large-scores", Attention(1.0),
        (*(Operand((20, 16), values=Normal(8.0)) for _ in range(2)), Operand((20, 16))), terms=4096,
    ),
)  # fmt: skip

_BETWEEN = parse("add(mul($0, sub(1.0, $2)), mul($1, $2))")


def _gathered(
    name: str, op: GatheredPointwise, *operands: Operand, indices: tuple[Operand, ...],
    numbers: tuple[int, ...] = (), storage: CaseStorage = ROWS, terms: int = 0,
) -> Case:  # fmt: skip
    """Arithmetic on slices, of all of the result: what lies behind a number may be anything."""
    told = (Operand((1,), I64, values=Given((number,))) for number in numbers)
    return Case(name, op, (*operands, *indices, *told), (Result(storage),), terms)


def _along(count: int, size: int, dtype: DType = I64) -> Operand:
    """Indices, some counted from the end."""
    return Operand((count,), dtype, values=Whole(-size, size - 1))


_ROW, _IMAGE = Operand((1, 3, 7, 37)), Operand((2, 24, 5, 9), storage=LAST)
CHAINS = (
    _gathered(
        "gathered-rows", GatheredPointwise(_BETWEEN, F32, ((2, 0), (2, 1), (-1, -1))),
        _ROW, _ROW, Operand((50, 1)), indices=(_along(50, 7), _along(50, 7)), terms=2,
    ),
    _gathered(
        "gathered-columns", GatheredPointwise(_BETWEEN, F32, ((3, 0), (3, 1), (-1, -1)), (2, 3)),
        _ROW, _ROW, Operand((90,)), indices=(_along(90, 37), _along(90, 37, I32)),
        numbers=(7, 200), terms=2,
    ),
    _gathered(
        "gathered-pixels", GatheredPointwise(parse("mul($0, $1)"), F32, ((3, 0), (-1, -1)), (0,)),
        _IMAGE, Operand((24, 1, 1)), indices=(_along(30, 9),), numbers=(2,), storage=LAST,
    ),
    _gathered(
        "gathered-to-rows", GatheredPointwise(parse("abs($0)"), F32, ((2, 0),), (3, 1)),
        _IMAGE, indices=(_along(70, 5),), numbers=(9, 24),
    ),
    _gathered(
        "gathered-many", GatheredPointwise(parse("neg($0)"), F32, ((0, 0),), (1,)),
        Operand((3, 50_000), values=WHOLE), indices=(_along(41, 3),), numbers=(50_000,),
    ),
)  # fmt: skip
"""Arithmetic on slices, some of as many elements as there are."""

SLICES = (
    _gathered(
        "gathered-integers", GatheredPointwise(parse("$0"), I64, ((1, 0),)),
        Operand((5, 33), I64, values=WHOLE), indices=(_along(77, 33),),
    ),
    _gathered(
        "counted-slices", GatheredPointwise(parse("$0"), F32, ((1, 0),), (1, 2)),
        Operand((3, 7, 40)), indices=(_along(50, 7, I32),), numbers=(50, 90),
    ),
    _gathered(
        "counted-columns", GatheredPointwise(parse("$0"), F32, ((2, 0),), (0, 2)),
        Operand((3, 7, 40)), indices=(_along(90, 40),), numbers=(3, 90),
    ),
)  # fmt: skip
"""Slices alone."""

COUNTED = (
    _gathered(
        "counted-chain", GatheredPointwise(parse("add($0, $1)"), F32, ((-1, -1),) * 2, (0, 2)),
        Operand((6, 19, 40)), Operand((6, 1, 40)), indices=(), numbers=(6, 41),
    ),
    _gathered(
        "counted-images", GatheredPointwise(parse("relu($0)"), F32, ((-1, -1),), (1, 3)),
        _IMAGE, indices=(), numbers=(24, 9),
    ),
)  # fmt: skip
"""Arithmetic on whole operands."""
