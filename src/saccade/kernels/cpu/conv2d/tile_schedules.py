"""Blocks of tiles of matrices and their cuts into chunks, the best first, by estimated time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from saccade.backends.cpu.target import Target
from saccade.kernels.cpu.conv2d.direct_config import Blocking, blockings
from saccade.kernels.cpu.conv2d.tile_products import PAIRS, TileBlock
from saccade.kernels.cpu.machine import machine, tile_clock

__all__ = ["BlockSchedule", "BlockWork"]

# Cycles, of two cores of an Emerald Rapids:
_PRODUCT = 16  # of two tiles, the instruction's own
# Share of it that each register beyond four adds: half of what was measured beside another thread
# of the same core, without which they cost nothing.
_FREE, _CROWDED = 4, 0.15
_NEAR, _FAR = 8, 13  # of loading a tile from the L1 cache; more, from L2
_L1_SHARE = 0.7  # that what stays there may take
_BLOCK = 60  # of a block beside its products: zeros, the wait for the last sums
_FINISHED = 6  # of a vector of sums: to scratch, back, through the epilogue and to its place
_SPLIT = 12  # more where it fills half a line of cache, and the other half is written later


class BlockSchedule(NamedTuple):
    """A block of tiles and how its grid is cut into chunks.

    Attributes:
        micros: Estimated, without the traffic of operands and results.
        block: The tiles.
        cut: Into chunks.
        tiles_outer: Whether a chunk goes through all blocks of columns for each tile of rows, so
            that these stay in the L1 cache, and not reversely.
    """

    micros: float
    block: TileBlock
    cut: Blocking
    tiles_outer: bool


@dataclass(frozen=True, slots=True)
class BlockWork:
    """Products of rows with panels of columns, as tiles would do them.

    Attributes:
        rows: How many there are.
        columns: How many there are of a group.
        pairs: Of a sum.
        groups: How many times there are these products.
        row_cycles: What each chunk does for each of its rows before, however many its columns.
        halo: As much more of that as for so many rows.
        to_line: Vectors of results that fill a line of cache.
        overlap: How many times a tile's rows hold the same elements.
        share: Of the products that are made.
    """

    rows: int
    columns: int
    pairs: int
    groups: int = 1
    row_cycles: float = 0.0
    halo: int = 0
    to_line: int = 1
    overlap: float = 1.0
    share: float = 1.0

    def tiles(self, block: TileBlock) -> tuple[int, int]:
        """Blocks of sums along the rows and along the columns."""
        return -(-self.rows // block.height), -(-self.columns // block.width)

    def _cuts(self, block: TileBlock, target: Target, threads: int) -> list[Blocking]:
        count, across = self.tiles(block)
        found = blockings(
            count, across,
            panel=4 * self.pairs * block.width, row=4 * self.pairs * block.height,
            cycles=int(self._block_cycles(block, target)[0]), target=target,
            threads=1 if self.groups >= 4 * threads else threads,
            shared=int(self.row_cycles * block.height),
        )  # fmt: skip
        return [found[place] for place in range(len(found))]

    def schedules(self, block: TileBlock, target: Target, threads: int) -> Iterator[BlockSchedule]:
        """A block with each of its cuts."""
        count, across = self.tiles(block)
        speed, rate = machine(target), tile_clock(target)
        each, outer = self._block_cycles(block, target)
        for cut in self._cuts(block, target, threads):
            chunks = self.groups * cut.tile_chunks * cut.block_chunks
            copies = (self.rows + self.halo * cut.tile_chunks) * cut.block_chunks * self.row_cycles
            cycles = self.groups * (count * across * each + copies)
            shares = min(threads, chunks) or 1
            uneven = -(-chunks // shares) * shares / max(1, chunks)
            yield BlockSchedule(speed.step + cycles * uneven / (shares * rate), block, cut, outer)

    def _block_cycles(self, block: TileBlock, target: Target) -> tuple[float, bool]:
        """Of a block of sums, and whether tiles of rows are better the outer loop."""
        steps = -(-self.pairs // PAIRS) * self.share
        crowd = 1 + _CROWDED * max(0, block.registers - _FREE)
        busy = _PRODUCT * block.products * crowd
        rows, panel = (4 * self.pairs * edge * self.share for edge in (block.height, block.width))
        near = _L1_SHARE * target.l1
        # What stays for the inner loop comes from L1 if it fits, the other side from L2.
        outer: float = block.rows * (_NEAR + (_FAR if rows / self.overlap > near else 0))
        outer += block.vectors * (_NEAR + _FAR)
        inner: float = block.vectors * (_NEAR + (_FAR if panel > near else 0))
        inner += block.rows * (_NEAR + _FAR / self.overlap)
        finished = _FINISHED + (_SPLIT if block.vectors % self.to_line else 0)
        cycles = steps * max(busy, min(outer, inner)) + _BLOCK
        return cycles + finished * block.height * block.vectors, outer < inner
