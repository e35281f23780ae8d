"""Planes that are read along one axis and written along another, by rectangles in registers.

The innermost axis of the destination is *along*; *across* is the axis whose neighbours lie side by
side in what is transposed. A rectangle takes as many elements of both as make a vector where it is
written and where it is read, so that whole lines of cache move while they are in the L1 cache,
even where the lines of a plane all fall into one set of it. The rectangles of a block follow each
other across first: what is read is read in runs of a block's length, which is one rectangle where
it is the destination whose rows are far apart.

There are no rests: the last rectangle of a row ends at the border and does again what the one
before has done. So nothing that is read may be what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.streams import LINE
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.kernels.base import Integers
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, Partition, in_lines, partition
from saccade.kernels.cpu.movement.register_shuffles import turn

__all__ = ["MICROS", "Transposed", "TransposedPlan", "transposed_operands", "transposed_plan"]

MICROS = 0.06
"""Of one core for 1000 elements beside their traffic, as measured on a Zen 4 core."""
_ROWS = 32  # of a rectangle, at most: each is a vector until it is transposed
_APART = 16  # rows far apart that are read side by side, at most: each is in a page of its own
_RUN = 512  # elements of a block across, where they lie side by side in rows far apart
_SHORT = 256  # bytes of rows that are read whole, as pieces of them share lines
_LEAST = 32 << 10  # bytes of a chunk, at least


@dataclass(frozen=True, slots=True)
class TransposedPlan:
    """The walk of one phase.

    Attributes:
        loops: The nest; its last axis but one are the blocks across.
        cut: Its chunks.
        tile: Elements of a rectangle along and across, part of the code's config.
        across: Extent of the axis across.
        block: Elements of a block of it.
        steps: Each operand's stride along it.
        streamed: Whether the destination is written in whole lines past the caches.
    """

    loops: Loops
    cut: Partition
    tile: tuple[int, int]
    across: int
    block: int
    steps: tuple[int, ...]
    streamed: bool

    def integers(self, starts: Sequence[int] | None = None) -> Integers:
        """Values of the parameters of `Transposed`; `starts` are first elements of the operands."""
        nest = Nest.integers(self.loops, self.cut, starts)
        return {**nest, "across": self.across, "block": self.block, "steps": self.steps}


def transposed_plan(
    loops: Loops, operand: int, most: tuple[int, int], itemsize: int, threads: int, *, far: bool
) -> TransposedPlan:
    """Rectangles and chunks.

    Args:
        loops: Collapsed axes, the destination contiguous along the innermost.
        operand: One that is transposed.
        most: Elements of a vector as it is written and as what is transposed is read.
        itemsize: Bytes of an element of the destination.
        threads: Width of the team.
        far: Whether the caches do not hold the destination.
    """
    axis, strides = _side_by_side(loops, operand), loops.strides
    assert axis is not None
    size = loops.sizes[axis]
    # The side whose rows are far apart, each in pages of its own, goes by long runs.
    apart = abs(strides[operand][-1]) > abs(strides[0][axis])
    along, whole = (_side(loops.sizes[-1], n) for n in (min(most[0], _APART), most[0]))
    lines = whole * itemsize % LINE == 0 and loops.sizes[-1] % whole == 0
    streamed = far and lines and in_lines(loops, itemsize)
    tile = (along if apart and not streamed else whole, _side(size, most[1]))
    run = _RUN if apart or size * itemsize < _SHORT else tile[1]
    block = min(-(-size // tile[1]), run // tile[1]) * tile[1]
    elements = max(_LEAST // itemsize, loops.rows * loops.sizes[-1] // (8 * threads))

    def blocked(values: tuple[int, ...], last: int) -> tuple[int, ...]:
        return (*values[:axis], *values[axis + 1 : -1], last, values[-1])

    # The axis across leaves its place: only its blocks are walked, just outside the innermost axis.
    steps = tuple(s[axis] for s in strides)
    walked = Loops(
        blocked(loops.sizes, -(-size // block)),
        tuple(blocked(s, step * block) for s, step in zip(strides, steps, strict=True)),
    )
    cut = partition(walked, max(1, elements // block))
    return TransposedPlan(walked, cut, tile, size, block, steps, streamed)


def transposed_operands(loops: Loops) -> tuple[int, ...]:
    """The operands that can be transposed together: contiguous along one axis, not the last."""
    if loops.strides[0][-1] != 1:
        return ()
    axes = [_side_by_side(loops, p) for p in range(len(loops.strides))]
    first = next((a for a in axes[1:] if a is not None), None)
    return tuple(p for p, a in enumerate(axes) if p and a is not None and a == first)


def _side_by_side(loops: Loops, operand: int) -> int | None:
    """The axis that an operand is contiguous along, where that is not the innermost."""
    strides = loops.strides[operand]
    if strides[-1] in (0, 1):
        return None
    return next((i for i, stride in enumerate(strides[:-1]) if stride == 1), None)


def _side(size: int, most: int) -> int:
    """The power of two that covers an extent with the fewest rows, counting two for each part."""
    sides = [1 << n for n in range(min(size, most, _ROWS).bit_length())]
    return min(reversed(sides), key=lambda side: -(-size // side) * (side + 2))


class Transposed:
    """The emitted walk; declares its integer parameters, which are those of `TransposedPlan`."""

    def __init__(self, k: KernelBuilder, rank: int, operands: int, tile: tuple[int, int]) -> None:
        self.k, self.tile = k, tile
        self.nest = Nest(k, rank, operands)
        self.size, self.block = k.integers("across block")
        self.steps = k.array("steps", operands)

    @contextmanager
    def walk(self) -> Iterator[tuple[Int, ...]]:
        """All rectangles of all chunks that this thread claims: each operand's first element."""
        k, (along, across) = self.k, self.tile
        with self.nest.walk() as row:
            left = self.size - row.indices[-1] * self.block
            high = k.minimum_int(left, self.block)
            with k.range(row.low, row.high, along) as i, k.range(0, high, across) as j:
                # y is negative where the last block is shorter than a rectangle, which then reaches
                # back into the one before; the axis itself is never shorter.
                x = k.minimum_int(i, self.nest.sizes[-1] - along)
                y = k.minimum_int(j, left - across)
                ends = zip(row.offsets, self.nest.strides, self.steps, strict=True)
                yield tuple(at + s[-1] * x + step * y for at, s, step in ends)

    def read(self, p: Ptr, operand: int, at: Int) -> Iterator[Vec]:
        """The rows of a rectangle of an operand that is contiguous across, transposed."""
        (along, across), stride = self.tile, self.nest.strides[operand][-1]
        return turn(self.k, [p.vec(at + stride * i, lanes=across) for i in range(along)])
