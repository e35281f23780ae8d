"""Direct convolution (implicit matrix product) with any strides, padding, dilation and groups.

`y[n,k,p,q] = Σ_r,s,c x[n, c, p·stride + r·dilation - pad, …] · w[k,c,r,s]`

Layouts: x with any strides (neighbouring channels together is the fast case), y as the epilogue
stores it. Pixels are flattened over (n, p, q), so that small pictures fill whole tiles. A tile of
`rows` pixels times `vectors` vectors of channels stays in registers over all taps and channels;
taps outside the picture read zeros.
Refuses: weights that are not constant, types other than float32, a prologue unless 1x1 without
padding.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from saccade.codegen.expressions import emit_expr
from saccade.codegen.language import Kernel, Ptr, Var
from saccade.codegen.values import Bool, Int, IntLike
from saccade.ir import DType
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.base import (
    Call,
    CpuKernel,
    In,
    Launch,
    Operand,
    Packed,
    Packing,
    Scratch,
)
from saccade.kernels.conv2d.config import DirectConfig, blocking, choose_tile
from saccade.kernels.conv2d.epilogue import Epilogue
from saccade.kernels.conv2d.epilogue_spec import EpilogueSpec, conv_epilogue, expand
from saccade.kernels.conv2d.microkernel import Reduction, accumulate, anchored, zero_sums
from saccade.kernels.machine import machine
from saccade.opdefs import Conv2d

__all__ = ["CONV2D_DIRECT"]


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The integer parameters, in order."""

    x_n: Int
    x_c: Int
    x_h: Int
    x_w: Int
    height: Int
    width: Int
    out_height: Int
    out_width: Int
    depth: Int
    taps_r: Int
    taps_s: Int
    stride_h: Int
    stride_w: Int
    pad_top: Int
    pad_left: Int
    dilation_h: Int
    dilation_w: Int
    pixels: Int
    blocks: Int
    tiles_chunk: Int
    blocks_chunk: Int
    tile_chunks: Int
    block_chunks: Int
    pixels_first: Int
    groups: Int


@dataclass(frozen=True, slots=True)
class _Spot:
    """An output pixel: number and coordinates (those of the last pixel past the end)."""

    number: Int
    n: Int
    p: Int
    q: Int


