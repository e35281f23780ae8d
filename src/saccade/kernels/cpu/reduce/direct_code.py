"""The code of reductions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from saccade.backends.cpu.codegen import math, powers
from saccade.backends.cpu.codegen.bfloat16 import BFLOAT16
from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int, Mask, Vec
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.cpu.floats import lanes_of
from saccade.kernels.cpu.movement.loop_nest import Nest, Row
from saccade.kernels.cpu.pointwise.chain_values import widened
from saccade.kernels.cpu.pointwise.vector_elements import load, store
from saccade.kernels.cpu.reduce.direct_arithmetic import Arithmetic
from saccade.kernels.cpu.reduce.direct_loads import Reader
from saccade.kernels.cpu.reduce.direct_stream import PIXELS, Stream

__all__ = ["ReduceConfig", "emit_reduce"]

_INF = float("inf")
_UNROLL = 4


@dataclass(frozen=True)
class ReduceConfig:
    """What the code depends on.

    Attributes:
        kind: See `direct_arithmetic`.
        stage: `whole`, or of a cut reduction `partial` (nothing is finished) and `final`.
        way: `across`, `stream` or `along` (see `direct_launch`).
        elements: Types of operand, result, epilogue operands.
        kinds: How each of these meets the last kept axis.
        kept: Number of kept axes.
        gone: Number of reduced axes.
        dense: Whether the last reduced axis has neighbours in memory.
        epilogue: Expression of the result.
        wide: Element that sums are kept in: "float32" or "float64".
    """

    kind: str
    stage: str
    way: str
    elements: tuple[str, ...]
    kinds: tuple[str, ...]
    kept: int
    gone: int
    dense: bool
    epilogue: str
    wide: str = "float32"


def emit_reduce(k: KernelBuilder, config: ReduceConfig) -> None:
    """The code of one configuration."""
    _Reduce(k, config).emit()


class _Reduce:
    def __init__(self, k: KernelBuilder, config: ReduceConfig) -> None:
        self.k, self.config = k, config
        self.pointers = [k.pointer(f"p{i}", e) for i, e in enumerate(config.elements)]
        self.lanes = lanes_of(k, config.wide)
        self.reader = Reader(k, self.pointers[0], config.wide)
        self.scratch = k.scratch("results", config.wide) if config.way == "stream" else None
        self.nest = Nest(k, config.kept, len(self.pointers))
        self.sizes = k.array("gone_sizes", config.gone)
        self.steps = k.array("gone_strides", config.gone)
        self.per_part, count = k.integers("per_part count")
        reals = [k.real(name) for name in ("p", "root")] if config.kind == "power" else []
        self.does = Arithmetic(k, config.kind, config.stage, config.wide, count, *reals)
        self.epilogue = parse(config.epilogue)

    def emit(self) -> None:
        """All results."""
        if self.config.way == "along":
            self._along()
        elif self.config.way == "stream":
            self._stream()
        else:
            self._across()

    # Lanes are results

    def _across(self) -> None:
        k, lanes = self.k, self.lanes
        strided = "strided" in self.config.kinds
        with self.nest.walk() as row:
            low = row.low
            for count in self._widths():
                step = count * lanes
                whole = low + (row.high - low) // step * step
                with k.range(low, whole, step) as i:
                    self._results(row, i, count, lanes, None)
                low = whole
            if strided:
                with k.range(low, row.high) as i:
                    self._results(row, i, 1, 1, None)
            else:
                with k.when(low < row.high):
                    self._results(row, low, 1, lanes, k.first(row.high - low, lanes))

    def _widths(self) -> tuple[int, ...]:
        """Vectors of results at a time: several share the arithmetic of addresses."""
        simple = self.config.kinds[0] == "unit" and self.config.kind != "log_sum_exp"
        return (_UNROLL, 1) if simple else (1,)

    def _results(self, row: Row, i: Int, count: int, lanes: int, mask: Mask | None) -> None:
        """`count` vectors of results, from position `i` on."""
        k, kind = self.k, self.config.kinds[0]
        stride = self.nest.strides[0][-1]

        def read(offset: Int) -> list[Vec]:
            if count > 1:
                return self.reader.vectors(offset + i, count)
            raw = load(k, self.pointers[0], kind, offset, i, stride, mask, lanes)
            return [k.convert(raw, self.config.wide)]

        def sweep(visit: Callable[[Vec], Vec], start: float, combine: str) -> list[Vec]:
            # Several rows at a time where there are few vectors: sums that do not wait for each
            # other.
            rows = 1 if count > 1 else _UNROLL
            zero = k.number(start, lanes, self.config.wide)
            sums = [[k.var(zero) for _ in range(count)] for _ in range(rows)]

            def take(offsets: list[Int]) -> None:
                # The rows that are left over come one at a time, for the first group.
                for offset, group in zip(offsets, sums, strict=False):
                    for total, value in zip(group, read(offset), strict=True):
                        total.set(self.does.combine(combine, total.get(), visit(value)))

            self._offsets(row, rows, take)
            return [self.does.merge(combine, [group[u] for group in sums]) for u in range(count)]

        if self.config.kind == "log_sum_exp":
            top = self._finite(sweep(lambda v: v, -_INF, "max")[0])
            values = [powers.log(k, sweep(lambda v: powers.exp(k, v - top), 0.0, "add")[0]) + top]
        else:
            values = sweep(self.does.before, self.does.start, self.does.combination)
        if count > 1:
            values = self.reader.in_order(values)
        for u, value in enumerate(values):
            self._store(row, i + u * lanes, self.does.after(value), mask)

    def _stream(self) -> None:
        """The same, with the operand read in the order in which it lies."""
        does = self.does
        assert self.scratch is not None
        stream = Stream(
            self.k, self.reader, self.scratch, lambda a, b: does.combine(does.combination, a, b),
            does.start, plain=does.kind in ("sum", "mean"),
        )  # fmt: skip
        with self.nest.walk() as row:
            stream.begin(row)
            self._offsets(row, PIXELS, lambda o: stream.take(row, o, self.does.before), apart=True)
            stream.finish(row, lambda i, v, mask: self._store(row, i, self.does.after(v), mask))

    def _finite(self, top: Vec) -> Vec:
        # Infinity less infinity would be NaN.
        finite = math.absolute(self.k, top).compare("<", _INF)
        return finite.select(top, top.like(0.0))

    def _offsets(
        self, row: Row, rows: int, take: Callable[[list[Int]], None], *, apart: bool = False
    ) -> None:
        """Visit every combination of the reduced axes, several of the last at a time.

        These are neighbours, or as far apart as can be.
        """
        k = self.k
        with ExitStack() as stack:
            offset = row.offsets[0]
            for axis in range(len(self.sizes) - 1):
                high = self._high(row) if axis == 0 else self.sizes[axis]
                offset = offset + stack.enter_context(k.range(0, high)) * self.steps[axis]
            high = self._high(row) if len(self.sizes) == 1 else self.sizes[-1]
            step = self.steps[-1]
            whole = high // rows * rows
            if apart:
                with k.range(0, high // rows) as j:
                    take([offset + (j + (high // rows) * r) * step for r in range(rows)])
            else:
                with k.range(0, whole, rows) as j:
                    take([offset + (j + r) * step for r in range(rows)])
            if rows > 1:
                with k.range(whole, high) as j:
                    take([offset + j * step])

    def _high(self, row: Row) -> Int:
        """End of the outermost reduced axis: of this part, if the reduction is cut."""
        if self.config.stage != "partial":
            return self.sizes[0]
        left = self.sizes[0] - row.indices[0] * self.per_part
        return self.k.minimum_int(left, self.per_part)

    # Lanes are partial results

    def _along(self) -> None:
        k = self.k
        with self.nest.walk() as row, k.range(row.low, row.high) as i:
            offset = row.offsets[0] + self.nest.strides[0][-1] * i
            if self.config.kind == "log_sum_exp":
                top = self._finite(self._line(row, offset, lambda v: v, -_INF, "max"))
                spread = k.broadcast(top, self.lanes)

                def power(v: Vec, against: Vec = spread) -> Vec:
                    return powers.exp(k, v - against)

                value = powers.log(k, self._line(row, offset, power, 0.0, "add")) + top
            else:
                does = self.does
                value = self._line(row, offset, does.before, does.start, does.combination)
            self._store(row, i, self.does.after(value), None)

    def _line(
        self, row: Row, origin: Int, visit: Callable[[Vec], Vec], start: float, combine: str
    ) -> Vec:
        """One result, as a scalar."""
        k, lanes, x = self.k, self.lanes, self.pointers[0]
        neutral = k.number(start, lanes, self.config.wide)
        sums = [k.var(neutral) for _ in range(_UNROLL)]
        with ExitStack() as stack:
            offset = origin
            for axis in range(len(self.sizes) - 1):
                high = self._high(row) if axis == 0 else self.sizes[axis]
                offset = offset + stack.enter_context(k.range(0, high)) * self.steps[axis]
            end = self._high(row) if len(self.sizes) == 1 else self.sizes[-1]
            low: Int = k.int(0)
            for count in (_UNROLL, 1):
                step = count * lanes
                whole = low + (end - low) // step * step
                with k.range(low, whole, step) as j:
                    # In whatever order: all lanes end up in one sum.
                    for total, v in zip(sums, self.reader.vectors(offset + j, count), strict=False):
                        total.set(self.does.combine(combine, total.get(), visit(v)))
                low = whole
            with k.when(low < end):
                mask = k.first(end - low, lanes)
                v = visit(k.convert(x.vec(offset + low, mask, lanes), self.config.wide))
                # What `visit` makes of the 0 of a masked lane need not be neutral.
                v = mask.select(v, neutral)
                sums[0].set(self.does.combine(combine, sums[0].get(), v))
        return self.does.fold_lanes(combine, self.does.merge(combine, sums))

    def _store(self, row: Row, i: Int, value: Vec, mask: Mask | None) -> None:
        k, lanes = self.k, value.lanes
        operands = [value]
        for p in range(2, len(self.pointers)):
            stride = self.nest.strides[p][-1]
            raw = load(
                k, self.pointers[p], self.config.kinds[p], row.offsets[p], i, stride, mask, lanes
            )
            operands.append(widened(k, raw, self.config.elements[p], self.config.wide))
        element = self.config.elements[1]
        if self.epilogue != IDENTITY:
            stored = "float64" if self.config.wide == "float64" else element
            value = emit_expr(k, self.epilogue, operands, stored=stored)
        result = value if element == BFLOAT16 else k.convert(value, element)
        stride = self.nest.strides[1][-1]
        store(k, self.pointers[1], self.config.kinds[1], row.offsets[1], i, stride, mask, result)
