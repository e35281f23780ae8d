"""The code of matrix products in tiles of matrices."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.tile_grid import TileGrid
from saccade.kernels.cpu.conv2d.tile_products import (
    TileBlock,
    TileProducts,
    blank,
    copy_row,
    tiles_and_blocks,
)
from saccade.kernels.cpu.matmul.direct_config import MatMulConfig

__all__ = ["emit_tiles"]


@dataclass(frozen=True, slots=True)
class _TileGeometry:
    """The integer parameters; `b_*` step over panels, `pitch` is that of rows of a copy."""

    a_0: Int
    a_1: Int
    a_m: Int
    b_0: Int
    b_1: Int
    inner_batch: Int
    rows: Int
    inner: Int
    pairs: Int
    pitch: Int
    tiles_outer: Int


@dataclass(frozen=True, slots=True)
class _RowTiles:
    """Tiles `first … end - 1` of rows of a matrix; from tile `copied` on they are in scratch."""

    batch: tuple[Int, Int]
    first: Int
    end: Int
    copied: Int


class _TileProduct:
    """Emits the product."""

    def __init__(self, k: KernelBuilder, config: MatMulConfig) -> None:
        self.k, self.config = k, config
        self.block = TileBlock(config.rows, config.vectors)
        self.a, self.b = k.pointer("a", "bfloat16"), k.pointer("b", "bfloat16")
        self.copy = k.scratch("copy", "bfloat16")
        self.products = TileProducts(k, self.block, rest=config.shape == "tail")
        self.epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(_TileGeometry), k.sizes(TileGrid)
        self.epilogue.declare_integers()

    def emit(self) -> None:
        """All chunks."""
        k, g, height = self.k, self.g, self.block.height
        k.tiles_begin()
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            end = k.minimum_int(end, (g.rows + (height - 1)) // height)
            # Of rows that are read where they lie, those of a last tile of fewer are copied.
            copied = first if self.config.copied else k.maximum_int(first, g.rows // height)
            outer = cell.group // g.inner_batch
            batch = outer, cell.group - outer * g.inner_batch
            chunk = _RowTiles(batch, first, end, copied)
            self._copy(chunk)
            panels = self.b + (batch[0] * g.b_0 + batch[1] * g.b_1)
            with tiles_and_blocks(k, (first, end), cell.blocks, g.tiles_outer) as (tile, block):
                panel = anchored(k, panels + block * g.pairs * (2 * self.block.width))
                self.products.fill_rest(panel, g.pairs)
                self._tile(chunk, tile, panel)
                self._finish(chunk, tile, block)
        k.tiles_end()

    def _row(self, chunk: _RowTiles, number: Int) -> Ptr:
        g, (outer, inner) = self.g, chunk.batch
        return self.a + (outer * g.a_0 + inner * g.a_1 + number * g.a_m)

    def _copy(self, chunk: _RowTiles) -> None:
        k, g, config = self.k, self.g, self.config
        first = chunk.copied * self.block.height
        with k.range(first, k.minimum_int(chunk.end * self.block.height, g.rows)) as number:
            to = self.copy + (number - first) * g.pitch
            if config.shape == "tail" or config.odd:
                blank(k, to, g.pairs * 2 - 2)
            copy_row(k, self._row(chunk, number), to, g.inner, ragged=config.copied)

    def _tile(self, chunk: _RowTiles, tile: Int, panel: Ptr) -> None:
        k, g = self.k, self.g
        rows, pitch = self.copy + (tile - chunk.copied) * self.block.height * g.pitch, g.pitch
        if not self.config.copied:
            last = tile >= chunk.copied
            there = self._row(chunk, tile * self.block.height)
            rows, pitch = k.pick(last, rows, there), last.select(g.pitch, g.a_m)
        cold = tile.equals(chunk.first)
        self.products.compute(anchored(k, rows), pitch, panel, g.pairs, cold)

    def _finish(self, chunk: _RowTiles, tile: Int, block: Int) -> None:
        k, vectors, first = self.k, self.config.vectors, tile * self.block.height
        places = [self.epilogue.place(block * vectors + j) for j in range(vectors)]
        count = k.minimum_int(self.g.rows - first, self.block.height)
        pixel = self.epilogue.pixel(*chunk.batch, first)
        self.products.sums.finish(self.epilogue, k.int(0), count, pixel, places)


def emit_tiles(k: KernelBuilder, config: MatMulConfig) -> None:
    """Emit the product that `config` describes."""
    _TileProduct(k, config).emit()
