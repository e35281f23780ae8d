"""Sorting: numbers of elements by falling score, or with equal groups side by side.

A radix sort by the digits of integer keys, the lowest first, each pass stable. All digits are
counted while the keys are made; one that is the same everywhere (small groups have seven of them)
costs nothing more. A score becomes an integer that falls as it rises: NaN is 0, both zeros are one.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, Vec, literal
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.nms.config import DIGITS, RADIX, NmsConfig

__all__ = ["RadixSort", "emit_order", "falling"]


class RadixSort:
    """Sorts items by integer keys, for as many as are noted.

    The two halves of `keys` and `items` take turns as source and destination of a pass.

    Attributes:
        keys, items: Two halves, of as many int64 as there are items at most.
        histogram: Counters of all values of all digits.
        digits: Of a key.
    """

    def __init__(
        self, k: KernelBuilder, keys: Ptr, items: Ptr, histogram: Ptr, digits: int
    ) -> None:
        self.k, self.keys, self.items, self.histogram = k, keys, items, histogram
        self.digits = digits

    def clear(self) -> None:
        """Nothing is noted."""
        k = self.k
        zero = Vec(k.b, literal(k.vector_type(k.lanes, "int32"), 0))
        with k.range(0, self.digits * RADIX, k.lanes) as i:
            self.histogram.store(zero, i)

    def note(self, key: Int, item: Int, place: Int) -> None:
        """Another item, at the next place."""
        self.keys.store_int(key, place)
        self.items.store_int(item, place)
        for digit in range(self.digits):
            counters = self.histogram + digit * RADIX
            at = self._digit(key, digit * 8)
            counters.store_int(counters.load_int(at) + 1, at)

    def sort(self, size: Int) -> Int:
        """Sort the first `size` of them, one at least; where the sorted half begins."""
        k = self.k
        source = k.var(0)
        with k.range(0, self.digits) as digit:
            counters = self.histogram + digit * RADIX
            shift = digit * 8
            # A value that is counted as often as there are keys is everybody's digit.
            same = self._digit(self.keys.load_int(source.get()), shift)
            with k.when(counters.load_int(same).differs(size)):
                start = source.get()
                other = size - start
                self._accumulate(counters)
                self._scatter(counters, shift, start, other, size)
                source.set(other)
        found: Int = source.get()
        return found

    def _digit(self, key: Int, shift: Int | int) -> Int:
        return (key >> shift) & (RADIX - 1)

    def _accumulate(self, counters: Ptr) -> None:
        """Counts to the places where each value begins."""
        k = self.k
        total = k.var(0)
        with k.range(0, RADIX) as value:
            count = counters.load_int(value)
            counters.store_int(total.get(), value)
            total.set(total.get() + count)

    def _scatter(self, counters: Ptr, shift: Int, start: Int, other: Int, size: Int) -> None:
        k = self.k
        with k.range(0, size) as i:
            key = self.keys.load_int(start + i)
            digit = self._digit(key, shift)
            place = counters.load_int(digit)
            counters.store_int(place + 1, digit)
            self.keys.store_int(key, other + place)
            self.items.store_int(self.items.load_int(start + i), other + place)


def falling(k: KernelBuilder, score: Vec, kind: str) -> Int:
    """Bits that fall, as an unsigned number, where the score rises."""
    b = k.b
    integer, width = (llvm.I64, 64) if kind == "float64" else (llvm.I32, 32)
    # -0 + 0 is 0.
    positive_zero = score + 0.0
    bits = b.bitcast(positive_zero.value, integer)
    sign = b.ashr(bits, literal(integer, width - 1))
    # Complements of: bits with the highest one set, or all inverted where it is set.
    flipped = b.xor(bits, b.and_(b.not_(sign), llvm.ir.Constant(integer, (1 << (width - 1)) - 1)))
    key = b.select(score.compare("!=", score).value, literal(integer, 0), flipped)
    return Int(b, key if width == 64 else b.zext(key, llvm.I64))


def emit_order(k: KernelBuilder, config: NmsConfig) -> None:
    """The phase that sorts by scores, or places of that order by groups."""
    _Order(k, config).emit()


class _Order:
    """Parameters: what is sorted by; for groups the order by scores and sorted keys; results."""

    def __init__(self, k: KernelBuilder, config: NmsConfig) -> None:
        self.k, self.grouped = k, config.phase == "groups"
        self.source: Ptr = k.pointer("source", config.element)
        if self.grouped:
            self.ranks = k.pointer("ranks", "int64")
            self.classes = k.pointer("classes", "int64")
        self.order = k.pointer("order", "int64")
        keys, items = k.pointer("keys", "int64"), k.pointer("items", "int64")
        self.kind = "int64" if self.grouped else floats.wide(config.element)
        histogram = k.pointer("histogram", "int32")
        self.sort = RadixSort(k, keys, items, histogram, DIGITS[self.kind])
        self.size, self.stride = k.integers("size stride")

    def emit(self) -> None:
        """Keys, a pass for each digit, the result."""
        k, sort = self.k, self.sort
        # `sort` wants one key at least.
        with k.chunks(k.minimum_int(self.size, 1)):
            sort.clear()
            with k.range(0, self.size) as i:
                sort.note(self._key(i), i, i)
            start = sort.sort(self.size)
            self._copy(sort.items, start, self.order)
            if self.grouped:
                self._copy(sort.keys, start, self.classes)

    def _key(self, i: Int) -> Int:
        if self.grouped:
            return self.source.load_int(self.ranks.load_int(i) * self.stride)
        score = floats.load_one(self.k, self.source, i * self.stride, self.kind)
        return falling(self.k, score, self.kind)

    def _copy(self, source: Ptr, start: Int, to: Ptr) -> None:
        k, half = self.k, self.k.lanes // 2
        whole = self.size // half * half
        with k.range(0, whole, half) as i:
            to.store(source.vec(start + i, lanes=half), i)
        with k.range(whole, self.size) as i:
            to.store_int(source.load_int(start + i), i)
