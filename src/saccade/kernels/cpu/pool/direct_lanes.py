"""What a vector of a pool holds while windows are joined: how it is loaded, joined and stored.

Float32 elements are their own. bfloat16 ones stay in vectors of twice as many:

- Maxima compare integers. `key(x)` is the bits of `x` where its sign is clear, else 0x7f80 less
  these: in the order of the numbers, with -0 below 0 and NaN of either sign above infinity. `key`
  is its own inverse but for NaN, whose sign becomes clear. Nothing is rounded, and NaN is kept
  without a look for it.
- Sums take the even and the odd elements apart, each as float32, which a shift and a mask do
  without moving them between lanes. They meet again when a result is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.language import Ptr, Var
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec, literal
from saccade.ir.expr import IDENTITY
from saccade.kernels.cpu.pointwise.vector_elements import to_float

if TYPE_CHECKING:
    from saccade.kernels.cpu.pool.direct_code import PoolCode

__all__ = [
    "Floats",
    "Halves",
    "Lanes",
    "Ordered",
    "Reciprocal",
    "Value",
    "lanes_of",
    "vector_lanes",
]

_NEGATIVE = 0x7F80  # what the bits of a negative bfloat16 are taken from

Value: TypeAlias = tuple[Vec, ...]
"""The elements of one vector."""


def vector_lanes(element: str, lanes: int) -> int:
    """Elements of a vector of `lanes` float32."""
    return 2 * lanes if element == BFLOAT16 else lanes


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """One over a number of taps: a float32 not above it, and what is missing.

    Sums times both, added up in one `fma`, are as good as divided, and infinite ones stay that.
    Nothing is missing of powers of two.
    """

    below: Vec
    rest: Vec | None

    def of(self, total: Vec, pool: PoolCode) -> Vec:
        """A sum's share."""
        if self.rest is None:
            return total * self.below
        return pool.k.fma(total, self.below, total * self.rest)


class Lanes:
    """Float32 lanes, one vector: what the others differ from."""

    def __init__(self, pool: PoolCode) -> None:
        self.pool, self.k = pool, pool.k
        self.width = vector_lanes(pool.config.element, pool.k.lanes)

    def load(self, x: Ptr, at: Int, mask: Mask | None) -> Value:
        """A vector from memory; masked lanes are as good as zero."""
        raise NotImplementedError

    def join(self, a: Value, b: Value) -> Value:
        """The larger elements, or the sums."""
        raise NotImplementedError

    def look(self, loaded: Sequence[Value]) -> None:
        """Note what `join` would lose."""

    def kept(self, value: Value, bits: Vec) -> Value:
        """The value where all of the bits are set, zero where none is."""
        b = self.k.b
        # Bits, not a product: infinity times 0 is NaN.
        masked = [b.and_(b.bitcast(v.value, bits.type), bits.value) for v in value]
        return tuple(Vec(b, b.bitcast(m, v.type)) for m, v in zip(masked, value, strict=True))

    def share(self, value: Value, share: Reciprocal) -> Value:
        """Means from sums."""
        return tuple(share.of(v, self.pool) for v in value)

    def floats(self, value: Value) -> Sequence[Vec]:
        """The elements in order, in vectors of float32 lanes."""
        raise NotImplementedError

    def store(
        self, value: Value, y: Ptr, place: Sequence[IntLike], at: Int, left: Int | None
    ) -> None:
        """The results of one window, after the epilogue.

        Args:
            value: What was joined.
            y: Where they go.
            place: Image, row and column of the window.
            at: Channel of the first lane.
            left: Channels from there on that exist, where not all of the lanes do.
        """
        pool, k = self.pool, self.k
        for i, part in enumerate(self.floats(value)):
            channel = at + i * k.lanes
            mask = None if left is None else k.first(left - i * k.lanes)
            y.store(pool.finish.apply(part, place, channel, mask), i * k.lanes, mask)

    @property
    def plain(self) -> bool:
        """Whether results are stored as bfloat16 as they are."""
        code = self.pool.config.finish
        return code.expr == str(IDENTITY) and code.element == BFLOAT16

    def _store_raw(self, raw: Vec, y: Ptr, left: Int | None) -> None:
        mask = None if left is None else self.k.first(left, raw.lanes)
        y.viewed("int16").store(raw, mask=mask)


