"""Depthwise convolution on the CPU.

`y[n,p,q,c] = Σ_r,s x[n, p·stride + r·dilation - pad, …, c] · w[r,s,c]`

Vectors over channels of channels-last pictures with any pitch; several output pixels of a row
share the columns that they load. Taps outside the picture are clipped along the rows and read as
zeros along the columns. Chunks are (image, band of rows, block of channels). Refused: more than one
filter for a channel; prologues; row-major pictures; DepthToSpace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Bool, Int
from saccade.ir import DType
from saccade.ir.expr import IDENTITY
from saccade.kernels.base import Call, CpuKernel, In, Launch, Packed, Packing, one_way
from saccade.kernels.conv2d.column_window import ColumnWindow, best_pixels, valid_taps
from saccade.kernels.conv2d.epilogue import Epilogue, Place
from saccade.kernels.conv2d.epilogue_spec import EpilogueSpec, conv_epilogue
from saccade.kernels.conv2d.pack_depthwise import ZEROS
from saccade.kernels.machine import machine
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["CONV2D_DEPTHWISE", "DepthwiseConfig"]

_CYCLES = 3.7e3  # per microsecond


@dataclass(frozen=True, slots=True)
class DepthwiseConfig:
    """What the code depends on.

    Attributes:
        pixels: Output pixels at a time.
        taps, stride, dilation: Of the convolution, along the row.
        epilogue: `EpilogueSpec.code`.
    """

    pixels: int
    taps: int
    stride: int
    dilation: int
    epilogue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Integer parameters, in order."""

    images: Int
    rows: Int
    columns: Int
    height: Int
    width: Int
    x_n: Int
    x_h: Int
    x_w: Int
    top: Int
    left: Int
    taps: Int
    stride: Int
    dilation: Int
    pitch: Int
    vectors: Int
    band: Int
    block: Int


@dataclass(frozen=True, slots=True)
class _Row:
    """One output row of one vector of channels.

    Attributes:
        at: Image and row.
        x: Column 0 of the row of the picture under the first row of the window.
        weights: Of the vector.
        taps: Range of rows of the window inside the picture.
        place: Where the vector goes.
    """

    at: tuple[Int, Int]
    x: Ptr
    weights: Ptr
    taps: tuple[Int, Int]
    place: Place


def _emit(k: Kernel, config: DepthwiseConfig) -> None:
    x, w = k.pointer("x"), k.pointer("w")
    epilogue = Epilogue(k, config.epilogue)
    s = _Sizes(*k.integers(" ".join(_Sizes.__slots__)))
    epilogue.declare_integers()
    window = ColumnWindow(config.pixels, config.taps, config.stride, config.dilation)
    code = _Code(k, s, window, epilogue, w + s.taps * config.taps * s.pitch)
    bands, blocks = (s.rows + s.band - 1) // s.band, (s.vectors + s.block - 1) // s.block
    with k.chunks(s.images * bands * blocks) as chunk:
        above = chunk // blocks
        vector = (chunk - above * blocks) * s.block
        n = above // bands
        row = (above - n * bands) * s.band
        vectors = k.minimum_int(vector + s.block, s.vectors)
        with k.range(row, k.minimum_int(row + s.band, s.rows)) as p:
            h = p * s.stride - s.top
            taps = valid_taps(k, h, s.height, s.taps, s.dilation)
            with k.range(vector, vectors) as v:
                channel = v * k.lanes
                line = x + (s.x_n * n + s.x_h * h + channel)
                code.row(_Row((n, p), line, w + channel, taps, epilogue.place(v)))


@dataclass(frozen=True, slots=True)
class _Code:
    """Emits a row."""

    k: Kernel
    s: _Sizes
    window: ColumnWindow
    epilogue: Epilogue
    zeros: Ptr

    def row(self, row: _Row) -> None:
        k, s, window = self.k, self.s, self.window
        with k.range(0, s.columns, window.pixels) as q:
            first = q * window.stride - s.left
            sums = [k.var(k.zero()) for _ in range(window.pixels)]
            inside = (first >= 0) & (first + window.span <= s.width)
            with k.when_else(inside) as (then, other):
                with then:
                    self.taps(row, first, sums, None)
                with other:
                    self.taps(row, first, sums, window.inside(first, s.width))
            for i, total in enumerate(sums):
                with k.when(q + i < s.columns):
                    pixel = self.epilogue.pixel(*row.at, q + i)
                    self.epilogue.finish(total.get(), pixel, row.place)

    def taps(self, row: _Row, first: Int, sums: list[Var], inside: dict[int, Bool] | None) -> None:
        """Add every valid row of the window to the sums of its pixels."""
        k, s, window = self.k, self.s, self.window
        mask = row.place.mask
        with k.range(*row.taps) as r:
            line = row.x + (s.x_h * (r * s.dilation) + s.x_w * first)
            if inside is None:
                columns = window.load(line, s.x_w, mask)
            else:
                columns = window.load_guarded(line, s.x_w, mask, inside, self.zeros)
            for t in range(window.taps):
                weight = row.weights.vec((r * window.taps + t) * s.pitch)
                for i, total in enumerate(sums):
                    total.set(k.fma(columns[window.column(i, t)], weight, total.get()))


