"""Deformable convolutions and their gradients: groups of either kind, masks, storage."""

from __future__ import annotations

from dataclasses import replace

from saccade.ir import DType
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    F64,
    GAPS,
    LAST,
    ROWS,
    Case,
    CaseStorage,
    Operand,
    Result,
    Whole,
)
from saccade.opdefs import DeformConv, DeformConvGradient

__all__ = ["CASES"]

_SHAPES = (
    # name, x, channels of the result, window, operator
    ("same", (2, 20, 9, 11), 24, (3, 3), DeformConv(padding=(1, 1, 1, 1))),
    ("borders", (1, 33, 7, 5), 5, (3, 2), DeformConv((2, 1), (1, 0, 1, 0), (1, 2))),
    ("pointwise", (1, 24, 6, 7), 36, (1, 1), DeformConv(groups=2, offset_groups=3)),
    ("offsets-by-channel", (2, 6, 5, 7), 4, (2, 3),
     DeformConv(padding=(2, 1, 0, 3), groups=2, offset_groups=6)),
    ("many-filters", (1, 8, 4, 5), 280, (2, 2), DeformConv(groups=2)),
    ("few", (1, 3, 2, 3), 1, (3, 3), DeformConv(padding=(1, 1, 1, 1))),
    # Channels in blocks of 64.
    ("blocks", (2, 192, 9, 11), 72, (3, 3), DeformConv(padding=(1, 1, 1, 1))),
    ("blocks-by-offsets", (1, 256, 8, 19), 300, (2, 3),
     DeformConv((1, 2), (1, 0, 1, 2), (2, 1), offset_groups=2)),
)  # fmt: skip
_OFFSETS = Whole(-12, 12, 0.25)  # across borders, to whole pixels and between them
_MASK = Whole(0, 4, 0.5)
_ROUNDINGS = 3  # of samples, of what gradients sum over filters, of results


def _size(op: DeformConv, x: tuple[int, ...], window: tuple[int, int]) -> tuple[int, int]:
    rows, columns = (
        (x[2 + axis] + op.padding[axis] + op.padding[axis + 2] - (taps - 1) * op.dilation[axis] - 1)
        // op.stride[axis]
        + 1
        for axis, taps in enumerate(window)
    )
    return rows, columns


def _case(number: int, storage: CaseStorage = ROWS, dtype: DType = F32, mask: bool = True) -> Case:
    name, shape, outputs, window, plain = _SHAPES[number]
    op = replace(plain, bias=True, mask=mask)
    taps = window[0] * window[1]
    # A mask has one channel for each group and tap, offsets two: row and column.
    size, count = _size(op, shape, window), op.offset_groups * taps
    depth = shape[1] // op.groups
    operands = (
        Operand(shape, dtype, storage),
        Operand((outputs, depth, *window), dtype),
        Operand((shape[0], 2 * count, *size), dtype, values=_OFFSETS),
        Operand((outputs,), dtype),
        *((Operand((shape[0], count, *size), dtype, values=_MASK),) if mask else ()),
    )
    # Each sample is a sum of four pixels.
    results = (Result(storage, BF16 if dtype is BF16 else None),)
    return Case(name, op, operands, results, 4 * depth * taps, _ROUNDINGS)


def _gradient(case: Case, *wanted: str) -> Case:
    """The gradients of a case: of everything, or of what is named."""
    op = case.op
    assert isinstance(op, DeformConv)
    names = wanted or tuple(n for n in DeformConvGradient.WANTED if n != "mask" or op.mask)
    gradient = DeformConvGradient(
        op.stride, op.padding, op.dilation, op.groups, op.offset_groups, op.mask, names
    )
    x, weight, offset, _, *mask = case.operands
    pixels = offset.shape[2:]
    grad = Operand((x.shape[0], weight.shape[0], *pixels), x.dtype, x.storage)
    terms = x.shape[0] * pixels[0] * pixels[1] + case.terms * weight.shape[0]
    return Case(
        "-".join((case.name, "gradient", *wanted)), gradient,
        (grad, x, weight, offset, *mask), (), terms, _ROUNDINGS,
    )  # fmt: skip


def _renamed(case: Case, name: str) -> Case:
    return replace(case, name=f"{case.name}-{name}")


_PLANAR = tuple(_case(number) for number in range(len(_SHAPES)))
_MORE = (
    _renamed(_case(0, GAPS), "last"),
    _renamed(_case(2, LAST, mask=False), "unmasked"),
    _renamed(_case(5, dtype=F16), "f16"),
    _renamed(_case(5, dtype=F64), "f64"),
    _renamed(_case(0, dtype=BF16), "bf16"),
    _renamed(_case(6, LAST, mask=False), "last"),
)

CASES = (
    *_PLANAR,
    *_MORE,
    *map(_gradient, (*_PLANAR[:4], _PLANAR[5], *_MORE[:2], _MORE[3])),
    _gradient(_PLANAR[0], "x"),
    _gradient(_PLANAR[1], "weight", "bias"),
    _gradient(_PLANAR[5], "offset", "mask"),
)