class _Direct:
    """Emits one convolution."""

    def __init__(self, k: Kernel, config: DirectConfig) -> None:
        self.k, self.config = k, config
        self.reduction = Reduction(config.unroll, config.shape)
        self.x, self.w = k.pointer("x"), k.pointer("w")
        self.zeros = k.pointer("zeros") if config.padded else None
        self.operands = [k.pointer(f"prologue{i}") for i in range(config.n_prologue)]
        self.panel = k.scratch("panel") if config.prologue != str(IDENTITY) else None
        self.epilogue = Epilogue(k, config.epilogue)
        names = [f.name for f in fields(_Geometry)]
        self.g = _Geometry(*(k.integer(name) for name in names))
        self.operand_strides = [k.integer("n") for _ in self.operands]
        self.epilogue.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, g = self.k, self.g
        area = g.tile_chunks * g.block_chunks
        with k.chunks(g.groups * area) as chunk:
            group = chunk // area
            within = chunk - group * area
            fast = g.pixels_first.differs(0)
            inner = fast.select(g.tile_chunks, g.block_chunks)
            outer_at = within // inner
            inner_at = within - outer_at * inner
            first = fast.select(inner_at, outer_at) * g.tiles_chunk
            block = fast.select(outer_at, inner_at) * g.blocks_chunk
            count = (g.pixels + (self.config.rows - 1)) // self.config.rows
            end = k.minimum_int(first + g.tiles_chunk, count)
            if self.panel is not None:
                self._apply_prologue(first, end)
            stop = k.minimum_int(block + g.blocks_chunk, g.blocks)
            with k.range(block, stop) as b, k.range(first, end) as tile:
                self._tile(group, b, tile, first)

    # Pixels

    def _spot(self, number: Int) -> _Spot:
        g = self.g
        area = g.out_height * g.out_width
        n = number // area
        rest = number - n * area
        p = rest // g.out_width
        return _Spot(number, n, p, rest - p * g.out_width)

    def _following(self, spot: _Spot) -> _Spot:
        g, number = self.g, spot.number + 1
        more = number < g.pixels
        turn = more & (spot.q + 1).equals(g.out_width)
        next_p = turn.select(spot.p + 1, spot.p)
        over = next_p.equals(g.out_height)
        q = turn.select(0, more.select(spot.q + 1, spot.q))
        return _Spot(number, over.select(spot.n + 1, spot.n), over.select(0, next_p), q)

    def _spots(self, first: _Spot) -> list[_Spot]:
        spots = [first]
        while len(spots) < self.config.rows:
            spots.append(self._following(spots[-1]))
        return spots

    # Products

    def _tile(self, group: Int, block: Int, tile: Int, chunk_first: Int) -> None:
        k, g, config = self.k, self.g, self.config
        sums = zero_sums(k, config.rows, config.vectors)
        first = self._spot(tile * config.rows)
        panel = g.taps_r * g.taps_s * g.depth * (config.vectors * k.lanes)
        weights = self.w + (group * g.blocks + block) * panel
        if self.panel is not None:
            local = (tile - chunk_first) * config.rows
            rows = [anchored(k, self.panel + (local + i) * g.depth) for i in range(config.rows)]
            self._accumulate(sums, rows, anchored(k, weights), 1)
        else:
            self._taps(sums, self._spots(first), self.x + group * g.depth * g.x_c, weights)
        self._finish(sums, first, group, block)

    def _accumulate(
        self, sums: list[list[Var]], rows: list[Ptr], weights: Ptr, steps: IntLike | list[Int]
    ) -> None:
        pitch = self.config.vectors * self.k.lanes
        accumulate(
            self.k, sums, rows, weights, step=steps, pitch=pitch, count=self.g.depth,
            reduction=self.reduction,
        )  # fmt: skip

    def _taps(self, sums: list[list[Var]], spots: list[_Spot], x: Ptr, weights: Ptr) -> None:
        k, g = self.k, self.g
        tops = [s.p * g.stride_h - g.pad_top for s in spots]
        lefts = [s.q * g.stride_w - g.pad_left for s in spots]
        origins = [
            s.n * g.x_n + top * g.x_h + left * g.x_w
            for s, top, left in zip(spots, tops, lefts, strict=True)
        ]
        pitch = g.depth * (self.config.vectors * k.lanes)
        with k.range(0, g.taps_r) as r, k.range(0, g.taps_s) as s:
            down, right = r * g.dilation_h, s * g.dilation_w
            move = down * g.x_h + right * g.x_w
            rows, steps = [], []
            for origin, top, left in zip(origins, tops, lefts, strict=True):
                row, step = x + (origin + move), g.x_c
                if self.zeros is not None:
                    inside = self._below(top + down, g.height) & self._below(left + right, g.width)
                    row, step = k.pick(inside, row, self.zeros), inside.select(g.x_c, 0)
                rows.append(anchored(k, row))
                steps.append(step)
            panel = anchored(k, weights + (r * g.taps_s + s) * pitch)
            self._accumulate(sums, rows, panel, 1 if self.config.unit else steps)

    def _below(self, a: Int, limit: Int) -> Bool:
        """Whether `0 <= a < limit`, in one comparison."""
        return Bool(self.k.b, self.k.b.icmp_unsigned("<", a.value, limit.value))

    def _finish(self, sums: list[list[Var]], first: _Spot, group: Int, block: Int) -> None:
        k, config = self.k, self.config
        vectors = range(config.vectors)
        places = [self.epilogue.place(block * config.vectors + j, group) for j in vectors]
        for spot, tile in zip(self._spots(first), sums, strict=True):
            with k.when(spot.number < self.g.pixels):
                pixel = self.epilogue.pixel(spot.n, spot.p, spot.q)
                for total, place in zip(tile, places, strict=True):
                    self.epilogue.finish(total.get(), pixel, place)

    # Prologue

    def _apply_prologue(self, first: Int, end: Int) -> None:
        """Apply the prologue to every pixel of the chunk, into this thread's scratch."""
        k, g = self.k, self.g
        start = first * self.config.rows
        stop = k.minimum_int(end * self.config.rows, g.pixels)
        with k.range(start, stop) as number:
            spot = self._spot(number)
            x = self.x + (
                spot.n * g.x_n + spot.p * g.stride_h * g.x_h + spot.q * g.stride_w * g.x_w
            )
            lanes = k.lanes if self.config.unit else 1
            main = g.depth // lanes * lanes
            with k.range(0, main, lanes) as c:
                self._prologue_at(spot, x, (number - start) * g.depth, c, lanes)
            with k.range(main, g.depth) as c:
                self._prologue_at(spot, x, (number - start) * g.depth, c, 1)

    def _prologue_at(self, spot: _Spot, x: Ptr, row: Int, c: Int, lanes: int) -> None:
        assert self.panel is not None
        values = [x.vec(c if self.config.unit else c * self.g.x_c, lanes=lanes)]
        for pointer, n_stride in zip(self.operands, self.operand_strides, strict=True):
            values.append(pointer.vec(spot.n * n_stride + c, lanes=lanes))
        value = emit_expr(self.k, parse(self.config.prologue), values)
        self.panel.store(value, row + c)


