"""Neighbouring elements as the lanes that sums are kept in, bfloat16 two vectors at a time.

Two neighbours in bfloat16 are the halves of 32 bits: a shift gives the lower one as float32, a mask
the upper one. That takes half the instructions that widening takes, and leaves the even elements in
one vector, the odd ones in the other; results are put in order once, when all is summed. Where
there are dot products of pairs, plain sums take two pixels at once and convert nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, literal, vector_of
from saccade.kernels.cpu.floats import lanes_of

__all__ = ["Reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a buffer.

    Attributes:
        k: Builder.
        source: The buffer.
        wide: Element of the lanes: "float32", or "float64" for float32 and float64.
    """

    k: KernelBuilder
    source: Ptr
    wide: str = "float32"

    @property
    def lanes(self) -> int:
        """Lanes of a vector."""
        return lanes_of(self.k, self.wide)

    @property
    def together(self) -> int:
        """Vectors that are best read at a time."""
        return 2 if self.source.element == BFLOAT16 else 1

    def vectors(self, at: Int, count: int, mask: Mask | None = None) -> list[Vec]:
        """`count` vectors from element `at` on; an even number of bfloat16 not in order.

        Args:
            at: First element.
            count: How many vectors.
            mask: Which elements may be read (the others are 0), for one read of `together` vectors.
        """
        k, lanes = self.k, self.lanes
        if self._in_pairs(count):
            starts = range(0, count * lanes, 2 * lanes)
            halves = [k.split_pair(self.source.pairs(at + i, mask)) for i in starts]
            return [half for pair in halves for half in pair]
        raw = [self.source.vec(at + u * lanes, mask, lanes) for u in range(count)]
        return [k.convert(v, self.wide) for v in raw]

    def in_order(self, vectors: Sequence[Vec]) -> list[Vec]:
        """What became of the elements of as many vectors, in their order."""
        k, lanes = self.k, self.lanes
        if not self._in_pairs(len(vectors)):
            return list(vectors)
        found = []
        for even, odd in zip(vectors[::2], vectors[1::2], strict=True):
            for first in range(0, lanes, lanes // 2):
                order = [side + first + i for i in range(lanes // 2) for side in (0, lanes)]
                found.append(k.shuffle(even, odd, order))
        return found

    def add_two(self, sums: Sequence[Vec], first: Vec, second: Vec | None) -> list[Vec]:
        """Add two vectors of pairs to sums, in an order of their own (see `in_order_of_two`).

        An element of the one beside the same of the other is a dot product with (1, 1), without a
        conversion; denormal numbers count as zero.
        """
        k = self.k
        # 1 is 0x3F80.
        one = Vec(k.b, literal(vector_of(llvm.I32, k.lanes), 0x3F803F80))
        halves = self._turns(first, second or first.like(0))
        return [k.dot_bf16(total, pair, one) for total, pair in zip(sums, halves, strict=True)]

    def _turns(self, first: Vec, second: Vec) -> list[Vec]:
        """Elements of both in turns: of each eight the lower half, then the upper half."""
        k, lanes = self.k, self.k.lanes
        # Instructions that unpack stay within 128 bits, which are eight of these elements.
        kind = k.vector_type(2 * lanes, "int16")
        a, b = (Vec(k.b, k.b.bitcast(v.value, kind)) for v in (first, second))
        found = []
        for half in (0, 4):
            places = [8 * (i // 4) + half + i % 4 for i in range(lanes)]
            turns = k.shuffle(a, b, [p + side for p in places for side in (0, 2 * lanes)])
            found.append(Vec(k.b, k.b.bitcast(turns.value, first.type)))
        return found

    def in_order_of_two(self, sums: Sequence[Vec]) -> list[Vec]:
        """What `add_two` summed, in order."""
        k, lanes = self.k, self.k.lanes
        low, high = sums
        order = [c // 8 * 4 + c % 4 + c % 8 // 4 * lanes for c in range(2 * lanes)]
        return [k.shuffle(low, high, order[:lanes]), k.shuffle(low, high, order[lanes:])]

    def _in_pairs(self, count: int) -> bool:
        return count % self.together == 0 and self.together == 2 and self.lanes > 1
