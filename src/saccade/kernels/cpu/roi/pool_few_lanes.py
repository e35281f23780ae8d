"""A box's bins for vectors whose lanes are the bins of a row: columns in lanes, rows in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, literal
from saccade.kernels.cpu.roi.bin_ranges import BoxSpan
from saccade.kernels.cpu.roi.box_operands import put

__all__ = ["BinLanes", "spread"]


@dataclass(frozen=True, slots=True)
class BinLanes:
    """The ranges of a box's bins.

    Attributes:
        low, high: Of each lane's bin, the first column and the last one + 1; int32.
        some: Which lanes' bins have columns.
        left, right: Of all bins.
        widest, tallest: Most columns and most rows of a bin.
        top, bottom: Rows of all bins.
        table: Of each row of bins the first row, counted from `top`, and how many.
    """

    low: Vec
    high: Vec
    some: Mask
    left: Int
    right: Int
    widest: Int
    tallest: Int
    top: Int
    bottom: Int
    table: Ptr

    @classmethod
    def of(cls, down: BoxSpan, along: BoxSpan, each: int, lanes: int, table: Ptr) -> BinLanes:
        """Those of a box.

        Args:
            down: Its rows.
            along: Its columns.
            each: Lanes after which bins begin anew: of another channel.
            lanes: How many there are.
            table: int32 scratch, two for each row of bins.
        """
        k, b = down.k, down.k.b
        low, high = along.pairs([lane % each for lane in range(lanes)])
        width = Vec(b, b.sub(high.value, low.value))
        some = Mask(b, b.icmp_signed(">", width.value, literal(width.type, 0)))
        top, _ = down.pair(k.int(0))
        tallest, bottom = k.var(0), k.var(top)
        with k.range(0, down.bins) as p:
            first, last = down.pair(p)
            put(table, first - top, p * 2)
            put(table, last - first, p * 2 + 1)
            tallest.set(k.maximum_int(tallest.get(), last - first))
            bottom.set(last)
        # Bins ascend, and lanes beyond the last bin repeat it.
        left, right = _lane(k, low, 0), _lane(k, high, each - 1)
        # Lanes of other channels have the same bins.
        widest = _most(k, k.split(width, each)[0])
        return cls(low, high, some, left, right, widest, tallest.get(), top, bottom.get(), table)

    def rows(self, p: Int) -> tuple[Int, Int]:
        """Of a row of bins, the first row of the box, and how many."""
        return self.table.load_int(p * 2), self.table.load_int(p * 2 + 1)


def spread(k: KernelBuilder, value: Int, lanes: int) -> Any:  # noqa: ANN401 - LLVM's value
    """An integer in int32 lanes."""
    return k.broadcast(Vec(k.b, k.b.trunc(value.value, llvm.I32)), lanes).value


def _lane(k: KernelBuilder, vector: Vec, lane: int) -> Int:
    return Int(k.b, k.b.sext(k.extract(vector, lane).value, llvm.I64))


def _most(k: KernelBuilder, vector: Vec) -> Int:
    """The largest of int32 lanes."""
    while vector.lanes > 1:
        low, high = (part.value for part in k.split(vector, vector.lanes // 2))
        vector = Vec(k.b, k.b.select(k.b.icmp_signed(">", low, high), low, high))
    return _lane(k, vector, 0)
