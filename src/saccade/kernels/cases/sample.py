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
from saccade.opdefs import GridSample

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


CASES = (
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
