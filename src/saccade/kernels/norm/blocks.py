"""Ties and gradient of ±∞ across neighbouring results, on the bits of the elements.

An element is tied where its bits but the sign are the norm's; a norm that elements cannot hold
ties with nothing. So 16-bit elements are not widened, and nothing is multiplied: the gradient is
one of two numbers for each result, with the element's sign or without. Norms, counts and these
numbers stay in registers while all elements behind a row of results are swept, twice.

That is for rows that the registers hold: of longer ones each sweep would read a part, which memory
gives at half of its speed. There are no rests: the last vector of a row ends at its border and does
again what the one before has done. So dx may not be x, and a row has a vector of results or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from saccade.codegen import math
from saccade.codegen.bfloat16 import BFLOAT16
from saccade.codegen.language import Kernel
from saccade.codegen.target import Target
from saccade.codegen.values import I32, Int, Mask, Vec, literal, vector_of
from saccade.ir import DType
from saccade.kernels.movement.strided import Row
from saccade.kernels.norm.phase import NormGradConfig, narrowed
from saccade.kernels.norm.ties import Counting

__all__ = ["Blocks", "vectors_across"]

_VECTORS = 8
_NUMBERS = 3  # registers that a vector of results needs: norm, gradient where tied, elsewhere


def vectors_across(target: Target, element: DType, results: int, count: int) -> int:
    """Vectors of a row of results, a power of two; 0 for rows that this is not for.

    Args:
        target: Whose registers these are.
        element: Of x and dx.
        results: Of a row.
        count: Elements behind each.
    """
    lanes = 4 * target.lanes // element.itemsize
    vectors = 1 << (-(-results // lanes) - 1).bit_length()
    held = vectors <= _VECTORS and vectors * _NUMBERS < target.registers
    counted = count < 1 << (8 * element.itemsize - 1)
    return vectors if results >= lanes and held and counted else 0


class Blocks(Counting):
    """Counts and gradient of rows that stay in the cache."""

    x, norm = 1, 3

    def __init__(self, k: Kernel, config: NormGradConfig) -> None:
        super().__init__(k, config)
        size = DType(config.elements[0]).itemsize
        self.lanes = 4 * k.lanes // size
        self.integer = ir.IntType(8 * size)
        self.to, self.source = (p.viewed(f"int{8 * size}") for p in self.pointers[:2])
        self.sign = self._all(-1 << (8 * size - 1))
        self.size = self._all((1 << (8 * size - 1)) - 1)
        self.nothing = self.sign  # which no element is without its sign

    def emit(self) -> None:
        self.axes(0, 1)
        with self.nest.walk() as row:
            last = row.high - self.lanes
            starts = range(0, self.config.vectors * self.lanes, self.lanes)
            self._row(row, [self.k.minimum_int(row.low + start, last) for start in starts])

    def _row(self, row: Row, places: Sequence[Int]) -> None:
        """All elements behind the vectors of results at some places."""
        k, b = self.k, self.k.b
        norms = [self._norm(row, i) for i in places]
        counts = [k.var(self._all(0)) for _ in places]
        with self.swept(row, self.config.gone) as offsets:
            for i, norm, count in zip(places, norms, counts, strict=True):
                tied = self._tied(self.source.vec(offsets[1] + i, lanes=self.lanes), norm)
                so_far = count.get()
                # True is -1.
                count.set(Vec(b, b.sub(so_far.value, b.sext(tied.value, so_far.type))))
        values = [
            self._values(row, i, norm, count.get())
            for i, norm, count in zip(places, norms, counts, strict=True)
        ]
        with self.swept(row, self.config.gone) as offsets:
            for i, (norm, value, other) in zip(places, values, strict=True):
                x = self.source.vec(offsets[1] + i, lanes=self.lanes)
                signed = Vec(b, b.xor(value.value, b.and_(x.value, self.sign.value)))
                self.to.store(self._tied(x, norm).select(signed, other), offsets[0] + i)

    def _norm(self, row: Row, i: Int) -> Vec:
        """Bits of the elements that are equal to norms."""
        norm = self.read(self.norm, row.offsets[self.norm], i, self.lanes, None)
        bits, same = self._exact(norm)
        return (same & norm.compare("==", norm)).select(bits, self.nothing)

    def _values(self, row: Row, i: Int, norm: Vec, count: Vec) -> tuple[Vec, Vec, Vec]:
        """The norm again, the gradient of tied elements, that of others."""
        k = self.k
        ties = Vec(k.b, k.b.uitofp(count.value, k.vector_type(self.lanes, self.config.wide)))
        factor = self.read(2, row.offsets[2], i, self.lanes, None) / k.maximum(ties, 1.0)
        # A tied zero has no sign: its gradient is that of others.
        some = Mask(k.b, k.b.icmp_signed("!=", norm.value, self._all(0).value))
        return some.select(norm, self.nothing), self._rounded(factor), self._rounded(factor * 0.0)

    # Bits of elements

    def _all(self, number: int) -> Vec:
        return Vec(self.k.b, literal(vector_of(self.integer, self.lanes), number))

    def _tied(self, x: Vec, norm: Vec) -> Mask:
        b = self.k.b
        return Mask(b, b.icmp_signed("==", b.and_(x.value, self.size.value), norm.value))

    def _exact(self, norm: Vec) -> tuple[Vec, Mask]:
        """Bits of the nearest elements, and which of them are the norms."""
        k, element = self.k, self.pointers[1].element
        if element == BFLOAT16:
            # Cut rather than rounded: the conversion takes denormal numbers for zero.
            bits, kind = math.bits(k, norm), vector_of(I32, norm.lanes)
            low = k.b.icmp_signed("==", k.b.and_(bits, literal(kind, 0xFFFF)), literal(kind, 0))
            upper = k.b.trunc(k.b.lshr(bits, literal(kind, 16)), self.size.type)
            return Vec(k.b, upper), Mask(k.b, low)
        near = k.convert(norm, element)
        return self._bits(near), k.convert(near, self.config.wide).compare("==", norm)

    def _rounded(self, value: Vec) -> Vec:
        to = self.pointers[0]
        if to.element == BFLOAT16:
            return self.k.narrow_bf16(value)
        return self._bits(narrowed(self.k, value, to))

    def _bits(self, value: Vec) -> Vec:
        kind: Any = self.size.type
        return Vec(self.k.b, self.k.b.bitcast(value.value, kind))
