"""Nests of loops over operands of any strides: collapsed at launch, walked without divisions.

`collapse` orders the axes by the first operand's strides (the result's memory order), drops axes
of one element and merges neighbours that every operand walks as one. What is left is rows: the
innermost axis, which kernels vectorise, inside the others, which a `Nest` walks like an odometer.
Codes depend on the rank alone; sizes and strides are integer parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Int

__all__ = [
    "Loops",
    "Nest",
    "Partition",
    "Row",
    "collapse",
    "in_lines",
    "inner_kind",
    "partition",
]

MAX_RANK = 8
"""Axes of a result."""


@dataclass(frozen=True, slots=True)
class Loops:
    """Collapsed axes, outermost first (at least one).

    Attributes:
        sizes: Extent of each axis.
        strides: For each operand, elements between neighbours along each axis.
        axes: Which of those that were collapsed each is, of merged ones the innermost.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """Product of all axes but the innermost."""
        total = 1
        for n in self.sizes[:-1]:
            total *= n
        return total

    def places(self, counted: Sequence[int]) -> dict[int, int]:
        """Of axes that were collapsed those that are still there: their numbers, and where."""
        found = {axis: place for place, axis in enumerate(self.axes)}
        return {n: found[axis] for n, axis in enumerate(counted) if axis in found}


def in_lines(loops: Loops, itemsize: int) -> bool:
    """Whether the first operand's rows all begin at a line of cache where its first one does."""
    *outer, inner = loops.strides[0]
    return inner == 1 and all(step * itemsize % LINE == 0 for step in outer)


def collapse(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], alone: Collection[int] = ()
) -> Loops:
    """Order, drop and merge axes; see the module.

    Args:
        sizes: Extent of each axis.
        strides: For each operand, its stride along each axis; the first decides the order.
        alone: Axes that are merged with none.
    """
    count = len(strides)
    if 0 in sizes:
        return Loops((0,), ((0,),) * count)
    axes = [(i, n, *(s[i] for s in strides)) for i, n in enumerate(sizes) if n != 1]
    # The other operands decide where the first one's strides are equal.
    axes.sort(key=lambda axis: tuple(-abs(s) for s in axis[2:]))
    merged: list[tuple[int, ...]] = []
    for axis in axes:
        apart = not merged or merged[-1][0] in alone or axis[0] in alone
        if not apart and all(
            outer == axis[1] * inner for outer, inner in zip(merged[-1][2:], axis[2:], strict=True)
        ):
            merged[-1] = (axis[0], merged[-1][1] * axis[1], *axis[2:])
        else:
            merged.append(axis)
    if not merged:
        # Stride 1: a single element counts as contiguous for every operand.
        merged.append((-1, 1, *(1 for _ in range(count))))
    return Loops(
        tuple(axis[1] for axis in merged),
        tuple(tuple(axis[2 + p] for axis in merged) for p in range(count)),
        tuple(axis[0] for axis in merged),
    )


def inner_kind(stride: int) -> str:
    """How an operand meets an axis: `unit`, `zero` (one element for all) or `strided`."""
    return {1: "unit", 0: "zero"}.get(stride, "strided")


@dataclass(frozen=True, slots=True)
class Partition:
    """How rows are cut into chunks: blocks of rows times blocks of the innermost axis."""

    rows: int
    inner: int
    inner_chunks: int
    chunks: int


