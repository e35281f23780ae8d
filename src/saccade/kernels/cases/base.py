"""What a case is: one call of an operator, as plain data that names no device.

A family's list is what every device's kernels of that family are held against
(`saccade.testing.cases` makes the operands and compares), so odd shapes are the rule: primes, one
channel, one pixel, nothing at all, borders that are not alike, gaps between pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from saccade.ir import DType, Op

__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "GAPS",
    "I32",
    "I64",
    "LAST",
    "NORMAL",
    "ROWS",
    "SPECIAL",
    "U8",
    "WHOLE",
    "Case",
    "CaseStorage",
    "CornerBoxes",
    "Given",
    "Normal",
    "Operand",
    "Result",
    "ResultOf",
    "Values",
    "Whole",
]

F16, BF16, F32, F64 = DType.F16, DType.BF16, DType.F32, DType.F64
U8, I32, I64 = DType.U8, DType.I32, DType.I64


@dataclass(frozen=True, slots=True)
class CaseStorage:
    """How a value lies in memory; row-major without gaps unless said otherwise.

    Attributes:
        channels_last: Of [N, C, H, W] the channels of a pixel are neighbours.
        gap: Elements between the last channel of a pixel and the next pixel.
        strides: Elements between neighbours along each axis, for any other storage.
        aligned: `View.aligned`, of 16-bit elements.
    """

    channels_last: bool = False
    gap: int = 0
    strides: tuple[int, ...] | None = None
    aligned: bool = False


ROWS = CaseStorage()
LAST = CaseStorage(channels_last=True)
# No whole vector: even behind whole vectors of channels the next pixel begins unaligned.
GAPS = CaseStorage(channels_last=True, gap=3)


@dataclass(frozen=True, slots=True)
class Normal:
    """Standard normal numbers times `scale` plus `offset`.

    Attributes:
        scale: Their standard deviation.
        offset: Their mean.
        magnitude: Whether only their magnitudes are taken.
        special: Whether some are NaN, infinite or zero.
    """

    scale: float = 1.0
    offset: float = 0.0
    magnitude: bool = False
    special: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """Random whole numbers from `low` to `high`, both possible, times `step`."""

    low: int = -4
    high: int = 4
    step: float = 1.0


@dataclass(frozen=True, slots=True)
class CornerBoxes:
    """Boxes [..., 4] of whole corners (x1, y1, x2, y2), the second one never before the first.

    Attributes:
        room: First corners are below it along either axis.
        side: Edges are shorter than it.
    """

    room: int = 6
    side: int = 6


@dataclass(frozen=True, slots=True)
class Given:
    """These numbers, in row-major order."""

    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ResultOf:
    """What another operator gives for some of the operands before.

    Attributes:
        op: The operator.
        operands: Their numbers.
        index: Which of its results.
    """

    op: Op
    operands: tuple[int, ...]
    index: int = 0


Values = Normal | Whole | CornerBoxes | Given | ResultOf
NORMAL, SPECIAL, WHOLE = Normal(), Normal(special=True), Whole()


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a call.

    Attributes:
        shape: Dims in ONNX's order.
        dtype: Element type that it is stored in.
        storage: Where its elements lie.
        constant: Whether its contents are known before any run.
        values: What they are.
    """

    shape: tuple[int, ...]
    dtype: DType = F32
    storage: CaseStorage = ROWS
    constant: bool = False
    values: Values = NORMAL


@dataclass(frozen=True, slots=True)
class Result:
    """How a result is stored.

    Attributes:
        storage: Where its elements go.
        dtype: What it is rounded to; None for the type that it is computed in.
    """

    storage: CaseStorage = ROWS
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One call.

    Attributes:
        name: For people; no two of a family are alike.
        op: The operator; its shape rule gives the results' shapes.
        operands: Its operands.
        results: How its results are stored; those beyond the last one are row-major.
        terms: How many rounded terms an element of the results sums at most, for the tolerance; 0
            where every bit is settled, so that results must equal the reference in the operands'
            own types.
        roundings: How often an element is rounded to the operands' type, one time after the other:
            more than once where products are made of what was computed before.
    """

    name: str
    op: Op
    operands: tuple[Operand, ...]
    results: tuple[Result, ...] = field(default=())
    terms: int = 1
    roundings: int = 1
