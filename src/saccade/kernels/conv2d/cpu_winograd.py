"""Winograd's convolution on the CPU: F(4x4, 3x3) and F(2x2, 3x3) over channels-last pictures.

Layouts: x and the result channels-last with any pitch; the result also through DepthToSpace or a
channel interleave. Weights are transformed at load into panels of nv vectors of filters. No halo:
patches at the border are completed with zeros. Refused: everything but 3x3 with stride 1, dilation
1 and one group; prologues; row-major pictures; `exact`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from saccade.codegen.language import Kernel, Ptr
from saccade.codegen.values import Int
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
    Temp,
    Variant,
)
from saccade.kernels.conv2d.epilogue import Epilogue
from saccade.kernels.conv2d.epilogue_spec import EpilogueSpec, conv_epilogue
from saccade.kernels.conv2d.pack_winograd import packed_bytes
from saccade.kernels.conv2d.winograd_gemm import Shape, emit_rows, rows_in_registers
from saccade.kernels.conv2d.winograd_schedule import SET_STEP, Problem, Schedule, ranked
from saccade.kernels.conv2d.winograd_stages import (
    Picture,
    Result,
    Spectrum,
    Tiling,
    emit_input_tile,
    emit_output_tile,
)
from saccade.opdefs import Conv2d
from saccade.opdefs._taps import expr_flops

__all__ = ["CONV2D_WINOGRAD", "WinogradConfig", "launch_as", "problem_of"]

INLINE_OPS = 3


@dataclass(frozen=True, slots=True)
class WinogradConfig:
    """What the code depends on.

    Attributes:
        stage: `fused`, or one of the phases `input`, `products`, `output`.
        m: Edge of a tile.
        mr, nv: Tiles times vectors of filters whose sums stay in registers (1 where none do).
        epilogue: `EpilogueSpec.code`, () where a stage stores no result.
    """

    stage: str
    m: int
    mr: int = 1
    nv: int = 1
    epilogue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Integer parameters, in order; all stages declare all of them."""

    tiles: Int
    block: Int
    columns: Int
    per_image: Int
    channels: Int
    pitch: Int
    v_step: Int
    m_step: Int
    panels: Int
    vectors: Int
    height: Int
    width: Int
    x_n: Int
    x_h: Int
    x_w: Int
    top: Int
    left: Int
    rows: Int
    columns_out: Int


def _declare(k: Kernel) -> _Sizes:
    return _Sizes(*k.integers(" ".join(_Sizes.__slots__)))


@dataclass(frozen=True, slots=True)
class _Code:
    """Emits the stages of one config."""

    k: Kernel
    c: WinogradConfig
    s: _Sizes

    @property
    def tiling(self) -> Tiling:
        return Tiling(self.c.m, self.s.columns, self.s.per_image)

    @property
    def panel(self) -> int:
        return self.c.nv * self.k.lanes

    @property
    def squares(self) -> int:
        return (self.c.m + 2) ** 2

    def block(self, index: Int) -> tuple[Int, Int]:
        """First tile of a block and how many there are."""
        first = index * self.s.block
        return first, self.k.minimum_int(self.s.tiles - first, self.s.block)

    def forward(self, x: Ptr, patch: Ptr, v: Ptr, tiles: tuple[Int, Int]) -> None:
        """Patches of some tiles into the first rows of `v`."""
        s = self.s
        strides = (s.x_n, s.x_h, s.x_w)
        picture = Picture(self.c.m, x, patch, s.channels, s.height, s.width, strides, s.top, s.left)
        with self.k.range(0, tiles[1]) as t:
            row = Spectrum(v + t * s.pitch, s.v_step)
            emit_input_tile(self.k, picture, self.tiling.pixel(tiles[0] + t), row)

    def products(self, v: Ptr, u: Ptr, m: Ptr, rows: Int) -> None:
        """One frequency and panel: rows of `v` times `u` into `m`."""
        shape = Shape(rows, self.s.channels, self.s.pitch)
        emit_rows(self.k, shape, (v, u, m), self.c.mr, self.c.nv)

    def back(self, m: Ptr, stage: Ptr, ep: Epilogue, tiles: tuple[Int, Int], panel: Int) -> None:
        """The panel `m` of some tiles into the result."""
        s, k = self.s, self.k
        inline = expr_flops(parse(self.c.epilogue[0])) <= INLINE_OPS
        result = Result(self.c.m, ep, s.rows, s.columns_out, stage, inline)
        first = panel * self.c.nv
        vectors = (first, k.minimum_int(s.vectors - first, self.c.nv))
        with k.range(0, tiles[1]) as t:
            row = Spectrum(m + t * self.panel, s.m_step)
            emit_output_tile(k, result, self.tiling.pixel(tiles[0] + t), row, vectors)


