"""Convolution of few input channels (first layers) on the CPU: rows of pixels beside each other.

A chunk is a band of output rows. The input rows that it reads are copied into scratch, each channel
apart, between zeros that stand for the borders: no tap needs a check, and the elements that the
pixels of a tile read stand at fixed distances, so that a multiply-add takes its broadcast operand
from memory by one register and a constant. The tile runs along a row: `pixels` outputs times
`vectors` vectors of filters stay in registers over all taps, which are unrolled along the row and
over the channels.
Where the result is bfloat16 and the target sums pairs of it, the copy is rounded to bfloat16 and
neighbouring taps of a row are summed in pairs, unless they are dilated or `exact` is asked for.
Layouts: x with neighbouring columns together (row-major images), y as the epilogue stores it.
Refuses: more than 4 channels, groups, prologues, weights that are not constant, windows wider than
11 taps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Int, Vec
from saccade.backends.cpu.target import Target
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import In, Launch, Packed, Packing, Scratch, Variant
from saccade.kernels.cpu.base import CpuCall, CpuKernel
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.epilogue_spec import FLOATS, EpilogueSpec, conv_epilogue
from saccade.kernels.cpu.conv2d.microkernel import add, add_pairs, anchored, steps_of, zero_sums
from saccade.kernels.cpu.conv2d.row_bands import Band, RowBands, band_integers
from saccade.kernels.cpu.machine import clock, machine, pairs_pay
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["CONV2D_FEW_INPUTS", "FewInputsConfig"]

MOST_CHANNELS = 4
"""Of the image."""
MOST_TAPS = 11
"""Along a row."""
_CHUNKS = 8  # per thread, at least, where there are rows enough


@dataclass(frozen=True, slots=True)
class FewInputsConfig:
    """What the code depends on.

    Attributes:
        pixels: Output pixels of a tile.
        vectors: Vectors of filters of a tile.
        channels: Input channels.
        taps, stride, dilation: Of the convolution, along the row.
        element: Type of the input's elements.
        pairs: Whether taps are summed in pairs of bfloat16.
        epilogue: `EpilogueSpec.code`.
    """

    pixels: int
    vectors: int
    channels: int
    taps: int
    stride: int
    dilation: int
    element: str
    pairs: bool
    epilogue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FewInputsSizes(RowBands):
    """Integer parameters, beside those of the epilogue."""

    blocks: Int
    pitch: Int


class _FewInputsCode:
    """Emits one convolution."""

    def __init__(self, k: KernelBuilder, config: FewInputsConfig) -> None:
        self.k, self.c = k, config
        products = "bfloat16" if config.pairs else "float32"
        self.x, self.w = k.pointer("x", config.element), k.pointer("w", products)
        self.band = k.scratch("band", products)
        self.epilogue = Epilogue(k, config.epilogue)
        self.s = k.sizes(_FewInputsSizes)
        self.epilogue.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, s = self.k, self.s
        with s.chunks(k) as band:
            end = s.end(k, band)
            self.fill(band, end)
            with (
                k.range(band.low, end) as p,
                k.range(0, s.blocks) as block,
                k.range(0, s.columns, self.c.pixels) as q,
            ):
                line = self.band + (p - band.low) * s.stride * (s.pitch * self.c.channels)
                self.tile((band.image, p, q), line + q * self.c.stride, block)

    def fill(self, band: Band, end: Int) -> None:
        """Copy the input rows of a band, [line, channel, column], zeros around them."""
        k, s = self.k, self.s
        lines = (end - 1 - band.low) * s.stride + (s.taps - 1) * s.dilation + 1
        top = band.low * s.stride - s.top
        with k.range(0, lines) as line, k.range(0, self.c.channels) as c:
            place = anchored(k, self.band + (line * self.c.channels + c) * s.pitch)
            with k.range(0, s.pitch, k.lanes) as at:
                place.store(k.zero(), at)
            h = top + line
            with k.when((h >= 0) & (h < s.height)):
                row = self.x + (band.image * s.x_n + c * s.x_c + h * s.x_h)
                self.copy(anchored(k, row), place + s.left)

    def copy(self, source: Ptr, place: Ptr) -> None:
        """One row of the input."""
        k, s = self.k, self.s
        main = s.width // k.lanes * k.lanes
        with k.range(0, main, k.lanes) as at:
            place.store(source.vec(at), at)
        mask = k.first(s.width - main)
        place.store(source.vec(main, mask), main, mask)

    def tile(self, at: tuple[Int, Int, Int], line: Ptr, block: Int) -> None:
        """`pixels` outputs of a row."""
        k, s, c = self.k, self.s, self.c
        sums = zero_sums(k, c.pixels, c.vectors)
        apart = 2 if c.pairs else 1  # taps of a step, and elements of a lane of its weights
        width = c.vectors * k.lanes * apart
        step = c.channels * steps_of(c.taps, c.pairs) * width
        weights = anchored(k, self.w + block * s.taps * step)
        with k.range(0, s.taps) as r:
            row = line + r * s.dilation * (s.pitch * c.channels)
            reach = (c.pixels - 1) * c.stride + (c.taps - 1) * c.dilation + 1
            planes = [k.registered((row + i * s.pitch).within(reach)) for i in range(c.channels)]
            panel = k.registered((weights + r * step).within(step))
            for t in range(0, c.taps, apart):
                for i, plane in enumerate(planes):
                    read = self.reader(plane + t * c.dilation, last=t + 1 == c.taps)
                    self.step(sums, read, panel + (t // apart * c.channels + i) * width)
        self.finish(sums, at, block)

    def reader(self, elements: Ptr, *, last: bool) -> Callable[[int], Vec]:
        """Gives what a pixel of the tile multiplies: the elements of a tap, or of two taps."""
        if not self.c.pairs:
            return lambda i: elements.splat(i * self.c.stride)
        # What stands behind the last of an odd number of taps is not its pair: it may be NaN.
        one = elements.half_pair if last else elements.pair
        return lambda i: self.k.broadcast(one(i * self.c.stride))

    def step(self, sums: list[list[Var]], read: Callable[[int], Vec], weights: Ptr) -> None:
        """Add the products of one tap, or of two, and one channel."""
        k, c = self.k, self.c
        held = k.target.registers - c.pixels * c.vectors - 1
        vectors = [self.vector(weights, j) for j in range(min(c.vectors, held))]
        for i, totals in enumerate(sums):
            element = read(i)
            more = [self.vector(weights, j) for j in range(len(vectors), c.vectors)]
            if c.pairs:
                add_pairs(k, totals, element, [*vectors, *more])
            else:
                add(k, totals, element, [*vectors, *more])

    def vector(self, weights: Ptr, j: int) -> Vec:
        """Vector j of the weights of a step."""
        lanes = self.k.lanes
        return weights.pairs(2 * j * lanes) if self.c.pairs else weights.vec(j * lanes)

    def finish(self, sums: list[list[Var]], at: tuple[Int, Int, Int], block: Int) -> None:
        """Epilogue and stores of the pixels that exist."""
        k, (n, p, q) = self.k, at
        places = [self.epilogue.place(block * self.c.vectors + j) for j in range(self.c.vectors)]

        def put(i: int) -> None:
            pixel = self.epilogue.pixel(n, p, q + i)
            for total, place in zip(sums[i], places, strict=True):
                self.epilogue.finish(total.get(), pixel, place)

        with k.when_else(q + self.c.pixels <= self.s.columns) as (whole, part):
            with whole:
                for i in range(len(sums)):
                    put(i)
            with part:
                for i in range(len(sums) - 1):
                    with k.when(q + i < self.s.columns):
                        put(i)


def _emit(k: KernelBuilder, config: FewInputsConfig) -> None:
    _FewInputsCode(k, config).emit()


# Planning


def _supports(call: CpuCall) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if not call.constant[1]:
        return "the weights are not constant"
    if any(view.dtype not in FLOATS for view in (x, w)):
        return f"elements are {x.dtype.value} and {w.dtype.value}"
    if op.groups != 1 or w.shape[1] > MOST_CHANNELS:
        return f"more than {MOST_CHANNELS} channels, or groups"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if x.strides[3] != 1 and x.shape[3] != 1:
        return "columns of x are apart"
    if w.shape[3] > MOST_TAPS:
        return f"more than {MOST_TAPS} taps along a row"
    return conv_epilogue(call).refuse()


def _pairs(call: CpuCall) -> bool:
    """Whether taps are summed in pairs of bfloat16."""
    op: Conv2d = call.op
    rounded = call.outputs[0].dtype is DType.BF16 and not call.exact
    return (
        pairs_pay(call.target) and rounded and op.dilation[1] == 1 and call.inputs[1].shape[3] > 1
    )


def _steps(call: CpuCall) -> int:
    """Multiply-adds of one sum."""
    _, channels, rows, columns = call.inputs[1].shape
    return channels * rows * steps_of(columns, _pairs(call))


@dataclass(frozen=True, slots=True)
class _TileChoice:
    """A tile and what it takes.

    Attributes:
        pixels, vectors: See `FewInputsConfig`.
        band: Output rows of a chunk.
        micros: Estimate.
    """

    pixels: int
    vectors: int
    band: int
    micros: float


def _shapes(vectors: int, target: Target) -> Iterator[tuple[int, int]]:
    """Pixels and vectors whose sums leave registers for an element and a vector of weights."""
    free = target.registers - 3
    for nv in range(1, min(vectors, 4) + 1):
        if vectors % nv == 0 or nv == min(vectors, 4):
            most = free // nv
            yield from ((pixels, nv) for pixels in range(most, max(0, most // 2 - 1), -1))


def _pitch(call: CpuCall, spec: EpilogueSpec, pixels: int) -> int:
    """Elements of a row of a band: what whole tiles read, and the whole input row."""
    op: Conv2d = call.op
    (x, w), lanes = call.inputs[:2], call.target.lanes
    tiles = -(-spec.shape[3] // pixels) * pixels
    reach = (tiles - 1) * op.stride[1] + (w.shape[3] - 1) * op.dilation[1] + 1
    return -(-max(reach, op.padding[1] + x.shape[3]) // lanes) * lanes


def _lines(call: CpuCall, band: int) -> int:
    """Input rows of a band of output rows."""
    op: Conv2d = call.op
    taps = call.inputs[1].shape[2]
    return (band - 1) * op.stride[0] + (taps - 1) * op.dilation[0] + 1


def _band(call: CpuCall, spec: EpilogueSpec, pixels: int) -> int:
    """Output rows of a chunk: their input stays in the L1 cache, and every thread has chunks."""
    images, _, rows, _ = spec.shape
    row = 4 * _pitch(call, spec, pixels) * call.inputs[1].shape[1]
    fits = [band for band in (16, 8, 4, 2) if row * _lines(call, band) <= call.target.l1]
    fair = max(1, images * rows // (_CHUNKS * call.threads))
    return max(1, min(fits[0] if fits else 1, fair, rows))


def _tiles(call: CpuCall, spec: EpilogueSpec) -> list[_TileChoice]:
    """The tiles that can be used, the fastest first."""
    x, w = call.inputs[:2]
    images, _, rows, columns = spec.shape
    speed, products = machine(call.target), _steps(call)
    rate = speed.flops / (2 * call.target.lanes * clock(call.target))  # multiply-adds per cycle
    traffic = speed.traffic(x.nbytes + call.outputs[0].nbytes, call.threads)
    found = []
    for pixels, nv in _shapes(spec.vectors, call.target):
        band = _band(call, spec, pixels)
        cycles = products * max(pixels * nv / rate, (pixels + nv) / 2, 4.0)
        cycles += (
            8.0 * w.shape[2] + 40 + pixels * nv * (3 + expr_flops(call.op.epilogue) / rate / 2)
        )
        cycles *= -(-columns // pixels)
        # Filters in several blocks write a pixel's cache lines apart; many weights leave L1.
        blocks = -(-spec.vectors // nv)
        crowd = 4 * products * nv * call.target.lanes > call.target.l1
        cycles *= blocks * (1 + 0.03 * (blocks - 1)) * (1.06 if crowd else 1.0)
        copied = w.shape[1] * _lines(call, band) / band * _pitch(call, spec, pixels)
        cycles += 3.0 * copied / call.target.lanes
        micros = images * rows * cycles / clock(call.target) / call.threads
        found.append(_TileChoice(pixels, nv, band, speed.step + micros + traffic))
    return sorted(found, key=lambda tile: tile.micros)


def _variants(call: CpuCall) -> Iterator[Variant]:
    spec = conv_epilogue(call)
    for tile in _tiles(call, spec):
        yield Variant(tile.micros, partial(_launch, call, spec, tile))


def _launch(call: CpuCall, spec: EpilogueSpec, tile: _TileChoice) -> tuple[Launch, ...]:
    op, (x, w) = call.op, call.inputs[:2]
    images, _, rows, _ = spec.shape
    width, blocks = tile.vectors * call.target.lanes, -(-spec.vectors // tile.vectors)
    lines, pitch = _lines(call, tile.band), _pitch(call, spec, tile.pixels)
    config = FewInputsConfig(
        tile.pixels, tile.vectors, w.shape[1], w.shape[3], op.stride[1], op.dilation[1],
        x.dtype.value, _pairs(call), spec.code(tile.vectors),
    )  # fmt: skip
    bands = band_integers(op, x, w.shape[2], spec.shape, tile.band)
    integers = {**bands, "blocks": blocks, "pitch": pitch, **spec.integers()}
    size = 4 * blocks * _steps(call) * width
    packing = (
        Packing("pack_pairs_of_taps", (1, spec.order, width), (1,), size)
        if config.pairs
        # The very packing of the direct kernel, so that both read one copy.
        else Packing("pack_conv_weights", (1, spec.order, width, False), (1,), size)
    )
    band = Scratch((2 if config.pairs else 4) * lines * pitch * w.shape[1])
    operands = {"x": In(0), "w": Packed(packing), "band": band, **spec.pointers()}
    return (Launch(config, operands, integers, images * -(-rows // tile.band)),)


CONV2D_FEW_INPUTS = CpuKernel(
    name="conv2d.few_inputs",
    ops=(Conv2d,),
    config=FewInputsConfig,
    supports=_supports,
    variants=_variants,
    emit=_emit,
)