def partition(loops: Loops, target: int, align: int = 64) -> Partition:
    """Chunks of about `target` elements; the innermost axis is cut only where it is longer."""
    rows, inner = loops.rows, loops.sizes[-1]
    if rows == 0 or inner == 0:
        return Partition(1, 1, 1, 0)
    if inner <= 2 * target:
        per_chunk = max(1, min(rows, target // inner))
        return Partition(per_chunk, inner, 1, -(-rows // per_chunk))
    # 64 elements of any type are whole lines.
    block = -(-target // align) * align
    cuts = -(-inner // block)
    return Partition(1, block, cuts, rows * cuts)


@dataclass(frozen=True, slots=True)
class Row:
    """One row, or a part of one.

    Attributes:
        offsets: For each operand, of the row's element 0.
        indices: Position along each axis but the innermost.
        low, high: Range of the innermost axis to do.
    """

    offsets: tuple[Int, ...]
    indices: tuple[Int, ...]
    low: Int
    high: Int


class Nest:
    """The emitted walk; declares its integer parameters, which are those of `Nest.integers`.

    Args:
        k: Builder.
        rank: How many axes there are.
        operands: How many operands.
        numbers: For some axes where it stands how much of them is to be walked.
    """

    def __init__(
        self, k: KernelBuilder, rank: int, operands: int, numbers: Mapping[int, Ptr] | None = None
    ) -> None:
        self.k = k
        self.sizes = k.array("sizes", rank)
        steps = k.array("strides", rank * operands)
        self.strides = [steps[p * rank : (p + 1) * rank] for p in range(operands)]
        self.starts = k.array("starts", operands)
        self.rows, self.per_chunk, self.inner, self.inner_chunks, self.chunks = k.integers(
            "rows per_chunk inner inner_chunks chunks"
        )
        if numbers:
            self._shorten(numbers)

    def _shorten(self, numbers: Mapping[int, Ptr]) -> None:
        """Axes of as many elements as are there; chunks behind all of them have nothing to do."""
        sizes = list(self.sizes)
        for axis, number in numbers.items():
            # Of none one is done: nobody divides by 0.
            true = self.k.maximum_int(number.load_int(), 1)
            sizes[axis] = self.k.minimum_int(true, sizes[axis])
        self.sizes, self.rows = tuple(sizes), self.k.int(1)
        for size in sizes[:-1]:
            self.rows = self.rows * size

    @staticmethod
    def integers(
        loops: Loops, cut: Partition, starts: Sequence[int] | None = None
    ) -> dict[str, int | tuple[int, ...]]:
        """Values of the parameters; `starts` are first elements of the operands, 0 by default."""
        return {
            "sizes": loops.sizes,
            "strides": tuple(chain.from_iterable(loops.strides)),
            "starts": tuple(starts or (0,) * len(loops.strides)),
            "rows": loops.rows,
            "per_chunk": cut.rows,
            "inner": cut.inner,
            "inner_chunks": cut.inner_chunks,
            "chunks": cut.chunks,
        }

    @contextmanager
    def walk(self) -> Iterator[Row]:
        """All rows of all chunks that this thread claims."""
        k = self.k
        with k.chunks(self.chunks) as chunk:
            # Parts of a row follow each other: chunks are numbered by place in memory.
            low = (chunk % self.inner_chunks) * self.inner
            high = k.minimum_int(low + self.inner, self.sizes[-1])
            first = (chunk // self.inner_chunks) * self.per_chunk
            last = k.minimum_int(first + self.per_chunk, self.rows)
            indices, offsets = self._start(first)
            with k.range(first, last):
                at, where = (tuple(v.get() for v in group) for group in (offsets, indices))
                yield Row(at, where, low, high)
                self._advance(indices, offsets)

    def _start(self, row: Int) -> tuple[list[Var], list[Var]]:
        """Odometer and offsets at a row."""
        k = self.k
        indices: list[Int] = []
        # The only divisions, once a chunk; the outermost axis takes what is left.
        for size in reversed(self.sizes[1:-1]):
            indices.insert(0, row % size)
            row = row // size
        if len(self.sizes) > 1:
            indices.insert(0, row)
        offsets = []
        for start, strides in zip(self.starts, self.strides, strict=True):
            offset = start
            for index, stride in zip(indices, strides, strict=False):  # not the innermost
                offset = offset + index * stride
            offsets.append(k.var(offset))
        return [k.var(i) for i in indices], offsets

    def _advance(self, indices: list[Var], offsets: list[Var]) -> None:
        """To the next row: the last axis steps, and where it is full the one before it."""
        self._step(len(self.sizes) - 2, indices, offsets)

    def _step(self, axis: int, indices: list[Var], offsets: list[Var]) -> None:
        if axis < 0:
            return
        k = self.k
        following = indices[axis].get() + 1
        indices[axis].set(following)
        for offset, strides in zip(offsets, self.strides, strict=True):
            offset.set(offset.get() + strides[axis])
        if axis == 0:
            return
        with k.when(following >= self.sizes[axis]):
            indices[axis].set(0)
            for offset, strides in zip(offsets, self.strides, strict=True):
                offset.set(offset.get() - strides[axis] * self.sizes[axis])
            self._step(axis - 1, indices, offsets)
