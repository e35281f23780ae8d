"""Loads and stores of the first elements of a vector, by what the target has for them.

AVX-512 masks any element. AVX2 masks elements of 32 bits and more, and is slow to store under a
mask even if all of it is set; 64-bit Arm masks nothing. LLVM would take such an access apart, into
a branch for every element. Here small elements go in pairs, and what is left of an odd count alone:
loads without a branch, from a harmless address where there is nothing to load; stores with a branch
for whole vectors, which most of them are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.bfloat16 import BFloat16
from saccade.backends.cpu.codegen.control import Control
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec, literal, vector_of
from saccade.backends.cpu.codegen.vectors import type_suffix

__all__ = ["Masked"]


class Masked(Control, BFloat16):
    """Accesses by address and LLVM type; alignment in bytes."""

    _args: Any

    def load_first(self, address: Any, kind: Any, align: int, mask: Mask) -> Vec:  # noqa: ANN401
        """A vector of which only the lanes that are set are read; 0 in the others."""
        count = mask.count
        if count is None or self._takes_masks(kind.element):
            return Vec(self.b, self._masked_load(address, kind, align, mask.value))
        paired = self._load_pairs(address, kind, align, count)
        place = self._if(count > 0, address, kind.element, count - 1)
        last = Vec(self.b, self.b.load(place, typ=kind.element, align=align))
        at_last = self._compare("==", range(kind.count), count - 1)
        spread = self.broadcast(last, kind.count)
        return Vec(self.b, self.b.select(at_last, spread.value, paired))

    def store_first(self, address: Any, value: Vec, align: int, mask: Mask) -> None:  # noqa: ANN401
        """Store the lanes that are set."""
        count = mask.count
        if count is None or self._takes_masks(llvm.I8):
            self._masked_store(address, value.value, align, mask.value)
            return
        with self.when_else(count >= value.lanes) as (whole, part):
            with whole:
                self.b.store(value.value, address, align=align)
            with part:
                if self._takes_masks(value.type.element):
                    self._masked_store(address, value.value, align, mask.value)
                else:
                    self._store_pairs(address, value, align, count)
                    self._store_odd(address, value, align, count)

    def _takes_masks(self, element: Any) -> bool:  # noqa: ANN401
        """Whether the target masks accesses of these elements."""
        least = self.target.least_masked
        return least is not None and _bits(element) >= least

    def _masked_load(self, address: Any, kind: Any, align: int, mask: Any) -> Any:  # noqa: ANN401
        name = f"llvm.masked.load.{type_suffix(kind)}.p0"
        load = self._intrinsic(
            name, kind, [llvm.POINTER, llvm.I32, vector_of(llvm.I1, kind.count), kind]
        )
        return self.b.call(load, [address, literal(llvm.I32, align), mask, _zero(kind)])

    def _masked_store(self, address: Any, value: Any, align: int, mask: Any) -> None:  # noqa: ANN401
        kind = value.type
        name = f"llvm.masked.store.{type_suffix(kind)}.p0"
        operands = [kind, llvm.POINTER, llvm.I32, vector_of(llvm.I1, kind.count)]
        store = self._intrinsic(name, llvm.ir.VoidType(), operands)
        self.b.call(store, [value, address, literal(llvm.I32, align), mask])

    # Pairs

    def _load_pairs(self, address: Any, kind: Any, align: int, count: Int) -> Any:  # noqa: ANN401
        """The whole pairs among the first `count` elements, 0 in the other lanes."""
        pair = llvm.ir.IntType(2 * _bits(kind.element))
        starts = range(1, kind.count, 2)
        if kind.count > 2 and self._takes_masks(pair):
            mask = self._compare("<", starts, count)
            loaded = self._masked_load(address, vector_of(pair, kind.count // 2), align, mask)
            return self.b.bitcast(loaded, kind)
        pairs: Any = llvm.ir.Constant(llvm.ir.VectorType(pair, kind.count // 2), llvm.ir.Undefined)
        for i, odd in enumerate(starts):
            place = self._if(count > odd, address, kind.element, self.int(odd - 1))
            one = self.b.load(place, typ=pair, align=align)
            pairs = self.b.insert_element(pairs, one, literal(llvm.I32, i))
        # What came from elsewhere is not zero.
        within = self._compare("<", (lane | 1 for lane in range(kind.count)), count)
        return self.b.select(within, self.b.bitcast(pairs, kind), _zero(kind))

    def _store_pairs(self, address: Any, value: Vec, align: int, count: Int) -> None:  # noqa: ANN401
        """Store the whole pairs among the first `count` of not all elements."""
        element, lanes = value.type.element, value.lanes
        if lanes == 2:
            return
        pair = llvm.ir.IntType(2 * _bits(element))
        pairs = self.b.bitcast(value.value, vector_of(pair, lanes // 2))
        if self._takes_masks(pair):
            mask = self._compare("<", range(1, lanes, 2), count)
            self._masked_store(address, pairs, align, mask)
            return
        for i in range(lanes // 2 - 1):
            with self.when(count > 2 * i + 1):
                place = self._at(address, element, self.int(2 * i))
                one = self.b.extract_element(pairs, literal(llvm.I32, i))
                self.b.store(one, place, align=align)

    def _store_odd(self, address: Any, value: Vec, align: int, count: Int) -> None:  # noqa: ANN401
        """Store the last of an odd count."""
        with self.when((count % 2).differs(0)):
            last = count - 1
            one = self.b.extract_element(value.value, last.value)
            self.b.store(one, self._at(address, value.type.element, last), align=align)

    def _at(self, address: Any, element: Any, index: Int) -> Any:  # noqa: ANN401
        return self.b.gep(address, [index.value], source_etype=element)

    def _if(self, condition: Bool, address: Any, element: Any, index: Int) -> Any:  # noqa: ANN401
        """The address of an element, or one that can be read where the condition does not hold."""
        return self.b.select(condition.value, self._at(address, element, index), self._args)

    def _compare(self, sign: str, numbers: Iterable[int], other: Int) -> Any:  # noqa: ANN401
        """Numbers of lanes compared with an integer."""
        fixed = list(numbers)
        kind = vector_of(llvm.I32, len(fixed))
        narrow = Vec(self.b, self.b.trunc(other.value, llvm.I32))
        spread = self.broadcast(narrow, len(fixed))
        return self.b.icmp_signed(sign, llvm.ir.Constant(kind, fixed), spread.value)


def _zero(kind: Any) -> Any:  # noqa: ANN401
    """0 in every lane."""
    return literal(kind, 0 if isinstance(kind.element, llvm.ir.IntType) else 0.0)


def _bits(element: Any) -> int:  # noqa: ANN401
    """Width of a number's LLVM type."""
    return {"half": 16, "float": 32, "double": 64}.get(str(element)) or int(element.width)
