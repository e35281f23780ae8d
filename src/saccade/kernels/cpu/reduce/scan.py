"""CumSum, ArgMax and ArgMin: an axis is walked element by element, vectors go across.

Where the walked axis is the only one with neighbours in memory, lanes are gathered. A reversed sum
walks from the end with a negative step. NaN counts as the largest and as the smallest element, the
first one of them, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from saccade.backends.cpu.codegen import llvm, math
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Mask, Vec, literal, vector_of
from saccade.ir import DType
from saccade.kernels.base import In, Launch, Operand, Out
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.machine import machine
from saccade.kernels.cpu.movement.loop_nest import Loops, Nest, Row, collapse, inner_kind, partition
from saccade.kernels.cpu.pointwise.vector_elements import FLOATS, from_float, load, store, to_float
from saccade.kernels.cpu.refusals import refuse_repeats
from saccade.opdefs.reduce import ArgReduce, CumSum

__all__ = ["ARG_REDUCE", "CUMSUM", "ScanConfig"]


@dataclass(frozen=True)
class ScanConfig:
    """What the code depends on.

    Attributes:
        kind: `sum`, `product`, `argmax` or `argmin`; `exclusive_sum` and `exclusive_product` leave
            out an element's own.
        last: Of equal elements the last is wanted, not the first.
        elements: Element types of result and operand.
        kinds: How these meet the innermost kept axis.
        rank: Kept axes.
        counted: Whether an operand says how many elements of the walked axis there are.
    """

    kind: str
    last: bool
    elements: tuple[str, str]
    kinds: tuple[str, ...]
    rank: int
    counted: bool = False


def _sum_supports(call: CpuCall) -> str | None:
    if call.inputs[0].dtype not in FLOATS | {DType.F64, DType.I64, DType.I32}:
        return f"elements of type {call.inputs[0].dtype.value}"
    return refuse_repeats(call.outputs[0])


def _arg_supports(call: CpuCall) -> str | None:
    if call.inputs[0].dtype not in FLOATS | {DType.I64, DType.I32}:
        return f"elements of type {call.inputs[0].dtype.value}"
    return refuse_repeats(call.outputs[0])


def _phase(
    call: CpuCall, kind: str, last: bool, loops: Loops, walked: dict[str, int], starts: list[int]
) -> Launch:
    x, out = call.inputs[0], call.outputs[0]
    config = ScanConfig(
        kind, last, (out.dtype.value, x.dtype.value),
        tuple(inner_kind(s[-1]) for s in loops.strides), loops.rank, len(call.inputs) > 1,
    )  # fmt: skip
    cut = partition(loops, max(1, 16384 // max(1, walked["size"])), 16)
    integers = {**Nest.integers(loops, cut, starts), **walked}
    operands: dict[str, Operand] = {"y": Out(0), "x": In(0)}
    if config.counted:
        operands["number"] = In(1)
    return Launch(config, operands, integers, cut.chunks)


def _sum_launch(call: CpuCall) -> tuple[Launch, ...]:
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    stay = [a for a in range(len(x.shape)) if a != op.axis]
    loops = collapse([x.shape[a] for a in stay], [[v.strides[a] for a in stay] for v in (out, x)])
    n, steps = x.shape[op.axis], [v.strides[op.axis] for v in (out, x)]
    # Of an empty axis there is no last element to begin at.
    starts = [max(n - 1, 0) * s if op.reverse else 0 for s in steps]
    signed = [-s if op.reverse else s for s in steps]
    kind = ("exclusive_" if op.exclusive else "") + ("product" if op.product else "sum")
    walked = {"size": n, "to_step": signed[0], "step": signed[1]}
    return (_phase(call, kind, False, loops, walked, starts),)


def _arg_launch(call: CpuCall) -> tuple[Launch, ...]:
    op, x, out = call.op, call.inputs[0], call.outputs[0]
    stay = [a for a in range(len(x.shape)) if a != op.axis]
    places = stay if op.keepdims else list(range(len(stay)))
    strides = [[out.strides[p] for p in places], [x.strides[a] for a in stay]]
    loops = collapse([x.shape[a] for a in stay], strides)
    walked = {"size": x.shape[op.axis], "to_step": 0, "step": x.strides[op.axis]}
    return (_phase(call, op.kind, op.select_last, loops, walked, [0, 0]),)


def emit(k: KernelBuilder, config: ScanConfig) -> None:
    """The code of one configuration."""
    _Scan(k, config).emit()


class _Scan:
    def __init__(self, k: KernelBuilder, config: ScanConfig) -> None:
        self.k, self.config = k, config
        self.pointers = [k.pointer(n, e) for n, e in zip("yx", config.elements, strict=True)]
        self.number = k.pointer("number", "int64") if config.counted else None
        self.nest = Nest(k, config.rank, 2)
        self.size, self.to_step, self.step = k.integers("size to_step step")
        # float64 and integers are computed with as they are.
        self.narrow = DType(config.elements[1]) in FLOATS

    def emit(self) -> None:
        """All results."""
        k, lanes = self.k, self.k.lanes
        body: Callable[..., None] = self._arg if self.config.kind.startswith("arg") else self._sum
        if self.number is not None:
            self.size = k.minimum_int(self.number.load_int(), self.size)
        with self.nest.walk() as row:
            whole = row.low + (row.high - row.low) // lanes * lanes
            with k.range(row.low, whole, lanes) as i:
                body(row, i, lanes, None)
            if "strided" in self.config.kinds:
                with k.range(whole, row.high) as i:
                    body(row, i, 1, None)
            else:
                with k.when(whole < row.high):
                    body(row, whole, lanes, k.first(row.high - whole))

    def _load(self, row: Row, j: Int, i: Int, lanes: int, mask: Mask | None) -> Vec:
        k, stride = self.k, self.nest.strides[1][-1]
        offset = row.offsets[1] + j * self.step
        v = load(k, self.pointers[1], self.config.kinds[1], offset, i, stride, mask, lanes)
        return to_float(k, v, self.config.elements[1]) if self.narrow else v

    def _store(self, offset: Int, i: Int, value: Vec, mask: Mask | None) -> None:
        stride = self.nest.strides[0][-1]
        store(self.k, self.pointers[0], self.config.kinds[0], offset, i, stride, mask, value)

    def _sum(self, row: Row, i: Int, lanes: int, mask: Mask | None) -> None:
        k, element, kind = self.k, self.config.elements[0], self.config.kind
        product = kind.endswith("product")
        operators = ("fmul", "mul") if product else ("fadd", "add")
        combine = getattr(k.b, operators[not DType(element).is_float])
        computed = "float32" if self.narrow else element
        total = k.var(Vec(k.b, literal(k.vector_type(lanes, computed), int(product))))

        def put(j: Int, value: Vec) -> None:
            converted = from_float(k, value, element) if self.narrow else value
            self._store(row.offsets[0] + j * self.to_step, i, converted, mask)

        with k.range(0, self.size) as j:
            v, before = self._load(row, j, i, lanes, mask), total.get()
            after = Vec(k.b, combine(before.value, v.value))
            total.set(after)
            put(j, before if kind.startswith("exclusive") else after)

    def _arg(self, row: Row, i: Int, lanes: int, mask: Mask | None) -> None:
        k, b = self.k, self.k.b
        best = k.var(self._load(row, k.int(0), i, lanes, mask))
        # Places fill as many registers as float32 does; they are widened when they are stored.
        place = k.var(Vec(b, _spread(llvm.I32, lanes, 0)))
        sign = (">" if self.config.kind == "argmax" else "<") + ("=" if self.config.last else "")
        with k.range(1, self.size) as j:
            v, known = self._load(row, j, i, lanes, mask), best.get()
            if self.narrow:
                better = v.compare(sign, known)
                # The first NaN is kept: nothing is better than it, unless the last one is wanted.
                known_nan, nan = math.is_nan(known), math.is_nan(v)
                better = (better & ~known_nan) | (nan & ~known_nan)
                if self.config.last:
                    better = better | (nan & known_nan)
            else:
                better = Mask(b, b.icmp_signed(sign, v.value, known.value))
            best.set(better.select(v, known))
            here = k.broadcast(Vec(b, b.trunc(j.value, llvm.I32)), lanes)
            place.set(better.select(here, place.get()))
        wide = vector_of(llvm.I64, lanes)
        self._store(row.offsets[0], i, Vec(b, b.sext(place.get().value, wide)), mask)


def _spread(kind: Any, lanes: int, number: int) -> Any:  # noqa: ANN401
    return literal(vector_of(kind, lanes), number)


def cost(call: CpuCall) -> float:
    """Microseconds: every element is read once, one vector at a time."""
    x = call.inputs[0]
    nbytes = x.nbytes + call.outputs[0].nbytes
    return machine(call.target).roofline(24.0 * x.size, nbytes, call.threads, 0.5)


CUMSUM = CpuKernel(
    "reduce.scan", (CumSum,), ScanConfig, _sum_supports, single_variant(_sum_launch, cost), emit
)
ARG_REDUCE = CpuKernel(
    "reduce.arg", (ArgReduce,), ScanConfig, _arg_supports, single_variant(_arg_launch, cost), emit
)
