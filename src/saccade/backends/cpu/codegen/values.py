"""Typed values of the kernel language: integers, booleans, vectors, masks.

They wrap LLVM values and overload Python's operators, so that address arithmetic and arithmetic on
vectors read as they would on paper. Python numbers mix in freely and fold at emission.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from saccade.backends.cpu.codegen import llvm

__all__ = [
    "Bool", "Int", "IntLike", "Mask", "Vec",
    "as_int", "lanes_picked", "literal", "vector_of",
]  # fmt: skip

IntLike: TypeAlias = "Int | int"
Builder: TypeAlias = Any  # llvmlite.ir.IRBuilder, which carries no types

# Types and literals are shared: llvmlite keeps the text of each object that it has printed, and a
# third of its time went into printing the same vectors of constants again.


@lru_cache(maxsize=256)
def vector_of(element: Any, lanes: int) -> Any:  # noqa: ANN401
    """LLVM's type of a vector; the element's own for one lane."""
    return element if lanes == 1 else llvm.ir.VectorType(element, lanes)


def literal(kind: Any, number: float) -> Any:  # noqa: ANN401
    """A number of this type, in every lane of a vector."""
    return _literal(kind, number, str(kind), repr(number))


@lru_cache(maxsize=4096)
def _literal(kind: Any, number: float, _kind: str, _number: str) -> Any:  # noqa: ANN401
    """The texts tell apart what compares equal: -0.0 and 0.0."""
    return (llvm.Splat if isinstance(kind, llvm.ir.VectorType) else llvm.ir.Constant)(kind, number)


@lru_cache(maxsize=1024)
def lanes_picked(order: tuple[int, ...]) -> Any:  # noqa: ANN401
    """Numbers of lanes, as a shuffle wants them."""
    return llvm.ir.Constant(llvm.ir.VectorType(llvm.I32, len(order)), list(order))


class Int:
    """A 64-bit integer: sizes, indices, offsets.

    Division and remainder expect non-negative operands.
    """

    __slots__ = ("b", "value")

    def __init__(self, builder: Builder, value: Any) -> None:  # noqa: ANN401
        self.b = builder
        self.value = value

    def _other(self, other: IntLike) -> Any:  # noqa: ANN401
        return literal(llvm.I64, other) if isinstance(other, int) else other.value

    def _new(self, value: Any) -> Int:  # noqa: ANN401
        return Int(self.b, value)

    def __add__(self, other: IntLike) -> Int:
        if isinstance(other, int) and other == 0:
            return self
        return self._new(self.b.add(self.value, self._other(other), flags=("nsw",)))

    __radd__ = __add__

    def __sub__(self, other: IntLike) -> Int:
        return self._new(self.b.sub(self.value, self._other(other), flags=("nsw",)))

    def __rsub__(self, other: int) -> Int:
        return self._new(self.b.sub(self._other(other), self.value, flags=("nsw",)))

    def __mul__(self, other: IntLike) -> Int:
        if isinstance(other, int) and other == 1:
            return self
        return self._new(self.b.mul(self.value, self._other(other), flags=("nsw",)))

    __rmul__ = __mul__

    def __neg__(self) -> Int:
        return 0 - self

    def __floordiv__(self, other: IntLike) -> Int:
        return self._new(self.b.udiv(self.value, self._other(other)))

    def __mod__(self, other: IntLike) -> Int:
        return self._new(self.b.urem(self.value, self._other(other)))

    def __and__(self, other: IntLike) -> Int:
        return self._new(self.b.and_(self.value, self._other(other)))

    def __or__(self, other: IntLike) -> Int:
        return self._new(self.b.or_(self.value, self._other(other)))

    def __xor__(self, other: IntLike) -> Int:
        return self._new(self.b.xor(self.value, self._other(other)))

    def __lshift__(self, other: IntLike) -> Int:
        return self._new(self.b.shl(self.value, self._other(other)))

    def __rshift__(self, other: IntLike) -> Int:
        """Zeros come in from above."""
        return self._new(self.b.lshr(self.value, self._other(other)))

    def _compare(self, sign: str, other: IntLike) -> Bool:
        return Bool(self.b, self.b.icmp_signed(sign, self.value, self._other(other)))

    def __lt__(self, other: IntLike) -> Bool:
        return self._compare("<", other)

    def __le__(self, other: IntLike) -> Bool:
        return self._compare("<=", other)

    def __gt__(self, other: IntLike) -> Bool:
        return self._compare(">", other)

    def __ge__(self, other: IntLike) -> Bool:
        return self._compare(">=", other)

    def equals(self, other: IntLike) -> Bool:
        """Whether both are the same number."""
        return self._compare("==", other)

    def differs(self, other: IntLike) -> Bool:
        """Whether they are different numbers."""
        return self._compare("!=", other)


class Bool:
    """A condition."""

    __slots__ = ("b", "value")

    def __init__(self, builder: Builder, value: Any) -> None:  # noqa: ANN401
        self.b = builder
        self.value = value

    def __and__(self, other: Bool) -> Bool:
        return Bool(self.b, self.b.and_(self.value, other.value))

    def __or__(self, other: Bool) -> Bool:
        return Bool(self.b, self.b.or_(self.value, other.value))

    def __invert__(self) -> Bool:
        return Bool(self.b, self.b.not_(self.value))

    def select(self, then: IntLike, other: IntLike) -> Int:
        """`then` where the condition holds, else `other`."""
        a, c = as_int(self.b, then), as_int(self.b, other)
        return Int(self.b, self.b.select(self.value, a.value, c.value))

    def choose(self, then: Vec, other: Vec) -> Vec:
        """All lanes of `then` where the condition holds, else those of `other`."""
        return Vec(self.b, self.b.select(self.value, then.value, other.value))


class Mask:
    """One condition per lane."""

    __slots__ = ("b", "count", "value")

    def __init__(self, builder: Builder, value: Any, count: Int | None = None) -> None:  # noqa: ANN401
        self.b = builder
        self.value = value
        self.count = count  # set when the mask is "the first `count` lanes"

    @property
    def lanes(self) -> int:
        """Number of conditions."""
        return int(self.value.type.count)

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.b, self.b.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.b, self.b.or_(self.value, other.value))

    def __invert__(self) -> Mask:
        return Mask(self.b, self.b.not_(self.value))

    def select(self, then: Vec, other: Vec) -> Vec:
        """Lane by lane, `then` or `other`."""
        return Vec(self.b, self.b.select(self.value, then.value, other.value))


class Vec:
    """A vector of floats, or a scalar when its LLVM type is one.

    Arithmetic is plain IEEE: nothing reassociates.
    """

    __slots__ = ("b", "value")

    def __init__(self, builder: Builder, value: Any) -> None:  # noqa: ANN401
        self.b = builder
        self.value = value

    @property
    def type(self) -> Any:  # noqa: ANN401
        """LLVM type."""
        return self.value.type

    @property
    def lanes(self) -> int:
        """Number of elements."""
        return getattr(self.value.type, "count", 1)

    def like(self, number: float) -> Vec:
        """A constant of the same type, `number` in every lane."""
        return Vec(self.b, literal(self.type, number))

    def _other(self, other: Vec | float) -> Any:  # noqa: ANN401
        return other.value if isinstance(other, Vec) else self.like(other).value

    def __add__(self, other: Vec | float) -> Vec:
        return Vec(self.b, self.b.fadd(self.value, self._other(other)))

    def __radd__(self, other: float) -> Vec:
        return Vec(self.b, self.b.fadd(self._other(other), self.value))

    def __sub__(self, other: Vec | float) -> Vec:
        return Vec(self.b, self.b.fsub(self.value, self._other(other)))

    def __rsub__(self, other: float) -> Vec:
        return Vec(self.b, self.b.fsub(self._other(other), self.value))

    def __mul__(self, other: Vec | float) -> Vec:
        return Vec(self.b, self.b.fmul(self.value, self._other(other)))

    def __rmul__(self, other: float) -> Vec:
        return Vec(self.b, self.b.fmul(self._other(other), self.value))

    def __truediv__(self, other: Vec | float) -> Vec:
        return Vec(self.b, self.b.fdiv(self.value, self._other(other)))

    def __rtruediv__(self, other: float) -> Vec:
        return Vec(self.b, self.b.fdiv(self._other(other), self.value))

    def __neg__(self) -> Vec:
        return Vec(self.b, self.b.fneg(self.value))

    def compare(self, sign: str, other: Vec | float) -> Mask:
        """Ordered comparison (`< <= == != > >=`; NaN makes all but `!=` false)."""
        if sign == "!=":
            return Mask(self.b, self.b.fcmp_unordered("!=", self.value, self._other(other)))
        return Mask(self.b, self.b.fcmp_ordered(sign, self.value, self._other(other)))


def as_int(builder: Builder, value: IntLike) -> Int:
    """An Int, from an Int or a Python integer."""
    return Int(builder, literal(llvm.I64, value)) if isinstance(value, int) else value