class Floats(Lanes):
    """Float32 lanes; the maximum instruction loses NaN, so it is looked for.

    Args:
        pool: The kernel's parameters.
        nan: Set in the lanes in which a maximum met a NaN.
    """

    def __init__(self, pool: PoolCode, nan: Var) -> None:
        super().__init__(pool)
        self.nan = nan
        self.maximum = pool.config.kind == "max"

    def load(self, x: Ptr, at: Int, mask: Mask | None) -> Value:
        return (to_float(self.k, x.vec(at, mask), self.pool.config.element),)

    def join(self, a: Value, b: Value) -> Value:
        (one,), (two,) = a, b
        return (self.k.maximum(one, two) if self.maximum else one + two,)

    def look(self, loaded: Sequence[Value]) -> None:
        """One unordered comparison sees to two vectors."""
        if not self.maximum:
            return
        b, nan = self.k.b, self.nan.get().value
        # The last of an odd number is compared with itself.
        for (one,), (two,) in zip(loaded[::2], [*loaded[1::2], loaded[-1]], strict=False):
            nan = b.or_(nan, b.fcmp_unordered("uno", one.value, two.value))
        self.nan.set(Vec(b, nan))

    def floats(self, value: Value) -> Sequence[Vec]:
        return value


class Ordered(Lanes):
    """Maxima of bfloat16, as integers in the same order."""

    def load(self, x: Ptr, at: Int, mask: Mask | None) -> Value:
        return (self._key(x.viewed("int16").vec(at, mask, self.width)),)

    def join(self, a: Value, b: Value) -> Value:
        return (self.k.call("smax", *a, *b),)

    def floats(self, value: Value) -> Sequence[Vec]:
        k, raw = self.k, self._key(*value)
        halves = (range(i, i + k.lanes) for i in (0, k.lanes))
        return [k.widen_bf16(k.shuffle(raw, raw, half)) for half in halves]

    def store(
        self, value: Value, y: Ptr, place: Sequence[IntLike], at: Int, left: Int | None
    ) -> None:
        if self.plain:
            self._store_raw(self._key(*value), y, left)
        else:
            super().store(value, y, place, at, left)

    def _key(self, raw: Vec) -> Vec:
        b = self.k.b
        negative = b.icmp_signed("<", raw.value, literal(raw.type, 0))
        flipped = b.sub(literal(raw.type, _NEGATIVE), raw.value)
        return Vec(b, b.select(negative, flipped, raw.value))


class Halves(Lanes):
    """Sums of bfloat16: the even and the odd elements as float32."""

    def load(self, x: Ptr, at: Int, mask: Mask | None) -> Value:
        k = self.k
        raw = x.viewed("int16").vec(at, mask, self.width)
        return k.split_pair(Vec(k.b, k.b.bitcast(raw.value, k.vector_type(k.lanes, "int32"))))

    def join(self, a: Value, b: Value) -> Value:
        return tuple(one + two for one, two in zip(a, b, strict=True))

    def share(self, value: Value, share: Reciprocal) -> Value:
        """What the product lacks of a mean is less than rounding to bfloat16 notices."""
        if self.plain:
            return tuple(v * share.below for v in value)
        return super().share(value, share)

    def floats(self, value: Value) -> Sequence[Vec]:
        (even, odd), lanes = value, self.k.lanes
        # Even and odd elements take turns again.
        order = [i + half for i in range(lanes) for half in (0, lanes)]
        return [self.k.shuffle(even, odd, order[i : i + lanes]) for i in (0, lanes)]

    def store(
        self, value: Value, y: Ptr, place: Sequence[IntLike], at: Int, left: Int | None
    ) -> None:
        if not self.plain:
            super().store(value, y, place, at, left)
            return
        even, odd = value
        self._store_raw(self.k.narrow_pairs(even, odd), y, left)


def lanes_of(pool: PoolCode, nan: Var) -> Lanes:
    """How a pool's vectors are held."""
    if pool.config.element != BFLOAT16:
        return Floats(pool, nan)
    return Ordered(pool) if pool.config.kind == "max" else Halves(pool)