# Planning


def _supports(call: Call) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if op.groups != x.shape[1] or w.shape[0] != op.groups or w.shape[1] != 1:
        return "not one filter for each channel"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if not call.constant[1]:
        return "weights are not known ahead"
    if x.dtype is not DType.F32 or w.dtype is not DType.F32:
        return "only float32"
    if not x.channels_last:
        return "x is not channels-last"
    if w.shape[3] > 15:
        return "more than 15 taps along a row"
    spec = _epilogue(call)
    if spec.kind not in ("plain", "interleave"):
        return "the result is not channels-last"
    return spec.refuse()


def _epilogue(call: Call) -> EpilogueSpec:
    # Channels are counted through all groups: a vector holds one channel of each of several.
    return replace(conv_epilogue(call), groups=1)


def _config(call: Call, spec: EpilogueSpec) -> DepthwiseConfig:
    op, taps = call.op, call.inputs[1].shape[3]
    pixels = best_pixels(spec.shape[3], (8, 7, 6, 5, 4))
    return DepthwiseConfig(pixels, taps, op.stride[1], op.dilation[1], spec.code())


def _split(spec: EpilogueSpec, threads: int) -> tuple[int, int]:
    """Rows in a band and vectors in a block: chunks for every thread, yet input rows are shared."""
    n, _, rows, _ = spec.shape
    wanted = 1 if threads == 1 else 6 * threads
    bands = max(1, min(-(-wanted // max(n, 1)), rows // 4 or 1))
    blocks = max(1, min(-(-wanted // max(n * bands, 1)), spec.vectors // 4 or 1))
    return max(1, -(-rows // bands)), -(-spec.vectors // blocks)


def _launch(call: Call) -> tuple[Launch, ...]:
    spec, op, (x, w) = _epilogue(call), call.op, call.inputs[:2]
    pitch = spec.vectors * call.target.lanes
    band, block = _split(spec, call.threads)
    size = 4 * (w.shape[2] * w.shape[3] * pitch + ZEROS)
    weights = Packed(Packing("pack_depthwise", (pitch,), (1,), size))
    n, _, rows, columns = spec.shape
    integers = (
        n, rows, columns, x.shape[2], x.shape[3], x.strides[0], x.strides[2], x.strides[3],
        op.padding[0], op.padding[1], w.shape[2], op.stride[0], op.dilation[0], pitch, spec.vectors,
        band, block,
    )  # fmt: skip
    chunks = n * -(-rows // band) * -(-spec.vectors // block)
    operands = (In(0), weights, *spec.pointers())
    return (Launch(_config(call, spec), operands, integers + spec.integers(), chunks),)


def _cost(call: Call) -> float:
    spec, (x, w), speed = _epilogue(call), call.inputs[:2], machine(call.target)
    n, _, rows, columns = spec.shape
    config = _config(call, spec)
    window = ColumnWindow(config.pixels, config.taps, config.stride, config.dilation)
    fmas = config.pixels * config.taps * call.target.lanes * 2 / speed.flops
    loads = (len(window.columns) + config.taps) * 0.5 / _CYCLES
    group = (
        w.shape[2] * (fmas + loads) + config.pixels * (2 + expr_flops(call.op.epilogue)) / _CYCLES
    )
    groups = n * rows * -(-columns // config.pixels) * spec.vectors
    moved = 4.0 * (x.size + 2 * call.outputs[0].size)
    bandwidth = speed.bandwidth if moved > call.target.l3 else speed.cache_bandwidth * call.threads
    return speed.step + max(groups * group / call.threads, moved / bandwidth)


CONV2D_DEPTHWISE = CpuKernel(
    "conv2d.depthwise", (Conv2d,), DepthwiseConfig, _supports, one_way(_launch, _cost), _emit
)
