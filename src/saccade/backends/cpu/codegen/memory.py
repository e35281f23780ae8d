"""Loads, stores and positions of the kernel language, bounds-checked on request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.emitter import BYTES, FAULT
from saccade.backends.cpu.codegen.masked import Masked
from saccade.backends.cpu.codegen.streams import LINE, Streams
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike, Mask, Vec, as_int, literal

__all__ = ["Memory", "Ptr"]


@dataclass(frozen=True, slots=True)
class Ptr:
    """A position: `base` is the buffer, `offset` counts elements, `length` bounds them.

    Elements of type bfloat16 load as float32, and float32 is rounded where it is stored. Where
    `streamed`, whole lines of cache go past the caches (`Streams`).
    """

    k: Memory
    name: str
    element: str
    base: Any
    offset: Int
    length: Int | None
    streamed: bool = False

    def __add__(self, elements: IntLike) -> Ptr:
        return replace(self, offset=self.offset + elements)

    def viewed(self, element: str) -> Ptr:
        """The same position in a buffer of other elements, whose size divides that of its own."""
        ratio = BYTES[self.element] // BYTES[element]
        length = None if self.length is None else self.length * ratio
        return replace(self, element=element, offset=self.offset * ratio, length=length)

    def within(self, extent: IntLike) -> Ptr:
        """The same position, checked here and now for so many elements, and no more at accesses."""
        return self.k.within(self, extent)

    def load(self, at: IntLike = 0) -> Vec:
        """One element, as a scalar `Vec`."""
        return self.k.load_scalar(self, at)

    def load_int(self, at: IntLike = 0) -> Int:
        """One integer element, sign- or zero-extended to 64 bits."""
        return self.k.load_int(self, at)

    def vec(self, at: IntLike = 0, mask: Mask | None = None, lanes: int | None = None) -> Vec:
        """Consecutive elements; masked lanes read as 0."""
        return self.k.load_vec(self, at, mask, lanes)

    def splat(self, at: IntLike = 0, lanes: int | None = None) -> Vec:
        """One element in every lane."""
        if self.element == BFLOAT16:
            return self.k.splat_bf16(self.k.load_scalar(_raw(self), at), lanes)
        return self.k.broadcast(self.k.load_scalar(self, at), lanes)

    def splat_of_pair(self, at: IntLike, odd: bool) -> Vec:
        """One of the two bfloat16 from `at` on in every lane, by a load that repeats both."""
        return self.k.splat_half(self.pair(at), odd)

    def pairs(self, at: IntLike = 0, mask: Mask | None = None, lanes: int | None = None) -> Vec:
        """Consecutive pairs of bfloat16 as int32 lanes.

        The mask counts pairs, or elements if it has twice as many lanes.
        """
        return self.k.load_pairs(self, at, mask, lanes)

    def pair(self, at: IntLike = 0) -> Vec:
        """One pair of bfloat16 as a scalar of int32 (`k.broadcast` repeats it)."""
        return self.k.load_pairs(self, at, None, 1)

    def half_pair(self, at: IntLike = 0) -> Vec:
        """One bfloat16 as a pair whose odd element is zero: what is left of an odd count."""
        return self.k.load_half_pairs(self, at, None, 1)

    def half_pairs(self, at: IntLike = 0, mask: Mask | None = None) -> Vec:
        """Consecutive bfloat16, each the even element of a pair whose odd element is zero."""
        return self.k.load_half_pairs(self, at, mask, None)

    def store(self, value: Vec, at: IntLike = 0, mask: Mask | None = None) -> None:
        """Store a vector or a scalar; masked lanes stay untouched."""
        self.k.store(self, value, at, mask)

    def store_int(self, value: IntLike, at: IntLike = 0) -> None:
        """Store an integer, of which a narrower element takes the lower bits."""
        self.k.store_int(self, value, at)

    def store_halves(self, even: Vec, odd: Vec, at: IntLike = 0) -> None:
        """Store the even and the odd elements of consecutive bfloat16."""
        self.k.store(_raw(self), self.k.narrow_pairs(even, odd), at)


class Memory(Masked, Streams):
    """Access to buffers."""

    def _address(self, p: Ptr, at: IntLike, extent: IntLike) -> Any:  # noqa: ANN401
        offset = p.offset + at
        if self.checked and p.length is not None:
            self._check(p, offset, as_int(self.b, extent))
        return self.b.gep(p.base, [offset.value], source_etype=llvm.ELEMENTS[p.element])

    def _check(self, p: Ptr, offset: Int, extent: Int) -> None:
        assert p.length is not None
        inside = (offset >= 0) & (offset + extent <= p.length)
        # A masked access of no lanes may stand anywhere.
        allowed = inside | extent.equals(0)
        with self.when(~allowed):
            self.accesses.append(p.name)
            fault = self._context_pointer(FAULT)
            for word, value in enumerate((self.int(len(self.accesses)), offset, p.length)):
                self.b.store(
                    value.value, self.b.gep(fault, [literal(llvm.I64, word)], source_etype=llvm.I64)
                )
            self.b.ret_void()
            self.b.position_at_end(self.function.append_basic_block("unreachable"))

    def within(self, p: Ptr, extent: IntLike) -> Ptr:
        """Check a range once, for code that would check each of its elements again and again."""
        if self.checked and p.length is not None:
            self._check(p, p.offset, as_int(self.b, extent))
        return replace(p, length=None)

    def load_scalar(self, p: Ptr, at: IntLike = 0) -> Vec:
        """One element."""
        if p.element == BFLOAT16:
            return self.widen_bf16(self.load_scalar(_raw(p), at))
        return Vec(self.b, self.b.load(self._address(p, at, 1), typ=llvm.ELEMENTS[p.element]))

    def load_int(self, p: Ptr, at: IntLike = 0) -> Int:
        """One integer element as 64 bits."""
        value = self.b.load(self._address(p, at, 1), typ=llvm.ELEMENTS[p.element])
        if p.element == "int64":
            return Int(self.b, value)
        widen = self.b.zext if p.element in ("uint8", "uint16", "uint32", "bool") else self.b.sext
        return Int(self.b, widen(value, llvm.I64))

    def load_vec(
        self, p: Ptr, at: IntLike = 0, mask: Mask | None = None, lanes: int | None = None
    ) -> Vec:
        """Consecutive elements."""
        if p.element == BFLOAT16:
            return self.widen_bf16(self.load_vec(_raw(p), at, mask, lanes))
        count = lanes or self.lanes
        kind = self.vector_type(count, p.element)
        if mask is None or count == 1:
            address = self._address(p, at, count)
            return Vec(self.b, self.b.load(address, typ=kind, align=BYTES[p.element]))
        address = self._address(p, at, self._extent(mask, count))
        return self.load_first(address, kind, BYTES[p.element], mask)

    def store(self, p: Ptr, value: Vec, at: IntLike = 0, mask: Mask | None = None) -> None:
        """Store consecutive elements."""
        if p.element == BFLOAT16:
            self.store(_raw(p), self.narrow_bf16(value), at, mask)
            return
        count = value.lanes
        if mask is None or count == 1:
            address = self._address(p, at, count)
            if p.streamed and count * BYTES[p.element] % LINE == 0:
                self.store_past(address, value)
            else:
                self.b.store(value.value, address, align=BYTES[p.element])
            return
        address = self._address(p, at, self._extent(mask, count))
        self.store_first(address, value, BYTES[p.element], mask)

    def store_int(self, p: Ptr, value: IntLike, at: IntLike = 0) -> None:
        """One integer."""
        raw, kind = as_int(self.b, value).value, llvm.ELEMENTS[p.element]
        self.store(p, Vec(self.b, raw if kind is llvm.I64 else self.b.trunc(raw, kind)), at)

    def load_pairs(
        self, p: Ptr, at: IntLike = 0, mask: Mask | None = None, lanes: int | None = None
    ) -> Vec:
        """Consecutive pairs of bfloat16 from element `at` on."""
        count = lanes or self.lanes
        kind = self.vector_type(count, "int32")
        if mask is None or count == 1:
            return Vec(self.b, self.b.load(self._address(p, at, 2 * count), typ=kind, align=2))
        if mask.lanes == 2 * count:
            return Vec(
                self.b, self.b.bitcast(self.load_vec(_raw(p), at, mask, 2 * count).value, kind)
            )
        extent = self._extent(mask, count)
        address = self._address(p, at, as_int(self.b, extent) * 2)
        return self.load_first(address, kind, 2, mask)

    def load_half_pairs(self, p: Ptr, at: IntLike, mask: Mask | None, lanes: int | None) -> Vec:
        """Consecutive bfloat16 in the lower halves of int32 lanes."""
        raw = self.load_vec(_raw(p), at, mask, lanes)
        return Vec(self.b, self.b.zext(raw.value, self.vector_type(raw.lanes, "int32")))

    def _extent(self, mask: Mask, lanes: int) -> IntLike:
        if mask.count is None:
            return lanes  # an arbitrary mask: the whole vector must lie inside
        return (mask.count < lanes).select(mask.count, lanes)

    def registered(self, p: Ptr) -> Ptr:
        """The same position as an address in a register of its own, for products with what is read.

        Intel's processors take a product apart whose operand in memory has two registers in its
        address: one instruction more for the core to pass on, which is what bounds them beside
        a busy thread of the same core.
        """
        if self.checked:
            return p
        kind = llvm.ir.FunctionType(llvm.POINTER, [llvm.POINTER])
        address = self.b.asm(kind, "", "=r,0", [self._address(p, 0, 1)], False)
        return replace(p, base=address, offset=as_int(self.b, 0), length=None)

    def pick(self, condition: Bool, then: Ptr, other: Ptr) -> Ptr:
        """One of two positions, possibly in different buffers."""
        base = self.b.select(condition.value, then.base, other.base)
        offset = condition.select(then.offset, other.offset)
        length = None
        if then.length is not None and other.length is not None:
            length = condition.select(then.length, other.length)
        return Ptr(self, f"{then.name}|{other.name}", then.element, base, offset, length)

    def prefetch(self, p: Ptr, at: IntLike = 0, locality: int = 3, *, write: bool = False) -> None:
        """Ask for the cache line of an element, into L1 (locality 3) or L2 (2); never faults.

        Args:
            p: Where the buffer is.
            at: Which element.
            locality: How near.
            write: Whether it will be written: other cores give it up then.
        """
        address = self.b.gep(p.base, [(p.offset + at).value], source_etype=llvm.ELEMENTS[p.element])
        fetch = self._intrinsic(
            "llvm.prefetch.p0", llvm.ir.VoidType(), [llvm.POINTER, llvm.I32, llvm.I32, llvm.I32]
        )
        self.b.call(fetch, [address, *(literal(llvm.I32, v) for v in (int(write), locality, 1))])


def _raw(p: Ptr) -> Ptr:
    """The bits of a buffer of bfloat16."""
    return replace(p, element="int16")
