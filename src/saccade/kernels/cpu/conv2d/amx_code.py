"""The code of convolutions in tiles of matrices: rows of windows times panels of weights."""

from __future__ import annotations

from typing import Protocol

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.amx_config import AmxConfig
from saccade.kernels.cpu.conv2d.amx_planes import PlaneWindows
from saccade.kernels.cpu.conv2d.amx_shifted import ShiftedRows
from saccade.kernels.cpu.conv2d.amx_sparse import SparseWindows
from saccade.kernels.cpu.conv2d.amx_windows import AmxSizes, Chunk, GatheredWindows
from saccade.kernels.cpu.conv2d.epilogue import Epilogue
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.tile_grid import TileGrid
from saccade.kernels.cpu.conv2d.tile_products import TileBlock, TileProducts, tiles_and_blocks

__all__ = ["emit_amx"]


class _Source(Protocol):
    """Where windows are read."""

    def count(self) -> Int:
        """Rows of sums in all."""

    def prepare(self, chunk: Chunk) -> None:
        """Copy what the chunk's tiles read."""

    def compute(self, chunk: Chunk, tile: Int, panel: Ptr) -> None:
        """Sums of a tile of windows, times a panel."""

    def finish(self, chunk: Chunk, tile: Int, block: Int) -> None:
        """The epilogue of a tile of windows and a block of channels."""


class _Convolution:
    """Emits one convolution."""

    def __init__(self, k: KernelBuilder, config: AmxConfig) -> None:
        self.k, self.config = k, config
        self.block = TileBlock(config.rows, config.vectors)
        x, self.w = k.pointer("x", config.element), k.pointer("w", "bfloat16")
        operands = [
            k.pointer(f"prologue{i}", element) for i, element in enumerate(config.prologue_operands)
        ]
        windows = k.scratch("windows", "bfloat16")
        image = k.scratch("image", "bfloat16") if config.source == "planes" else None
        self.products = TileProducts(k, self.block, rest=config.rest)
        epilogue = Epilogue(k, config.epilogue)
        self.g, self.grid = k.sizes(AmxSizes), k.sizes(TileGrid)
        steps = k.array("prologue_n", len(operands))
        epilogue.declare_integers()
        self.source: _Source
        if image is not None:
            self.source = PlaneWindows(
                k, config, self.g, x, (image, windows), self.products, epilogue
            )
        elif config.source == "shifted":
            self.source = ShiftedRows(k, config, self.g, x, windows, self.products, epilogue)
        else:
            kind = SparseWindows if config.source == "sparse" else GatheredWindows
            prologue = list(zip(operands, steps, strict=True))
            self.source = kind(k, config, self.g, x, windows, self.products, epilogue, prologue)

    def emit(self) -> None:
        """All chunks."""
        k, height = self.k, self.block.height
        k.tiles_begin()
        with self.grid.chunks(k) as cell:
            first, end = cell.tiles
            end = k.minimum_int(end, (self.source.count() + (height - 1)) // height)
            image = cell.group // self.g.channel_groups
            chunk = Chunk(image, cell.group - image * self.g.channel_groups, first, end)
            self.source.prepare(chunk)
            order = self.g.tiles_outer
            with tiles_and_blocks(k, (first, end), cell.blocks, order) as (tile, block):
                panel = self._panel(chunk, block)
                self.products.fill_rest(panel, self.g.pairs)
                self.source.compute(chunk, tile, panel)
                self.source.finish(chunk, tile, block)
        k.tiles_end()

    def _panel(self, chunk: Chunk, block: Int) -> Ptr:
        number = chunk.group * self.grid.blocks + block
        return anchored(self.k, self.w + number * self.g.pairs * (2 * self.block.width))


def emit_amx(k: KernelBuilder, config: AmxConfig) -> None:
    """Emit the convolution that `config` describes."""
    _Convolution(k, config).emit()
