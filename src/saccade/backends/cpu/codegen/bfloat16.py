"""bfloat16: storage that arithmetic never sees.

A bfloat16 is the upper half of a float32. Loads widen it by a shift, which is exact; stores round
to the nearest, ties to even. Where the target has instructions for it (`Target.bf16`) they are
used: they round alike, but take denormal numbers for zero, which the shifts keep.

Products of two bfloat16 are exact in float32, so a dot product of pairs is two float32 additions
with one rounding each: the odd elements' product first, then the even elements'. Denormal
products and sums become zero in the instruction, and only there.

A float32 is the sum of three bfloat16, its limbs: the leading eight bits of its significand, the
next eight and the last eight. So six products of limbs are one of float32, all but 2^-24 of it.
"""

from __future__ import annotations

from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.values import Vec, literal, vector_of
from saccade.backends.cpu.codegen.vectors import Vectors

__all__ = ["BFLOAT16", "LIMBS", "BFloat16"]

BFLOAT16 = "bfloat16"
"""Name of the element; its accesses go through `int16`."""
LIMBS = 3
"""bfloat16 that sum up to a float32."""


class BFloat16(Vectors):
    """Conversions and dot products."""

    def widen_bf16(self, raw: Vec) -> Vec:
        """int16 lanes that hold bfloat16, as float32."""
        wide = self.b.zext(raw.value, vector_of(llvm.I32, raw.lanes))
        return self._float(self.b.shl(wide, _constant(16, raw.lanes)))

    def splat_bf16(self, raw: Vec, lanes: int | None = None) -> Vec:
        """An int16 that holds a bfloat16, as float32 in every lane."""
        count = lanes or self.lanes
        if count == 1:
            return self.widen_bf16(raw)
        twice = self.b.bitcast(self.broadcast(raw, 2 * count).value, vector_of(llvm.I32, count))
        return self._even(self.settled(Vec(self.b, twice)))

    def splat_half(self, pair: Vec, odd: bool) -> Vec:
        """One element of an int32 that is a pair, as float32 in every lane."""
        both = self.settled(self.broadcast(pair))
        return self._odd(both) if odd else self._even(both)

    def narrow_bf16(self, value: Vec) -> Vec:
        """float32 lanes as int16 lanes that hold bfloat16, rounded to nearest even."""
        lanes = value.lanes
        if self.target.bf16 and lanes == 2 * self.lanes:
            return self._narrow_two(*self.split(value, self.lanes))
        if self.target.bf16:
            rounded = self.b.fptrunc(value.value, vector_of(llvm.BFLOAT, lanes))
            return Vec(self.b, self.b.bitcast(rounded, vector_of(llvm.I16, lanes)))
        halves = self.b.lshr(self._rounded(value), _constant(16, lanes))
        return Vec(self.b, self.b.trunc(halves, vector_of(llvm.I16, lanes)))

    def narrow_pairs(self, even: Vec, odd: Vec) -> Vec:
        """The even and the odd elements, float32, as int16 lanes like those of `narrow_bf16`."""
        lanes = even.lanes
        if self.target.bf16 and lanes % self.lanes == 0:
            parts = zip(self.split(even, self.lanes), self.split(odd, self.lanes), strict=True)
            turns = [half + i for i in range(self.lanes) for half in (0, self.lanes)]
            rounded = (self._narrow_two(a, b) for a, b in parts)
            return self.concat([self.shuffle(raw, raw, turns) for raw in rounded])
        lower = self.b.lshr(self._rounded(even), _constant(16, lanes))
        upper = self.b.and_(self._rounded(odd), _constant(-0x10000, lanes))
        kind = vector_of(llvm.I16, 2 * lanes)
        return Vec(self.b, self.b.bitcast(self.b.or_(lower, upper), kind))

    def _narrow_two(self, first: Vec, second: Vec) -> Vec:
        """One conversion for two registers, side by side."""
        lanes, both = first.lanes, vector_of(llvm.BFLOAT, 2 * first.lanes)
        name = f"llvm.x86.avx512bf16.cvtne2ps2bf16.{32 * lanes}"
        convert = self._intrinsic(name, both, [first.type, first.type])
        rounded = self.b.call(convert, [second.value, first.value])
        return Vec(self.b, self.b.bitcast(rounded, vector_of(llvm.I16, 2 * lanes)))

    def _rounded(self, value: Vec) -> Any:  # noqa: ANN401
        """Bits of float32 lanes, rounded in their upper halves."""
        lanes = value.lanes
        bits = self.b.bitcast(value.value, vector_of(llvm.I32, lanes))
        upper = self.b.lshr(bits, _constant(16, lanes))
        bias = self.b.add(self.b.and_(upper, _constant(1, lanes)), _constant(0x7FFF, lanes))
        # A NaN must not round to infinity: it keeps its upper bits and becomes quiet.
        quiet = self.b.or_(bits, _constant(0x400000, lanes))
        nan = value.compare("!=", value)
        return self.b.select(nan.value, quiet, self.b.add(bits, bias))

    def limbs(self, value: Vec) -> list[Vec]:
        """float32 lanes as `LIMBS` vectors of float32 that are bfloat16, the largest first.

        Each has the value's sign, and their sum is the value, but where a limb is denormal; an
        infinity or NaN becomes NaN.
        """
        found = []
        for _ in range(LIMBS):
            bits = self.b.bitcast(value.value, vector_of(llvm.I32, value.lanes))
            found.append(self._odd(Vec(self.b, bits)))
            value = value - found[-1]
        return found

    def upper_halves(self, value: Vec, other: Vec | None = None) -> Vec:
        """The upper halves of float32 lanes, of two vectors side by side, as int16 lanes."""
        lanes = value.lanes
        if other is None:
            bits = self.b.bitcast(value.value, vector_of(llvm.I32, lanes))
            halves = self.b.lshr(bits, _constant(16, lanes))
            return Vec(self.b, self.b.trunc(halves, vector_of(llvm.I16, lanes)))
        kind = vector_of(llvm.I16, 2 * lanes)
        low, high = (Vec(self.b, self.b.bitcast(one.value, kind)) for one in (value, other))
        return self.shuffle(low, high, range(1, 4 * lanes, 2))

    def paired_limbs(self, even: Vec, odd: Vec) -> Vec:
        """A limb of the even and of the odd elements, as int16 lanes that alternate."""
        kind = vector_of(llvm.I32, even.lanes)
        lower = self.b.lshr(self.b.bitcast(even.value, kind), _constant(16, even.lanes))
        pairs = self.b.or_(lower, self.b.bitcast(odd.value, kind))
        return Vec(self.b, self.b.bitcast(pairs, vector_of(llvm.I16, 2 * even.lanes)))

    def join_pair(self, even: Vec, odd: Vec) -> Vec:
        """Pairs of two halves, each in the lower 16 bits of int32 lanes."""
        upper = self.b.shl(odd.value, _constant(16, odd.lanes))
        return Vec(self.b, self.b.or_(even.value, upper))

    def split_pair(self, pairs: Vec) -> tuple[Vec, Vec]:
        """The even and the odd elements of int32 lanes that are pairs, as float32."""
        return self._even(pairs), self._odd(pairs)

    def dot_bf16(self, total: Vec, a: Vec, b: Vec) -> Vec:
        """`total + a.odd · b.odd + a.even · b.even`, in this order.

        Args:
            total: float32 lanes.
            a: int32 lanes, each a pair of bfloat16, the even element in the lower half.
            b: The same.
        """
        if self.target.bf16 and total.lanes in (4, 8, 16):
            kind, pairs = total.type, vector_of(llvm.BFLOAT, 2 * total.lanes)
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * total.lanes}"
            dot = self._intrinsic(name, kind, [kind, pairs, pairs])
            operands = [self.b.bitcast(v.value, pairs) for v in (a, b)]
            return Vec(self.b, self.b.call(dot, [total.value, *operands]))
        return self.fma(self._even(a), self._even(b), self.fma(self._odd(a), self._odd(b), total))

    def _odd(self, pairs: Vec) -> Vec:
        return self._float(self.b.and_(pairs.value, _constant(-0x10000, pairs.lanes)))

    def _even(self, pairs: Vec) -> Vec:
        return self._float(self.b.shl(pairs.value, _constant(16, pairs.lanes)))

    def _float(self, bits: Any) -> Vec:  # noqa: ANN401
        lanes = getattr(bits.type, "count", 1)
        return Vec(self.b, self.b.bitcast(bits, self.vector_type(lanes)))


def _constant(number: int, lanes: int) -> Any:  # noqa: ANN401
    return literal(vector_of(llvm.I32, lanes), number)
