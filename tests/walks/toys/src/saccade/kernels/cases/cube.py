"""Third powers: nothing, one element, tails, several chunks, both orders of memory."""

from __future__ import annotations

from saccade.kernels.cases.base import LAST, ROWS, WHOLE, Case, CaseStorage, Operand, Result
from saccade.opdefs import Cube

__all__ = ["CASES"]

_SHAPES = ((), (0, 3), (3, 0), (1,), (17,), (5, 13), (2, 3, 5, 7), (16385,), (3, 16384))


def _case(name: str, shape: tuple[int, ...], storage: CaseStorage = ROWS) -> Case:
    return Case(name, Cube(0.3), (Operand(shape, storage=storage),), (Result(storage),))


CASES = (
    *(_case(f"rows-{'x'.join(map(str, shape))}", shape) for shape in _SHAPES),
    _case("channels-last", (2, 3, 5, 7), LAST),
    Case("whole", Cube(0.5), (Operand((2, 37), values=WHOLE),), terms=0),
)
