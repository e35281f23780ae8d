"""Vector and integer arithmetic of the kernel language, beyond what operators express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.emitter import Emitter
from saccade.backends.cpu.codegen.values import (
    Bool,
    Int,
    IntLike,
    Mask,
    Vec,
    lanes_picked,
    literal,
    vector_of,
)

__all__ = ["Vectors", "type_suffix"]


class Vectors(Emitter):
    """Broadcasts, shuffles, masks, intrinsics."""

    def broadcast(self, scalar: Vec, lanes: int | None = None) -> Vec:
        """A scalar in every lane."""
        count = lanes or self.lanes
        if count == 1:
            return scalar
        return Vec(self.b, self._repeated(scalar.value, count))

    def _repeated(self, scalar: Any, count: int) -> Any:  # noqa: ANN401
        kind = vector_of(scalar.type, count)
        nothing = llvm.ir.Constant(kind, llvm.ir.Undefined)
        one = self.b.insert_element(nothing, scalar, literal(llvm.I32, 0))
        return self.b.shuffle_vector(one, nothing, lanes_picked((0,) * count))

    def settled(self, value: Vec) -> Vec:
        """The same int32 lanes, which are in a register before anything is done to them.

        LLVM would do to a scalar what is done to all lanes alike, and repeat the outcome: an
        instruction of its own, where a load that repeats costs none.
        """
        bits = 32 * value.lanes
        if bits not in (128, 256, 512) or bits > self.target.vector_bits:
            return value
        kind = llvm.ir.FunctionType(value.type, [value.type])
        register = "w" if self.target.isa == "neon" else "v"
        return Vec(self.b, self.b.asm(kind, "", f"={register},0", [value.value], False))

    def shuffle(self, first: Vec, second: Vec, order: Sequence[int]) -> Vec:
        """Lanes picked from the concatenation of two vectors."""
        lanes = lanes_picked(tuple(order))
        return Vec(self.b, self.b.shuffle_vector(first.value, second.value, lanes))

    def concat(self, vectors: Sequence[Vec]) -> Vec:
        """Side by side a power of two of vectors, which have the same number of lanes."""
        found = list(vectors)
        while len(found) > 1:
            order = range(2 * found[0].lanes)
            sides = zip(found[::2], found[1::2], strict=True)
            found = [self.shuffle(a, b, order) for a, b in sides]
        return found[0]

    def split(self, vector: Vec, lanes: int) -> list[Vec]:
        """Parts of so many lanes each, a divisor of the vector's."""
        if vector.lanes == lanes:
            return [vector]
        starts = range(0, vector.lanes, lanes)
        return [self.shuffle(vector, vector, range(at, at + lanes)) for at in starts]

    def extract(self, vector: Vec, lane: int) -> Vec:
        """One lane as a scalar."""
        if not isinstance(vector.type, llvm.ir.VectorType):
            return vector
        return Vec(self.b, self.b.extract_element(vector.value, literal(llvm.I32, lane)))

    def insert(self, vector: Vec, scalar: Vec, lane: int) -> Vec:
        """The vector with one lane replaced."""
        if vector.lanes == 1:
            return scalar
        at = literal(llvm.I32, lane)
        return Vec(self.b, self.b.insert_element(vector.value, scalar.value, at))

    def fma(self, a: Vec, b: Vec, c: Vec) -> Vec:
        """`a · b + c`, rounded once."""
        return self.call("fma", a, b, c)

    def maximum(self, a: Vec, b: Vec | float) -> Vec:
        """The larger; NaN in `a` stays NaN."""
        other = b if isinstance(b, Vec) else a.like(b)
        return a.compare("<", other).select(other, a)

    def minimum(self, a: Vec, b: Vec | float) -> Vec:
        """The smaller; NaN in `a` stays NaN."""
        other = b if isinstance(b, Vec) else a.like(b)
        return a.compare(">", other).select(other, a)

    def call(self, intrinsic: str, *operands: Vec) -> Vec:
        """An element-wise LLVM intrinsic: `fma`, `sqrt`, `fabs`, `floor`, `rint` and the like."""
        kind = operands[0].type
        name = f"llvm.{intrinsic}.{type_suffix(kind)}"
        function = self._intrinsic(name, kind, [kind] * len(operands))
        return Vec(self.b, self.b.call(function, [o.value for o in operands]))

    def convert(self, value: Vec, element: str) -> Vec:
        """Floating-point lanes in another precision, rounded to nearest even.

        Not from float64 to float16: no instruction rounds that once.
        """
        wanted = self.vector_type(value.lanes, element)
        have, want = (_FLOAT_BITS[type_suffix(t)[-3:]] for t in (value.type, wanted))
        if have == want:
            return value
        if have > want:
            assert (have, want) != (64, 16)
            return Vec(self.b, self.b.fptrunc(value.value, wanted))
        if (have, want) == (16, 64):  # which would be a call into a library
            return self.convert(self.convert(value, "float32"), element)
        return Vec(self.b, self.b.fpext(value.value, wanted))

    def to_int(self, value: Vec) -> Int:
        """A scalar towards zero; it must be finite and fit 64 bits."""
        return Int(self.b, self.b.fptosi(value.value, llvm.I64))

    def to_real(self, value: Int, element: str = "float32") -> Vec:
        """An integer as a scalar, rounded to nearest even."""
        return Vec(self.b, self.b.sitofp(value.value, self.vector_type(1, element)))

    def first(self, count: Int, lanes: int | None = None) -> Mask:
        """The mask of the first `count` lanes: all when `count` is larger, none when negative."""
        n = lanes or self.lanes
        iota = lanes_picked(tuple(range(n)))
        capped = (count < n).select(count, n)
        floor = (capped > 0).select(capped, 0)
        narrow = self.b.trunc(floor.value, llvm.I32)
        limit = self._repeated(narrow, n)
        return Mask(self.b, self.b.icmp_signed("<", iota, limit), floor)

    def look_up(self, index: Vec, table: Sequence[int]) -> Vec:
        """Entries of a table of two vectors' lanes, for the low bits of int32 lanes."""
        n = self.lanes
        kind = self.vector_type(n, "int32")
        halves = [llvm.ir.Constant(kind, list(part)) for part in (table[:n], table[n:])]
        name = f"llvm.x86.avx512.vpermi2var.d.{32 * n}"
        pick = self._intrinsic(name, kind, [kind] * 3)
        return self._by_registers(
            index, lambda v: self.b.call(pick, [halves[0], v.value, halves[1]])
        )

    def permuted(self, index: Vec, first: Vec, second: Vec | None = None) -> Vec:
        """Lanes of one vector of a register's width, or of two after each other.

        Args:
            index: int32 lanes, as many; only the bits that number the lanes count.
            first: Lanes of 32 bits, or of 64 where the target `permutes` these.
            second: Of the same type.
        """
        element, lanes = str(first.type.element), first.lanes
        number = self._wide_index(index, first)
        if second is None:
            of_eight = {"float": "avx2.permps", "i32": "avx2.permd"}
            names = {"float": "sf.512", "i32": "si.512", "double": "df.512"}
            name = of_eight.get(element) if lanes == 8 else None
            return self._permute(name or f"avx512.permvar.{names[element]}", first, number)
        if self.target.vector_isa == "avx512":
            letter = {"float": "ps", "i32": "d", "double": "pd"}[element]
            bits = lanes * (64 if element == "double" else 32)
            name = f"llvm.x86.avx512.vpermi2var.{letter}.{bits}"
            permute = self._intrinsic(name, first.type, [first.type, number.type, first.type])
            return Vec(self.b, self.b.call(permute, [first.value, number, second.value]))
        low, high = (self.permuted(index, vector) for vector in (first, second))
        beyond = self.b.and_(index.value, literal(index.type, lanes))
        return Mask(self.b, self.b.icmp_signed("!=", beyond, literal(index.type, 0))).select(
            high, low
        )

    def _wide_index(self, index: Vec, vector: Vec) -> Any:  # noqa: ANN401
        """Numbers of lanes in integers as wide as these."""
        if str(vector.type.element) != "double":
            return index.value
        return self.b.zext(index.value, vector_of(llvm.I64, vector.lanes))

    def _permute(self, name: str, vector: Vec, index: Any) -> Vec:  # noqa: ANN401
        kind = vector.type
        function = self._intrinsic(f"llvm.x86.{name}", kind, [kind, index.type])
        return Vec(self.b, self.b.call(function, [vector.value, index]))

    def reciprocal_estimate(self, x: Vec) -> Vec:
        """1 / x within 2^-14, for targets that estimate."""
        mask = llvm.ir.IntType(self.lanes)
        kind, name = self.vector_type(), f"llvm.x86.avx512.rcp14.ps.{32 * self.lanes}"
        estimate = self._intrinsic(name, kind, [kind, kind, mask])
        every = llvm.ir.Constant(mask, -1)
        return self._by_registers(x, lambda v: self.b.call(estimate, [v.value, v.value, every]))

    def _by_registers(self, vector: Vec, body: Callable[[Vec], Any]) -> Vec:
        """What exists for whole registers only, on any number of lanes."""
        lanes = vector.lanes
        if lanes == 1:
            return self.extract(Vec(self.b, body(self.broadcast(vector))), 0)
        if lanes < self.lanes:
            filled = self.shuffle(vector, vector, [i % lanes for i in range(self.lanes)])
            return self.split(Vec(self.b, body(filled)), lanes)[0]
        return self.concat([Vec(self.b, body(part)) for part in self.split(vector, self.lanes)])

    def any_lane(self, mask: Mask) -> Bool:
        """Whether the mask is set anywhere."""
        lanes = mask.value.type.count
        word = self.b.bitcast(mask.value, llvm.ir.IntType(lanes))
        return Bool(
            self.b, self.b.icmp_unsigned("!=", word, llvm.ir.Constant(llvm.ir.IntType(lanes), 0))
        )

    def mask_bits(self, mask: Mask) -> Int:
        """Bit i is set where lane i is; at most 64 lanes."""
        lanes = mask.lanes
        word = self.b.bitcast(mask.value, llvm.ir.IntType(lanes))
        return Int(self.b, word if lanes == 64 else self.b.zext(word, llvm.I64))

    def lanes_set(self, bits: Int, lanes: int) -> Mask:
        """The mask that `mask_bits` gives these bits for."""
        word = llvm.ir.IntType(lanes)
        narrow = bits.value if lanes == 64 else self.b.trunc(bits.value, word)
        return Mask(self.b, self.b.bitcast(narrow, vector_of(llvm.I1, lanes)))

    def count_trailing_zeros(self, bits: Int) -> Int:
        """Number of the lowest bit that is set; 64 where none is."""
        function = self._intrinsic("llvm.cttz.i64", llvm.I64, [llvm.I64, llvm.ir.IntType(1)])
        return Int(self.b, self.b.call(function, [bits.value, literal(llvm.ir.IntType(1), 0)]))

    def count_ones(self, bits: Int) -> Int:
        """How many bits are set."""
        function = self._intrinsic("llvm.ctpop.i64", llvm.I64, [llvm.I64])
        return Int(self.b, self.b.call(function, [bits.value]))

    def sum_lanes(self, vector: Vec) -> Vec:
        """Horizontal sum by halves (a fixed order)."""
        while vector.lanes > 1:
            half = vector.lanes // 2
            low = self.shuffle(vector, vector, range(half))
            high = self.shuffle(vector, vector, range(half, 2 * half))
            if half == 1:
                return self.extract(low, 0) + self.extract(high, 0)
            vector = low + high
        return vector

    def minimum_int(self, a: Int, b: IntLike) -> Int:
        """The smaller integer."""
        return (a < b).select(a, b)

    def maximum_int(self, a: Int, b: IntLike) -> Int:
        """The larger integer."""
        return (a > b).select(a, b)


_FLOAT_BITS = {"f16": 16, "f32": 32, "f64": 64}


def type_suffix(kind: Any) -> str:  # noqa: ANN401
    """A type in the name of an intrinsic."""
    if isinstance(kind, llvm.ir.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(kind), str(kind))
