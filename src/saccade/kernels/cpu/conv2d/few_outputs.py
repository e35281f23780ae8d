"""Convolution with few filters (8 or fewer) on the CPU: the last layer of what makes images.

Vectors over *input* channels of a channels-last image: every output pixel and filter has a
vector of partial sums; when all taps are in, the vectors of 4 or 8 neighbouring pixels become one
vector over pixels (a transposing horizontal sum), which the epilogue finishes and which is stored
along the row. So a row-major result is written directly. Elements are float32 or bfloat16 in any
mix; of two bfloat16 operands a vector holds twice the channels, in pairs. Refused: more than 8
filters, fewer than 8 channels; groups; prologues; store maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, Mask, Vec
from saccade.backends.cpu.target import Target
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.base import In, Launch, Operand, Out, Packed, Packing
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.kernels.cpu.conv2d.column_window import ColumnWindow
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, conv_epilogue
from saccade.kernels.cpu.conv2d.few_outputs_sums import transpose_sums
from saccade.kernels.cpu.conv2d.microkernel import in_pairs, steps_of
from saccade.kernels.cpu.conv2d.row_bands import RowBands, band_integers
from saccade.kernels.cpu.machine import clock, machine
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["CONV2D_FEW_OUTPUTS", "FewOutputsConfig"]

MOST_FILTERS = 8
"""With more, `conv2d.direct` wastes less of its vectors, which run over filters."""
LEAST_CHANNELS = 8
"""Fewer waste most of a vector, which runs over channels."""


@dataclass(frozen=True, slots=True)
class FewOutputsConfig:
    """What the code depends on.

    Attributes:
        lanes: Sums in a vector: as many as a machine's vector has, or fewer if channels are few.
        pixels: Output pixels at a time.
        group: Filters at a time.
        taps, stride, dilation: Of the convolution, along the row.
        tail: Whether the last vector of channels is partial.
        pairs: Whether channels are summed in pairs of bfloat16.
        expr: The epilogue.
        along: For each epilogue operand, then the result, how pixels of a row lie: `unit`, `repeat`
            or `strided`.
        elements: Element types of the input, each epilogue operand and the result.
    """

    lanes: int
    pixels: int
    group: int
    taps: int
    stride: int
    dilation: int
    tail: bool
    pairs: bool
    expr: str
    along: tuple[str, ...]
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FewOutputsSizes(RowBands):
    """Integer parameters, beside four strides for each operand and the result."""

    channels: Int
    filters: Int
    zeros: Int


@dataclass(frozen=True, slots=True)
class _StoredOperand:
    """An epilogue operand or the result: how pixels of a row lie, first element, strides."""

    along: str
    pointer: Ptr
    strides: tuple[Int, ...]

    def at(self, n: Int, c: Int, h: Int, w: Int) -> Ptr:
        """The element of one filter and pixel."""
        sn, sc, sh, sw = self.strides
        return self.pointer + (sn * n + sc * c + sh * h + sw * w)


def _emit(k: KernelBuilder, config: FewOutputsConfig) -> None:
    x = k.pointer("x", config.elements[0])
    w = k.pointer("w", "bfloat16" if config.pairs else "float32")
    names = [*(f"operand{i}" for i in range(len(config.along) - 1)), "y"]
    pointers = [k.pointer(*pair) for pair in zip(names, config.elements[1:], strict=True)]
    s = k.sizes(_FewOutputsSizes)
    stored = [
        _StoredOperand(along, pointer, k.array(f"{pointer.name}_strides", 4))
        for along, pointer in zip(config.along, pointers, strict=True)
    ]
    with s.chunks(k) as band:
        groups = (s.filters + config.group - 1) // config.group
        with k.range(band.low, s.end(k, band)) as p, k.range(0, groups) as group:
            _FewOutputsCode(k, config, s, x, w, stored).row(band.image, p, group)


@dataclass(frozen=True, slots=True)
class _FewOutputsCode:
    """Emits one row of a group of filters."""

    k: KernelBuilder
    c: FewOutputsConfig
    s: _FewOutputsSizes
    x: Ptr
    w: Ptr
    stored: list[_StoredOperand]

    @property
    def width(self) -> int:
        """Channels of a vector."""
        return self.c.lanes * (2 if self.c.pairs else 1)

    def row(self, n: Int, p: Int, group: Int) -> None:
        k, c, s = self.k, self.c, self.s
        window = ColumnWindow(c.pixels, c.taps, c.stride, c.dilation)
        h, rows = s.window(k, p)
        vectors = (s.channels + self.width - 1) // self.width
        step = c.taps * c.group * self.width
        weights = self.w + group * (s.taps * vectors * step)
        with k.range(0, s.columns, c.pixels) as q:
            first = q * c.stride - s.left
            line = self.x + (s.x_n * n + s.x_h * h + s.x_w * first)
            sums = [[k.var(k.zero(c.lanes)) for _ in range(c.pixels)] for _ in range(c.group)]
            inside = (first >= 0) & (first + window.span <= s.width)
            with k.when_else(inside) as (then, other):
                for side, guarded in ((then, False), (other, True)):
                    with side, k.range(*rows) as r, k.range(0, vectors) as v:
                        checks = window.inside(first, s.width) if guarded else None
                        at = line + (s.x_h * (r * s.dilation) + v * self.width)
                        columns = self.columns(window, at, v, checks)
                        self.taps(window, columns, weights + (r * vectors + v) * step, sums)
            self.finish(sums, (n, p, q), group * c.group)

    def columns(
        self, window: ColumnWindow, x: Ptr, v: Int, inside: dict[int, Bool] | None
    ) -> dict[int, Vec]:
        """What one row of taps reads of one vector of channels."""
        k, s = self.k, self.s
        mask = k.first(s.channels - v * self.width, self.width) if self.c.tail else None
        read = partial(self.vector, mask=mask)
        if inside is None:
            return window.load(x, s.x_w, read)
        zeros = (self.w + s.zeros).viewed(x.element)
        return window.load_guarded(x, s.x_w, read, inside, zeros)

    def vector(self, place: Ptr, mask: Mask | None = None) -> Vec:
        """A vector of channels."""
        c = self.c
        return place.pairs(0, mask, c.lanes) if c.pairs else place.vec(0, mask, c.lanes)

    def taps(
        self, window: ColumnWindow, columns: dict[int, Vec], w: Ptr, sums: list[list[Var]]
    ) -> None:
        """Add one row of taps of one vector of channels."""
        c = self.c
        for t in range(c.taps):
            for j, line in enumerate(sums):
                weight = self.vector(w + (t * c.group + j) * self.width)
                for i, total in enumerate(line):
                    column = columns[window.column(i, t)]
                    total.set(self.add(total.get(), column, weight))

    def add(self, total: Vec, column: Vec, weight: Vec) -> Vec:
        """The products of a vector of channels added to their sums."""
        k = self.k
        return k.dot_bf16(total, column, weight) if self.c.pairs else k.fma(column, weight, total)

    def finish(self, sums: list[list[Var]], at: tuple[Int, Int, Int], first: Int) -> None:
        """Sum up, apply the epilogue to vectors of pixels, store what exists."""
        k, c, s = self.k, self.c, self.s
        totals = [transpose_sums(k, [total.get() for total in line]) for line in sums]
        whole = at[2] + c.pixels <= s.columns
        with k.when_else(whole) as (then, other):
            with then:
                self.store(totals, at, first, None)
            with other:
                self.store(totals, at, first, k.first(s.columns - at[2], c.pixels))

    def store(
        self, totals: list[Vec], at: tuple[Int, Int, Int], first: Int, mask: Mask | None
    ) -> None:
        k, s = self.k, self.s
        n, p, q = at
        *operands, result = self.stored
        for j, total in enumerate(totals):
            with k.when(first + j < s.filters):
                values = [total]
                for operand in operands:
                    place = operand.at(n, first + j, p, q)
                    values.append(self.load(operand, place, q, mask))
                place = result.at(n, first + j, p, q)
                value = emit_expr(k, parse(self.c.expr), values, stored=place.element)
                self.put(result, place, value, q, mask)

    def load(self, operand: _StoredOperand, place: Ptr, q: Int, mask: Mask | None) -> Vec:
        """An operand at the pixels of a vector."""
        k, pixels = self.k, self.c.pixels
        if operand.along == "repeat":
            return place.splat(0, pixels)
        if operand.along == "unit":
            return place.vec(0, mask, pixels)
        value = k.zero(pixels)
        for i in range(pixels):
            # Pixels past the end of the row read the last one; nobody stores them.
            step = k.minimum_int(k.int(i), self.s.columns - 1 - q)
            value = k.insert(value, place.load(operand.strides[3] * step), i)
        return value

    def put(
        self, result: _StoredOperand, place: Ptr, value: Vec, q: Int, mask: Mask | None
    ) -> None:
        """Store a vector of pixels."""
        if result.along == "unit":
            place.store(value, 0, mask)
            return
        for i in range(self.c.pixels):
            with self.k.when(q + i < self.s.columns):
                place.store(self.k.extract(value, i), result.strides[3] * i)


# Planning


def _supports(call: CpuCall) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if w.shape[0] > MOST_FILTERS or w.shape[1] < LEAST_CHANNELS:
        return f"not {MOST_FILTERS} filters or fewer over {LEAST_CHANNELS} channels or more"
    if op.groups != 1:
        return "takes no groups"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if op.store is not None:
        return "takes no store map"
    if not call.constant[1]:
        return "weights are not known ahead"
    if not x.channels_last:
        return "x is not channels-last"
    if w.shape[3] > 9:
        return "more than 9 taps along a row"
    for view in (*call.inputs, *call.outputs):
        if view.dtype not in FLOATS:
            return f"elements are {view.dtype.value}"
    return None


def _tile(filters: int, target: Target) -> tuple[int, int]:
    """Filters and pixels at a time: their sums and the columns they read fit in the registers."""
    if target.registers >= 32:
        one = min(8, target.lanes)  # pixels become lanes
        return (1, one) if filters == 1 else (filters if filters <= 6 else 4, 4)
    return {1: (1, 4), 2: (2, 4), 4: (2, 4)}.get(filters, (3, 4))


def _along(stride: int) -> str:
    return {0: "repeat", 1: "unit"}.get(stride, "strided")


def _lanes(call: CpuCall, pixels: int) -> int:
    """The narrowest vector that holds all channels, or the widest there is."""
    steps, lanes = steps_of(call.inputs[1].shape[1], in_pairs(call)), call.target.lanes
    while lanes // 2 >= max(steps, pixels):
        lanes //= 2
    return lanes


def _config(call: CpuCall, spec: EpilogueSpec) -> FewOutputsConfig:
    op, w, pairs = call.op, call.inputs[1], in_pairs(call)
    group, pixels = _tile(w.shape[0], call.target)
    lanes = _lanes(call, pixels)
    stored = [*(view for _, view, _ in spec.operands), call.outputs[0]]
    return FewOutputsConfig(
        lanes,
        pixels,
        group,
        w.shape[3],
        op.stride[1],
        op.dilation[1],
        w.shape[1] % (2 * lanes if pairs else lanes) != 0,
        pairs,
        str(op.epilogue),
        tuple(_along(view.strides[3]) for view in stored),
        tuple(view.dtype.value for view in (call.inputs[0], *stored)),
    )


def _band(spec: EpilogueSpec, threads: int) -> int:
    """Rows in a chunk: a dozen chunks for each thread, but input rows are shared within four."""
    n, _, rows, _ = spec.shape
    bands = max(1, min(-(-12 * threads // max(n, 1)), rows // 4))
    return max(1, -(-rows // bands))


def _launch(call: CpuCall) -> tuple[Launch, ...]:
    spec, op, (x, w) = conv_epilogue(call), call.op, call.inputs[:2]
    config, band = _config(call, spec), _band(spec, call.threads)
    width = config.lanes * (2 if config.pairs else 1)
    n, filters, rows, _ = spec.shape
    groups = -(-filters // config.group)
    zeros = groups * config.group * w.shape[2] * w.shape[3] * -(-w.shape[1] // width) * width
    nbytes = (zeros + width) * (2 if config.pairs else 4)
    packing = Packing("pack_few_outputs", (config.group, width, config.pairs), (1,), nbytes)
    bands = band_integers(op, x, w.shape[2], spec.shape, band)
    integers: dict[str, int | tuple[int, ...]] = {
        **bands,
        "channels": x.shape[1],
        "filters": filters,
        "zeros": zeros,
        "y_strides": call.outputs[0].strides,
    }
    operands: dict[str, Operand] = {"x": In(0), "w": Packed(packing)}
    for i, (index, view, _) in enumerate(spec.operands):
        operands[f"operand{i}"] = In(index)
        integers[f"operand{i}_strides"] = view.strides
    operands["y"] = Out(0)
    return (Launch(config, operands, integers, n * -(-rows // band)),)


def _cost(call: CpuCall) -> float:
    spec, (x, w), speed = conv_epilogue(call), call.inputs[:2], machine(call.target)
    n, filters, rows, columns = spec.shape
    config = _config(call, spec)
    groups = -(-filters // config.group)
    fmas = w.shape[2] * w.shape[3] * -(-steps_of(w.shape[1], config.pairs) // config.lanes)
    fmas *= config.group * config.pixels
    cycles = 1.15 * fmas * 2 * config.lanes / speed.flops * clock(call.target)
    cycles += config.group * (3 * config.pixels + 8 + 2 * expr_flops(call.op.epilogue))
    if config.along[-1] != "unit":
        cycles += 2 * config.group * config.pixels
    blocks = n * rows * -(-columns // config.pixels) * groups
    moved = float(x.nbytes + 2 * call.outputs[0].nbytes)
    bandwidth = speed.bandwidth if moved > call.target.l3 else speed.cache_bandwidth * call.threads
    return speed.step + max(blocks * cycles / clock(call.target) / call.threads, moved / bandwidth)


CONV2D_FEW_OUTPUTS = CpuKernel(
    "conv2d.few_outputs",
    (Conv2d,),
    FewOutputsConfig,
    _supports,
    single_variant(_launch, _cost),
    _emit,
)