def _supports(call: Call) -> str | None:
    op: Conv2d = call.op
    if not call.constant[1]:
        return "the weights are not constant"
    if any(view.dtype is not DType.F32 for view in call.inputs[:2]):
        return f"elements are {call.inputs[0].dtype.value}, not float32"
    if op.prologue != IDENTITY:
        if call.inputs[1].shape[2:] != (1, 1) or any(op.padding) or op.groups != 1:
            return "a prologue needs one tap, no padding and one group"
        for view in call.inputs[2 : 2 + op.n_prologue]:
            if view.dtype is not DType.F32 or (view.strides[1] != 1 and view.shape[1] != 1):
                return "a prologue operand is not float32 with neighbouring channels"
    return conv_epilogue(call).refuse()


def _tile(call: Call, spec: EpilogueSpec) -> tuple[int, int]:
    n, _, p, q = spec.shape
    _, depth, taps_r, taps_s = call.inputs[1].shape
    pitch = 4 * depth if call.op.n_prologue else 4 * call.inputs[0].strides[3] * call.op.stride[1]
    return choose_tile(
        n * p * q, spec.vectors, depth=depth * taps_r * taps_s, pitch=pitch,
        unit=call.inputs[0].channels_last or call.op.n_prologue > 0,
        target=call.target, threads=call.threads,
    )  # fmt: skip


def _launch(call: Call) -> tuple[Launch, ...]:
    op: Conv2d = call.op
    spec = conv_epilogue(call)
    x, w = call.inputs[:2]
    n, _, p, q = spec.shape
    depth, taps_r, taps_s = w.shape[1:]
    pixels = n * p * q
    width, rows = _tile(call, spec)
    blocks = -(-spec.vectors // width)
    channels = width * call.target.lanes
    prologue = op.prologue != IDENTITY
    tiles = -(-pixels // rows)
    panel = 4 * depth * taps_r * taps_s * channels
    cut = blocking(
        tiles, blocks, panel=panel, row=4 * depth * rows * taps_r, target=call.target,
        threads=1 if op.groups >= 4 * call.threads else call.threads,
    )  # fmt: skip
    padded = any(op.padding)
    reduction = Reduction.of(depth)
    config = DirectConfig(
        rows, width, reduction.unroll, reduction.shape, padded, x.channels_last,
        str(op.prologue), op.n_prologue, spec.code(width),
    )  # fmt: skip
    nbytes = 4 * op.groups * blocks * taps_r * taps_s * depth * channels
    weights = Packing("pack_conv_weights", (op.groups, spec.order, channels), (1,), nbytes)
    operands: list[Operand] = [In(0), Packed(weights)]
    if padded:
        count = depth if x.channels_last else 1
        operands.append(Packed(Packing("zeros", (count,), (), 4 * count)))
    operands += [In(2 + i) for i in range(op.n_prologue)]
    if prologue:
        operands.append(Scratch(4 * cut.tiles * rows * depth + 64))
    geometry = (
        *x.strides, *x.shape[2:], p, q, depth, taps_r, taps_s, *op.stride, *op.padding[:2],
        *op.dilation, pixels, blocks, cut.tiles, cut.blocks, cut.tile_chunks, cut.block_chunks,
        int(cut.pixels_first), op.groups,
    )  # fmt: skip
    images = [expand(v, (n, depth, 1, 1)).strides[0] for v in call.inputs[2 : 2 + op.n_prologue]]
    integers = (*geometry, *images, *spec.integers())
    chunks = op.groups * cut.tile_chunks * cut.block_chunks
    return (Launch(config, (*operands, *spec.pointers()), integers, chunks),)


def _cost(call: Call) -> float:
    spec = conv_epilogue(call)
    depth, taps_r, taps_s = call.inputs[1].shape[1:]
    n, k, p, q = spec.shape
    pixels = n * p * q
    if pixels * k == 0:
        return machine(call.target).step
    width, rows = _tile(call, spec)
    padded = -(-spec.vectors // width) * width * call.target.lanes * call.op.groups
    flops = 2.0 * (-(-pixels // rows) * rows) * padded * depth * taps_r * taps_s
    nbytes = 4.0 * (call.inputs[0].size + call.outputs[0].size + call.inputs[1].size)
    units = -(-pixels // rows) * -(-spec.vectors // width) * call.op.groups
    threads = min(call.threads, units)
    return machine(call.target).roofline(flops, nbytes, threads, 0.9)


def _aliases(call: Call) -> tuple[tuple[int, int], ...]:
    """A residual may give its memory to the result: every element is read before it is written."""
    spec = conv_epilogue(call)
    if spec.kind not in ("plain", "strided"):
        return ()
    return tuple((i, 0) for i, _, _ in spec.operands if call.inputs[i] == call.outputs[0])


def _emit(k: Kernel, config: DirectConfig) -> None:
    _Direct(k, config).emit()


CONV2D_DIRECT = CpuKernel(
    name="conv2d.direct",
    ops=(Conv2d,),
    config=DirectConfig,
    supports=_supports,
    launch=_launch,
    emit=_emit,
    cost=_cost,
    aliases=_aliases,
)
