"""Images sampled at places: every mode and padding, odd sizes, places far outside and NaN."""

from __future__ import annotations

from saccade.ir import DType
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    GAPS,
    LAST,
    ROWS,
    Case,
    CaseStorage,
    Normal,
    Operand,
    Result,
)
from saccade.opdefs import GridSample, WeightedSamples

__all__ = ["CASES"]

_PLACES = Normal(0.8)


def _case(
    name: str,
    op: GridSample,
    x: tuple[int, ...] = (2, 5, 7, 9),
    grid: tuple[int, ...] = (4, 11),
    *,
    storage: CaseStorage = ROWS,
    places: Normal = _PLACES,
    dtype: DType = F32,
) -> Case:
    operands = (
        Operand(x, dtype, storage=storage),
        Operand((x[0], *grid, len(grid)), values=places),
    )
    return Case(name, op, operands, (Result(storage, dtype),), terms=400)


def _weighted(
    name: str,
    heads: int,
    each: int,
    points: tuple[int, ...],
    *,
    n: int = 2,
    queries: int = 13,
    aligned: bool = False,
    storage: CaseStorage = LAST,
    places: Normal = _PLACES,
    strides: tuple[int, ...] | None = None,
) -> Case:
    """`each` channels of a head, so many points in each image; `strides` are the grids'."""
    sizes = ((7, 9), (4, 5), (3, 2), (1, 1))[: len(points)]
    operands = (
        *(Operand((n, heads * each, *size), storage=storage) for size in sizes),
        *(Operand((n, queries, heads, p, 2), values=places, storage=CaseStorage(strides=strides))
          for p in points),
        Operand((n, queries, heads, sum(points))),
    )  # fmt: skip
    op = WeightedSamples(len(points), heads, aligned)
    return Case(name, op, operands, terms=400)


# What is one part of all images' places: [images, queries, heads, levels, points, 2].
_AMONG = (13 * 2 * 3 * 4 * 2, 2 * 3 * 4 * 2, 3 * 4 * 2, 2, 1)
_WEIGHTED = (
    _weighted("weighted", 2, 32, (4, 4, 4), strides=_AMONG),
    _weighted("weighted-points", 3, 8, (2, 5, 1)),
    _weighted("weighted-odd", 2, 19, (3, 2), aligned=True, places=Normal(1.5)),
    _weighted("weighted-gaps", 2, 16, (4,), storage=GAPS),
    _weighted("weighted-planes", 1, 5, (3,), storage=ROWS, n=1),
    _weighted("weighted-one-channel", 2, 1, (2, 2, 1, 1), n=1),
    _weighted("weighted-wide", 1, 128, (4, 2), n=1, queries=5),
    _weighted("weighted-far-away", 2, 8, (3, 3), places=Normal(9.0)),
    _weighted("weighted-no-query", 2, 8, (2, 2), queries=0),
)

CASES = (
    *_WEIGHTED,
    *(
        _case(f"{mode}-{padding}{'-aligned' * aligned}", GridSample(mode, padding, aligned))
        for mode in ("linear", "cubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (False, True)
    ),
    _case("channels-last", GridSample(), (2, 37, 7, 9), storage=LAST),
    _case("gaps", GridSample("cubic"), (1, 19, 7, 9), storage=GAPS),
    _case("nearest", GridSample("nearest"), (1, 19, 7, 9), storage=LAST),
    _case("nearest-border", GridSample("nearest", "border", True)),
    _case("one-pixel", GridSample("linear", "reflection", True), (1, 3, 1, 1)),
    _case("far-away", GridSample("linear", "reflection"), places=Normal(9.0)),
    _case("no-places", GridSample(), grid=(0, 3)),
    _case("volume", GridSample("linear", "border"), (1, 3, 4, 5, 6), (2, 3, 4)),
    _case("line", GridSample(), (2, 3, 17), (9,)),
    _case("f16", GridSample(), (1, 20, 7, 9), storage=LAST, dtype=F16),
    _case("bf16", GridSample("linear", "border"), (1, 20, 7, 9), storage=LAST, dtype=BF16),
)