def _emit(k: Kernel, config: WinogradConfig) -> None:
    {
        "fused": _emit_fused,
        "input": _emit_input,
        "products": _emit_products,
        "output": _emit_output,
    }[config.stage](k, config)


def _emit_fused(k: Kernel, config: WinogradConfig) -> None:
    x, u, v = k.pointer("x"), k.pointer("u"), k.scratch("block")
    epilogue = Epilogue(k, config.epilogue)
    code = _Code(k, config, _declare(k))
    epilogue.declare_integers()
    s = code.s
    m = v + s.v_step * code.squares
    stage = m + s.m_step * code.squares
    with k.chunks((s.tiles + s.block - 1) // s.block) as chunk:
        tiles = code.block(chunk)
        code.forward(x, stage, v, tiles)
        with k.range(0, s.panels) as panel:
            with k.range(0, code.squares) as f:
                weights = u + (panel * code.squares + f) * s.channels * code.panel
                code.products(v + f * s.v_step, weights, m + f * s.m_step, tiles[1])
            code.back(m, stage, epilogue, tiles, panel)


def _emit_input(k: Kernel, config: WinogradConfig) -> None:
    x, patch, v = k.pointer("x"), k.scratch("patch"), k.pointer("v")
    code = _Code(k, config, _declare(k))
    with k.chunks(code.s.tiles) as tile:
        code.forward(x, patch, v + tile * code.s.pitch, (tile, k.int(1)))


def _emit_products(k: Kernel, config: WinogradConfig) -> None:
    v, u, m = k.pointer("v"), k.pointer("u"), k.pointer("m")
    code = _Code(k, config, _declare(k))
    s = code.s
    blocks = (s.tiles + s.block - 1) // s.block
    with k.chunks(s.panels * code.squares * blocks) as chunk:
        matrix = chunk // blocks
        first, count = code.block(chunk - matrix * blocks)
        rows = v + (matrix % code.squares) * s.v_step + first * s.pitch
        sums = m + matrix * s.m_step + first * code.panel
        code.products(rows, u + matrix * s.channels * code.panel, sums, count)


def _emit_output(k: Kernel, config: WinogradConfig) -> None:
    m, stage = k.pointer("m"), k.scratch("stage_tile")
    epilogue = Epilogue(k, config.epilogue)
    code = _Code(k, config, _declare(k))
    epilogue.declare_integers()
    s = code.s
    with k.chunks(s.tiles * s.panels) as chunk:
        tile = chunk // s.panels
        panel = chunk - tile * s.panels
        sums = m + panel * s.m_step * code.squares + tile * code.panel
        code.back(sums, stage, epilogue, (tile, k.int(1)), panel)


# Planning


def _supports(call: Call) -> str | None:
    op: Conv2d = call.op
    x, w = call.inputs[:2]
    if call.exact:
        return "Winograd rounds more than the direct sum"
    if w.shape[2:] != (3, 3) or op.stride != (1, 1) or op.dilation != (1, 1) or op.groups != 1:
        return "only 3x3 with stride 1, dilation 1 and one group"
    if op.prologue != IDENTITY or op.n_prologue:
        return "takes no prologue"
    if not call.constant[1]:
        return "weights are not known ahead"
    if x.dtype is not DType.F32 or w.dtype is not DType.F32:
        return "only float32"
    if not x.channels_last:
        return "x is not channels-last"
    spec = conv_epilogue(call)
    if spec.kind not in ("plain", "subpixel", "interleave"):
        return "the result is not channels-last"
    return spec.refuse()


def problem_of(call: Call, spec: EpilogueSpec) -> Problem:
    n, _, rows, columns = spec.shape
    channels = call.inputs[0].shape[1]
    return Problem(n, rows, columns, channels, spec.vectors, call.threads, call.target)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes of the buffers of one call, in elements."""

    tiles: int
    panels: int
    squares: int
    pitch: int
    panel: int

    def v_step(self, tiles: int) -> int:
        return tiles * self.pitch + SET_STEP

    def m_step(self, tiles: int) -> int:
        return tiles * self.panel + SET_STEP


def _layout(problem: Problem, chosen: Schedule) -> _Layout:
    lanes = problem.target.lanes
    tiles = problem.images * -(-problem.rows // chosen.m) * -(-problem.columns // chosen.m)
    pitch = -(-problem.channels // lanes) * lanes
    panels = -(-problem.vectors // chosen.nv)
    return _Layout(tiles, panels, (chosen.m + 2) ** 2, pitch, chosen.nv * lanes)


def _integers(
    call: Call, problem: Problem, chosen: Schedule, layout: _Layout, rows: int
) -> tuple[int, ...]:
    x, op = call.inputs[0], call.op
    columns = -(-problem.columns // chosen.m)
    return (
        layout.tiles, chosen.block, columns, -(-problem.rows // chosen.m) * columns,
        problem.channels, layout.pitch, layout.v_step(rows), layout.m_step(rows),
        layout.panels, problem.vectors, x.shape[2], x.shape[3],
        x.strides[0], x.strides[2], x.strides[3],
        op.padding[0], op.padding[1], problem.rows, problem.columns,
    )  # fmt: skip


def _variants(call: Call) -> Iterator[Variant]:
    spec = conv_epilogue(call)
    problem = problem_of(call, spec)
    for chosen in ranked(problem):
        yield Variant(chosen.micros, partial(launch_as, call, spec, problem, chosen))


def launch_as(
    call: Call, spec: EpilogueSpec, problem: Problem, chosen: Schedule
) -> tuple[Launch, ...]:
    """The phases of a call under a given schedule."""
    layout = _layout(problem, chosen)
    size = packed_bytes(layout.panels, problem.channels, chosen.m, layout.panel)
    u = Packed(Packing("pack_winograd", (chosen.m, layout.panel, spec.order), (1,), size))
    code, tail = spec.code(), (spec.pointers(), spec.integers())
    mr = rows_in_registers(chosen.nv, problem.target)
    stage = Scratch(4 * layout.squares * problem.target.lanes)
    rows = layout.tiles if chosen.phased else chosen.block
    v_bytes = 4 * layout.squares * layout.v_step(rows)
    m_bytes = 4 * layout.squares * layout.m_step(rows)
    integers = _integers(call, problem, chosen, layout, rows)
    blocks = -(-layout.tiles // chosen.block)
    if not chosen.phased:
        operands: tuple[Operand, ...] = (In(0), u, Scratch(v_bytes + m_bytes + stage.nbytes))
        config = WinogradConfig("fused", chosen.m, mr, chosen.nv, code)
        return (Launch(config, operands + tail[0], integers + tail[1], blocks),)
    v, m = Temp(0, v_bytes), Temp(1, m_bytes * layout.panels)
    products = WinogradConfig("products", chosen.m, mr, chosen.nv)
    output = WinogradConfig("output", chosen.m, nv=chosen.nv, epilogue=code)
    matrices = layout.panels * layout.squares
    return (
        Launch(WinogradConfig("input", chosen.m), (In(0), stage, v), integers, layout.tiles),
        Launch(products, (v, u, m), integers, matrices * blocks),
        Launch(
            output,
            (m, stage, *tail[0]),
            integers + tail[1],
            layout.tiles * layout.panels,
        ),
    )


CONV2D_WINOGRAD = CpuKernel(
    name="conv2d.winograd",
    ops=(Conv2d,),
    config=WinogradConfig,
    supports=_supports,
    variants=_variants,
    emit=_emit,
)
