"""`TopK`: the best elements of each row by a radix sort of those that can be among them.

A row is read once for integer keys that fall as elements rise; their upper twelve bits are counted,
which tells what no key of the best exceeds. Only keys up to there are sorted, with the places that
they came from: equal elements keep their order. Rows are chunks; any of them may be strided, as
long as operand and results are row-major. float64 and integers narrower than 32 bits are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, literal
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out, Scratch
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.nms.config import DIGITS, RADIX
from saccade.kernels.cpu.nms.score_order import RadixSort, falling
from saccade.kernels.cpu.refusals import refuse_gaps, refuse_other_types, refuse_types
from saccade.opdefs.select import TopK

__all__ = ["TOP_K", "TopKConfig"]

_BUCKET_BITS = 12  # upper ones of a key: sign, exponent and three more of a float32
_FEW = 256  # rows of so many elements are sorted whole


@dataclass(frozen=True)
class TopKConfig:
    """What the code depends on.

    Attributes:
        element: Element type of x.
        largest: Of the operator.
        counted: Whether keys are counted first, so that most need not be sorted.
    """

    element: str
    largest: bool
    counted: bool

    @property
    def key(self) -> str:
        """The type whose bits a key has."""
        return self.element if self.element == "int64" else "float32"


def supports(call: CpuCall) -> str | None:
    """Why this kernel cannot take the call."""
    known = {DType.F32, DType.F16, DType.BF16, DType.I32, DType.I64}
    moved = (call.inputs[0], call.outputs[0])
    refused = refuse_types(call.inputs, known) or refuse_other_types(moved)
    return refused or refuse_gaps((*call.inputs, *call.outputs))


def launch(call: CpuCall) -> tuple[Launch, ...]:
    """One phase, a chunk for each row."""
    x, op = call.inputs[0], call.op
    size, inner = x.shape[op.axis], prod(x.shape[op.axis + 1 :])
    k = call.outputs[0].shape[op.axis]
    rows = prod(x.shape[: op.axis]) * inner
    config = TopKConfig(x.dtype.value, op.largest, size > _FEW and 2 * k < size)
    words = 8 * max(size, 1)
    operands: dict[str, Operand] = {
        "values": Out(0),
        "places": Out(1),
        "x": In(0),
        "all": Scratch(words),
        "buckets": Scratch(4 << _BUCKET_BITS),
        "keys": Scratch(2 * words),
        "items": Scratch(2 * words),
        "histogram": Scratch(4 * DIGITS[config.key] * RADIX),
    }
    integers = {"rows": rows, "size": size, "inner": inner, "best": k}
    return (Launch(config, operands, integers, rows if k else 0),)


def emit(k: KernelBuilder, config: TopKConfig) -> None:
    """The code of one configuration."""
    _TopK(k, config).emit()


class _TopK:
    def __init__(self, k: KernelBuilder, config: TopKConfig) -> None:
        self.k, self.config = k, config
        self.values, self.places = k.pointer("values", config.element), k.pointer("places", "int64")
        self.x = k.pointer("x", config.element)
        self.all, self.buckets = k.scratch("all", "int64"), k.scratch("buckets", "int32")
        keys, items = k.scratch("keys", "int64"), k.scratch("items", "int64")
        histogram = k.scratch("histogram", "int32")
        self.sort = RadixSort(k, keys, items, histogram, DIGITS[config.key])
        self.shift = 8 * DIGITS[config.key] - _BUCKET_BITS
        self.rows, self.size, self.inner, self.best = k.integers("rows size inner best")

    def emit(self) -> None:
        k = self.k
        with k.chunks(self.rows) as row:
            outer, inner = row // self.inner, row % self.inner
            source = self.x + (outer * self.size * self.inner + inner)
            self.sort.clear()
            if self.config.counted:
                count = self._note_best(source)
            else:
                count = self.size
                with k.range(0, self.size) as i:
                    self.sort.note(self._key(source, i), i, i)
            start = self.sort.sort(count)
            to = outer * self.best * self.inner + inner
            with k.range(0, self.best) as j:
                place = self.sort.items.load_int(start + j)
                at = to + j * self.inner
                self.places.store_int(place, at)
                self.values.store(source.load(place * self.inner), at)

    def _note_best(self, source: Ptr) -> Int:
        """Note the keys that can be among the best; how many they are."""
        k = self.k
        with k.range(0, 1 << _BUCKET_BITS) as bucket:
            self.buckets.store_int(0, bucket)
        with k.range(0, self.size) as i:
            key = self._key(source, i)
            self.all.store_int(key, i)
            bucket = self._bucket(key)
            self.buckets.store_int(self.buckets.load_int(bucket) + 1, bucket)
        seen, last = k.var(0), k.var(0)
        with k.repeat_while(lambda: seen.get() < self.best):
            seen.set(seen.get() + self.buckets.load_int(last.get()))
            last.set(last.get() + 1)
        end, count = last.get(), k.var(0)
        with k.range(0, self.size) as i:
            key = self.all.load_int(i)
            with k.when(self._bucket(key) < end):
                self.sort.note(key, i, count.get())
                count.set(count.get() + 1)
        found: Int = count.get()
        return found

    def _bucket(self, key: Int) -> Int:
        return (key >> self.shift) & ((1 << _BUCKET_BITS) - 1)

    def _key(self, source: Ptr, i: Int) -> Int:
        """Bits that rise, as an unsigned number, from the best element to the worst."""
        k, b, config = self.k, self.k.b, self.config
        at = i * self.inner
        if config.element in ("int32", "int64"):
            bits = 64 if config.element == "int64" else 32
            # As unsigned numbers, integers with their sign inverted keep their order.
            value = source.load_int(at).value
            rising = b.xor(value, literal(llvm.I64, -(1 << 63) if bits == 64 else 1 << 31))
            key = b.not_(rising) if config.largest else rising
            mask = literal(llvm.I64, -1 if bits == 64 else (1 << 32) - 1)
            return Int(b, b.and_(key, mask))
        falls = falling(k, floats.load_one(k, source, at, "float32"), "float32")
        return falls if config.largest else falls ^ ((1 << 32) - 1)


def cost(call: CpuCall) -> float:
    """Microseconds: an element at a time is counted, and looked at once more."""
    x, rows = call.inputs[0], call.outputs[0]
    k = call.outputs[0].shape[call.op.axis]
    passes = DIGITS["float32"] * rows.size if k else 0
    return machine(call.target).roofline(64.0 * (x.size + passes), x.nbytes, call.threads, 0.5)


TOP_K = CpuKernel("select.top_k", (TopK,), TopKConfig, supports, single_variant(launch, cost), emit)
