"""The code of Winograd's convolution: one fused phase over blocks of tiles, or three phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.ir.expr import parse
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.winograd_gemm import Shape, emit_rows
from saccade.kernels.cpu.conv2d.winograd_points import WinogradTile
from saccade.kernels.cpu.conv2d.winograd_stages import (
    InputImage,
    Spectrum,
    WinogradResult,
    emit_input_tile,
    emit_output_tile,
)
from saccade.kernels.cpu.conv2d.winograd_tiles import At, Frequencies, TileShare, Tiling, Where
from saccade.opdefs._taps import expr_flops

__all__ = ["WinogradConfig", "WinogradSizes", "emit_winograd"]

INLINE_OPS = 3
"""Operations of an epilogue that is unrolled along whole lines; a longer one is a loop."""


@dataclass(frozen=True, slots=True)
class WinogradConfig:
    """What the code depends on.

    Attributes:
        stage: `fused`, or one of the phases `input`, `products`, `output`.
        m: Edge of a whole tile.
        stride: Of the convolution, 1 or 2. The phase of the products serves all tiles and strides:
            `m` is 1 there.
        shorter: Lengths of the tiles at the edges that there is code for.
        apart: Distance of taps, rows and columns: a tile's pixels are as far apart.
        heights: Numbers of tiles whose sums stay in registers, the largest first; () where a
            stage sums nothing.
        nv: Vectors of filters in a panel.
        ahead: How many vectors of weights ahead of use are asked for, 0 for none: into the L2
            cache, as phased ones come from memory, else into the L1 cache.
        x: Element type of the image.
        epilogue: `EpilogueSpec.code`, () where a stage stores no result.
        far: Whether the next patch is asked for early, and what the next tile writes.
    """

    stage: str
    m: int
    stride: int
    shorter: tuple[int, ...]
    apart: tuple[int, int] = (1, 1)
    heights: tuple[int, ...] = ()
    nv: int = 1
    ahead: int = 0
    x: str = "float32"
    epilogue: tuple[str, ...] = ()
    far: bool = False


@dataclass(frozen=True, slots=True)
class WinogradSizes:
    """Integer parameters; all stages declare all of them.

    Attributes:
        blocks: Into how many blocks the tiles are divided.
        parts: Into how many parts the panels of a frequency are divided (of the products).
        images: How many there are, those of every lattice.
        tile_rows, tile_columns: Extents of one in whole tiles.
        edge_rows, edge_columns: Heights of the tiles at the bottom and widths of those at the
            right; 0 where there are none (tiles that leave the image are then clipped).
        channels: Length of the sums.
        v_block: Elements of V from one vector of channels to the next.
        v_step, m_step: Elements of V and M from frequency to frequency.
        panels, vectors: Panels, and vectors of filters.
        height, width: Extents of the image.
        x_n, x_h, x_w: Elements between its images, rows, columns.
        top, left: Padding.
        rows, columns: Extents of the result.
        frequencies, points, distinct, taps: See `Frequencies`.
    """

    blocks: Int
    parts: Int
    images: Int
    tile_rows: Int
    tile_columns: Int
    edge_rows: Int
    edge_columns: Int
    channels: Int
    v_block: Int
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
    columns: Int
    frequencies: Int
    points: Int
    distinct: Int
    taps: Int


@dataclass(frozen=True, slots=True)
class _WinogradCode:
    """Emits the stages of one config."""

    k: KernelBuilder
    c: WinogradConfig
    s: WinogradSizes

    @property
    def tiling(self) -> Tiling:
        s = self.s
        edges = (s.edge_rows, s.edge_columns)
        return Tiling(edges, s.images, s.tile_rows, s.tile_columns, self.tile, self.c.shorter)

    @property
    def tile(self) -> WinogradTile:
        return WinogradTile(self.c.m, self.c.m, self.c.stride)

    @property
    def edge(self) -> int:
        return self.tile.count

    @property
    def squares(self) -> int:
        return self.edge**2

    @property
    def panel(self) -> int:
        return self.c.nv * self.k.lanes

    @contextmanager
    def tiles(self, shares: list[TileShare]) -> Iterator[Where]:
        """Loop over tiles; places are those of the image, whatever the lattice."""
        with self.tiling.each(self.k, shares) as where:
            yield replace(where, at=self._spread(where.at))

    def _spread(self, at: At) -> At:
        """The pixel of the image that is pixel `at` of a lattice."""
        down, along = self.c.apart
        if down * along == 1:
            return at
        n, row, column = at
        image = n // (down * along)
        lattice = n - image * (down * along)
        first = lattice // along
        return image, row * down + first, column * along + (lattice - first * along)

    def forward(self, x: Ptr, stage: Ptr, v: Ptr, shares: list[TileShare]) -> None:
        """Patches of some tiles into their rows of `v`."""
        s, k = self.s, self.k
        strides = (s.x_n, s.x_h, s.x_w)
        size = (s.height, s.width)
        image = InputImage(
            x, stage, s.channels, *size, strides, s.top, s.left, self.c.apart, self.c.far
        )
        with self.tiles(shares) as where:
            row = Spectrum(v + where.row * k.lanes, s.v_step, self.edge, s.v_block)
            emit_input_tile(k, image, where, row)

    def products(
        self,
        known: Frequencies,
        v: Ptr,
        u: Callable[[Int], Ptr],
        m: Ptr,
        f: Int,
        shares: list[TileShare],
    ) -> None:
        """One frequency and panel: rows of `v` that have it times `u(weights)` into `m`."""
        down = f // known.count
        along = f - down * known.count
        first, count = known.rows(self.k, shares, self.tiling.edges, down, along)
        shape = Shape(
            count, self.s.channels, self.s.v_block, self.c.ahead, near=self.c.stage == "fused"
        )
        weights = u(known.weights(self.k, down, along))
        matrices = (v + first * self.k.lanes, weights, m + first * self.panel)
        emit_rows(self.k, shape, matrices, self.c.heights, self.c.nv)

    def back(self, m: Ptr, stage: Ptr, ep: Epilogue, shares: list[TileShare], panel: Int) -> None:
        """The panel `m` of some tiles into the result."""
        s, k = self.s, self.k
        inline = expr_flops(parse(self.c.epilogue[0])) <= INLINE_OPS
        result = WinogradResult(ep, s.rows, s.columns, stage, inline, self.c.apart, self.c.far)
        first = panel * self.c.nv
        vectors = (first, k.minimum_int(s.vectors - first, self.c.nv))
        with self.tiles(shares) as where:
            row = Spectrum(m + where.row * self.panel, s.m_step, self.edge, k.lanes)
            emit_output_tile(k, result, where, row, vectors)


def emit_winograd(k: KernelBuilder, config: WinogradConfig) -> None:
    """Emit one phase."""
    {
        "fused": _emit_fused,
        "input": _emit_input,
        "products": _emit_products,
        "output": _emit_output,
    }[config.stage](k, config)


def _emit_fused(k: KernelBuilder, config: WinogradConfig) -> None:
    x, u, v = k.pointer("x", config.x), k.pointer("u"), k.scratch("block")
    epilogue = Epilogue(k, config.epilogue)
    code = _WinogradCode(k, config, k.sizes(WinogradSizes))
    epilogue.declare_integers()
    s = code.s
    m = v + s.v_step * code.squares
    stage = m + s.m_step * code.squares
    with k.chunks(s.blocks) as chunk:
        shares = code.tiling.shares(k, chunk, s.blocks, local=True)
        code.forward(x, stage, v, shares)
        known = Frequencies.of(code.tile)
        with k.range(0, s.panels) as panel:
            before = panel * code.tile.weights**2
            with k.range(0, code.squares) as f:
                code.products(
                    known, v + f * s.v_step,
                    lambda number: u + (before + number) * s.channels * code.panel,
                    m + f * s.m_step, f, shares,
                )  # fmt: skip
            code.back(m, stage, epilogue, shares, panel)


def _emit_input(k: KernelBuilder, config: WinogradConfig) -> None:
    x, stage, v = k.pointer("x", config.x), k.scratch("stage_tile"), k.pointer("v")
    code = _WinogradCode(k, config, k.sizes(WinogradSizes))
    with k.chunks(code.s.blocks) as chunk:
        code.forward(x, stage, v, code.tiling.shares(k, chunk, code.s.blocks, local=False))


def _emit_products(k: KernelBuilder, config: WinogradConfig) -> None:
    v, u, m = k.pointer("v"), k.pointer("u"), k.pointer("m")
    code = _WinogradCode(k, config, k.sizes(WinogradSizes))
    s = code.s
    shares = code.tiling.all(k)
    known = Frequencies(s.frequencies, s.points, s.distinct, s.taps)
    squares = s.frequencies * s.frequencies
    with k.chunks(s.parts * squares) as chunk:
        f = chunk // s.parts
        part = chunk - f * s.parts
        with k.range(s.panels * part // s.parts, s.panels * (part + 1) // s.parts) as panel:
            code.products(
                known, v + f * s.v_step,
                lambda number: u + (number * s.panels + panel) * s.channels * code.panel,
                m + (panel * squares + f) * s.m_step, f, shares,
            )  # fmt: skip


def _emit_output(k: KernelBuilder, config: WinogradConfig) -> None:
    m, stage = k.pointer("m"), k.scratch("stage_tile")
    epilogue = Epilogue(k, config.epilogue)
    code = _WinogradCode(k, config, k.sizes(WinogradSizes))
    epilogue.declare_integers()
    s = code.s
    with k.chunks(s.blocks * s.panels) as chunk:
        block = chunk // s.panels
        panel = chunk - block * s.panels
        shares = code.tiling.shares(k, block, s.blocks, local=False)
        code.back(m + panel * s.m_step * code.squares, stage, epilogue, shares, panel)
