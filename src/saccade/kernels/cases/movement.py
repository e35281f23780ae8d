"""Moves between any storages, concatenations, padding and gathering, in every width of elements."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.ir import DType, Factor, IndexMap
from saccade.kernels.cases.base import (
    BF16,
    F16,
    F32,
    GAPS,
    I32,
    I64,
    LAST,
    ROWS,
    U8,
    Case,
    CaseStorage,
    Operand,
    Result,
    Whole,
)
from saccade.opdefs import BitCast, Concat, Gather, GatherNd, Move, Pad

__all__ = ["CASES"]

# Numbers that every type of elements holds exactly: bytes and bfloat16, too.
_BYTES = Whole(0, 255)


def _move(shape: Sequence[int], order: Sequence[int] | None = None) -> Move:
    factors = tuple(Factor(shape[axis], axis) for axis in order or range(len(shape)))
    return Move(IndexMap(tuple((n,) for n in shape), factors, (1,) * len(shape)))


def _reordered(
    name: str, shape: tuple[int, ...], source: CaseStorage, to: CaseStorage, dtype: DType = F32
) -> Case:
    x = Operand(shape, dtype, source, values=_BYTES)
    return Case(name, _move(shape), (x,), (Result(to, dtype),), 0)


def _transposed(name: str, shape: tuple[int, ...], order: tuple[int, ...]) -> Case:
    return Case(name, _move(shape, order), (Operand(shape),), terms=0)


def _depth_to_space(
    name: str, channels: int, block: int, source: CaseStorage, to: CaseStorage
) -> Case:
    """Channels (row, column, channel) become blocks of pixels."""
    h, w, depth = 6, 21, channels * block * block
    sizes = ((1, 0), (channels, 3), (h, 4), (block, 1), (w, 5), (block, 2))
    factors = tuple(Factor(n, at) for n, at in sizes)
    op = Move(IndexMap(((1,), (block, block, channels), (h,), (w,)), factors, (1, 1, 2, 2)))
    return Case(name, op, (Operand((1, depth, h, w), storage=source),), (Result(to),), 0)


def _shuffled(
    name: str, channels: int, block: int, pixels: tuple[int, int], dtype: DType = F32, *,
    back: bool = False, storage: CaseStorage = LAST,
) -> Case:  # fmt: skip
    """Channels (channel, row, column) become blocks of pixels; or the way back."""
    h, w = pixels
    if back:
        sizes = ((1, 0), (channels, 1), (block, 3), (block, 5), (h, 2), (w, 4))
        op = Move(_mapped(((1,), (channels,), (h, block), (w, block)), sizes, (1, 3, 1, 1)))
        shape = (1, channels, h * block, w * block)
    else:
        sizes = ((1, 0), (channels, 1), (h, 4), (block, 2), (w, 5), (block, 3))
        op = Move(_mapped(((1,), (channels, block, block), (h,), (w,)), sizes, (1, 1, 2, 2)))
        shape = (1, channels * block * block, h, w)
    x = Operand(shape, dtype, storage, values=_BYTES)
    return Case(name, op, (x,), (Result(storage, dtype),), 0)


def _mapped(
    given: tuple[tuple[int, ...], ...], sizes: Sequence[tuple[int, int]], axes: tuple[int, ...]
) -> IndexMap:
    return IndexMap(given, tuple(Factor(n, at) for n, at in sizes), axes)


def _concat(
    name: str, axis: int, sizes: Sequence[int], dtype: DType = F32, storage: CaseStorage = ROWS
) -> Case:
    shapes = [[2, 3, 4, 5] for _ in sizes]
    for shape, n in zip(shapes, sizes, strict=True):
        shape[axis] = n
    operands = tuple(Operand(tuple(s), dtype, storage, values=_BYTES) for s in shapes)
    return Case(name, Concat(axis), operands, (Result(storage, dtype),), 0)


def _pad(
    name: str,
    pads: tuple[tuple[int, int], ...],
    mode: str,
    dtype: DType = F32,
    storage: CaseStorage = ROWS,
) -> Case:
    shape = (2, 17, 3, 5)[-len(pads) :]
    x = Operand(shape, dtype, storage, values=_BYTES)
    return Case(name, Pad(pads, mode, 3.0), (x,), (Result(storage, dtype),), 0)


def _bits(name: str, of: DType, to: DType, stored: CaseStorage, wanted: CaseStorage) -> Case:
    operand = Operand((2, 5, 3, 7), of, storage=stored)
    return Case(name, BitCast(to), (operand,), (Result(wanted),), terms=0)


def _gather(
    name: str, shape: tuple[int, ...], axis: int, count: tuple[int, ...], index: DType = I64
) -> Case:
    # Negative ones count from the end.
    indices = Operand(count, index, values=Whole(-shape[axis], shape[axis] - 1))
    return Case(name, Gather(axis), (Operand(shape), indices), terms=0)


def _gather_nd(name: str, shape: tuple[int, ...], batch: int, where: tuple[int, ...]) -> Case:
    # One range for all indices of a slice: that of the shortest axis.
    least = min(shape[batch : batch + where[-1]])
    indices = Operand(where, values=Whole(-least, least - 1), dtype=I64)
    return Case(name, GatherNd(batch), (Operand(shape), indices), terms=0)


_CHANNELS = Operand((2, 9, 3, 5), storage=GAPS)
_SIDES = ((0, 0), (0, 0), (1, 2), (3, 1))

CASES = (
    _reordered("to-channels-last", (2, 33, 1, 37), ROWS, LAST),
    _reordered("to-planes", (1, 17, 5, 7), LAST, ROWS, BF16),
    _reordered("few-channels", (1, 3, 9, 11), ROWS, GAPS, U8),
    _reordered("from-gaps", (1, 70, 8, 16), GAPS, ROWS, I64),
    _reordered("between-pitches", (1, 5, 3, 50), LAST, GAPS),
    _reordered("nothing", (0, 5, 3, 2), ROWS, LAST),
    _transposed("matrix", (1, 64, 35), (0, 2, 1)),
    _transposed("outer-axes", (5, 18, 35), (1, 0, 2)),
    _transposed("five-axes", (3, 2, 5, 4, 7), (4, 2, 0, 3, 1)),
    _depth_to_space("depth-to-space", 3, 2, ROWS, ROWS),
    _depth_to_space("depth-to-space-last", 20, 3, LAST, LAST),
    _shuffled("shuffled", 64, 2, (3, 8)),
    _shuffled("shuffled-back", 32, 2, (3, 8), back=True),
    _shuffled("shuffled-bytes", 48, 4, (2, 16), U8),
    _shuffled("shuffled-gaps", 64, 2, (3, 8), storage=GAPS),
    _shuffled("shuffled-odd", 96, 3, (5, 7)),
    _concat("concat-images", 0, (16, 1, 7)),
    _concat("concat-channels", 1, (16, 1, 7), F16, GAPS),
    _concat("concat-columns", 3, (16, 1, 7), U8),
    _concat("concat-one", 2, (4,)),
    _concat("concat-nothing", 1, (4, 0, 2), I64),
    _pad("pad-constant", _SIDES, "constant"),
    _pad("pad-reflect", _SIDES, "reflect", storage=GAPS),
    _pad("pad-edge", ((1, 0), (2, 2), (0, 1), (0, 0)), "edge", BF16),
    _pad("pad-wrap", _SIDES, "wrap", U8),
    _pad("pad-none", ((0, 0),) * 4, "constant", I64),
    _bits("bits-to-planes", I32, DType.U32, LAST, ROWS),
    _bits("bits-from-gaps", DType.I8, U8, GAPS, LAST),
    _bits("bits-of-float16", F16, DType.I16, ROWS, GAPS),
    _gather("gather-rows", (300, 64), 0, (1000,)),
    _gather("gather-columns", (9, 37), 1, (3, 4), I32),
    _gather("gather-one", (4, 6, 20), 0, ()),
    _gather("gather-none", (3, 4), 0, (0,)),
    Case("gather-channels", Gather(1), (_CHANNELS, Operand((4,), I64, values=Whole(-9, 8))),
         (Result(GAPS),), 0),
    _gather_nd("gather-nd-rows", (9, 37), 0, (5, 1)),
    _gather_nd("gather-nd-elements", (3, 8, 40), 0, (4, 6, 2)),
    _gather_nd("gather-nd-batches", (2, 3, 8, 5), 2, (2, 3, 4, 1)),
    _gather_nd("gather-nd-none", (3, 4), 0, (0, 2)),
)  # fmt: skip
