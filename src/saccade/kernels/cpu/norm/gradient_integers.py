"""Elements as integers: which of them are a norm, and their gradient for p = ±∞.

An element is tied where its bits but the sign are the norm's; a norm that elements cannot hold
ties with nothing. So 16-bit elements are not widened, and nothing is multiplied: the gradient is
one of two numbers for each result, with the element's sign or without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.backends.cpu.codegen import llvm, math
from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Mask, Vec, literal, vector_of
from saccade.ir import DType

__all__ = ["Bits", "Marks"]


@dataclass(frozen=True, slots=True)
class Marks:
    """What the gradient of some results is made of, in bits of elements.

    Attributes:
        norm: What ties.
        tied: Gradient of tied elements that are positive.
        other: Of all others.
    """

    norm: Vec
    tied: Vec
    other: Vec


class Bits:
    """Arithmetic on bits of one type of elements.

    Args:
        k: Builder.
        element: Type of x and its gradient.
        wide: Element of norms and factors.

    Attributes:
        name: The integer of an element's size.
    """

    def __init__(self, k: KernelBuilder, element: str, wide: str) -> None:
        self.k, self._element, self._wide = k, element, wide
        self._width = 8 * DType(element).itemsize
        self.name = f"int{self._width}"

    def constant(self, lanes: int, number: int) -> Vec:
        """An integer in every lane."""
        return Vec(self.k.b, literal(vector_of(llvm.ir.IntType(self._width), lanes), number))

    def tied(self, x: Vec, norm: Vec) -> Mask:
        """Where elements are norms, but for their signs."""
        b, size = self.k.b, self.constant(x.lanes, (1 << (self._width - 1)) - 1)
        return Mask(b, b.icmp_signed("==", b.and_(x.value, size.value), norm.value))

    def marked(self, x: Vec, marks: Marks) -> Vec:
        """The gradient of elements."""
        b = self.k.b
        # `_nothing` has the bit of the sign, and no other.
        sign = b.and_(x.value, self._nothing(x.lanes).value)
        signed = Vec(b, b.xor(marks.tied.value, sign))
        return self.tied(x, marks.norm).select(signed, marks.other)

    def of_norm(self, norm: Vec) -> Vec:
        """Elements that are norms; what no element is without its sign, where there are none."""
        bits, same = self._exact(norm)
        found = same & norm.compare("==", norm)
        return found.select(bits, self._nothing(norm.lanes))

    def marks(self, norm: Vec, factor: Vec) -> Marks:
        """For elements that are norms and the gradient of each that is tied."""
        # A tied zero has no sign: its gradient is that of others.
        zero = self.constant(norm.lanes, 0)
        some = Mask(self.k.b, self.k.b.icmp_signed("!=", norm.value, zero.value))
        tied = some.select(norm, self._nothing(norm.lanes))
        # The product with 0 is NaN where the factor is infinite, as PyTorch's is.
        return Marks(tied, self._rounded(factor), self._rounded(factor * 0.0))

    def _nothing(self, lanes: int) -> Vec:
        # The sign alone, which `tied` takes off what it compares.
        return self.constant(lanes, -1 << (self._width - 1))

    def _exact(self, norm: Vec) -> tuple[Vec, Mask]:
        """Bits of the nearest elements, and which of them are the norms."""
        k = self.k
        if self._element == BFLOAT16:
            # Cut rather than rounded: the conversion takes denormal numbers for zero.
            bits, kind = math.bits(k, norm), vector_of(llvm.I32, norm.lanes)
            low = k.b.icmp_signed("==", k.b.and_(bits, literal(kind, 0xFFFF)), literal(kind, 0))
            narrow = vector_of(llvm.I16, norm.lanes)
            return Vec(k.b, k.b.trunc(k.b.lshr(bits, literal(kind, 16)), narrow)), Mask(k.b, low)
        near = k.convert(norm, self._element)
        return self._bits(near), k.convert(near, self._wide).compare("==", norm)

    def _rounded(self, value: Vec) -> Vec:
        if self._element == BFLOAT16:
            return self.k.narrow_bf16(value)
        return self._bits(self.k.convert(value, self._element))

    def _bits(self, value: Vec) -> Vec:
        kind: Any = vector_of(llvm.ir.IntType(self._width), value.lanes)
        return Vec(self.k.b, self.k.b.bitcast(value.value, kind))
