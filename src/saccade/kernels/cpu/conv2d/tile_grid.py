"""The grid of tiles of rows times blocks of columns of a matrix product, cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Int

__all__ = ["Cell", "TileGrid"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A chunk: ranges of blocks and of tiles; the last tiles may lie past the end.

    Attributes:
        group: Which of several equal grids.
        blocks: First block, one past the last.
        tiles: First tile, one past the last.
    """

    group: Int
    blocks: tuple[Int, Int]
    tiles: tuple[Int, Int]


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Integer parameters, in the order of `direct_config.Blocking.integers`."""

    groups: Int
    blocks: Int
    tiles_chunk: Int
    blocks_chunk: Int
    tile_chunks: Int
    block_chunks: Int
    tiles_first: Int

    @contextmanager
    def chunks(self, k: KernelBuilder) -> Iterator[Cell]:
        """Claim chunks; neighbours share their blocks or their tiles, as `tiles_first` says."""
        area = self.tile_chunks * self.block_chunks
        with k.chunks(self.groups * area) as chunk:
            group = chunk // area
            within = chunk - group * area
            fast = self.tiles_first.differs(0)
            inner = fast.select(self.tile_chunks, self.block_chunks)
            outer_at = within // inner
            inner_at = within - outer_at * inner
            first = fast.select(inner_at, outer_at) * self.tiles_chunk
            block = fast.select(outer_at, inner_at) * self.blocks_chunk
            blocks = block, k.minimum_int(block + self.blocks_chunk, self.blocks)
            yield Cell(group, blocks, (first, first + self.tiles_chunk))
