"""float32 products in tiles of matrices, of elements that are sums of three bfloat16: their limbs.

    a · b = a0 · b0 + a0 · b1 + a0 · b2 + a1 · b0 + a1 · b1 + a2 · b0

which leaves out 2^-24 of a product. Six products of tiles, 96 cycles, do the work of 512 products
of vectors, 256 cycles; and sums are made of 32 products at a time, so that they are nearer to the
exact ones than those of vectors. An infinity has no limbs and becomes NaN, as do its sums; limbs
below 2^-126 are zero.

A chunk splits its panels of weights into limbs, which stay in the L2 cache, unless the thread's
chunk before has done so, and goes through its tiles of rows: of each the limbs are copied, and
every panel comes by, its next step asked for ahead. What does not fit is cut along the reduction
into parts: all rows go through one of them before the next. Results, and the rows of the next tile,
are asked for meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saccade.backends.cpu.codegen.bfloat16 import LIMBS
from saccade.backends.cpu.codegen.control import Var
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.matrix_tiles import DEPTH, ROWS
from saccade.backends.cpu.codegen.values import Int
from saccade.kernels.cpu.conv2d.limb_copies import STEP, LimbPanel, LimbRow
from saccade.kernels.cpu.conv2d.microkernel import anchored
from saccade.kernels.cpu.conv2d.tile_products import BlockSums

__all__ = ["LimbChunk", "LimbProducts", "LimbSizes"]

_LINE = 32  # bfloat16 of a line of cache
_FLOATS = 16  # float32 of one


@dataclass(frozen=True, slots=True)
class LimbSizes:
    """Integer parameters of the products.

    A sum has `inner` products, in `steps` of 32; `part` steps are made for all rows of a chunk
    before the next. Of the copy of a tile's rows, `pitch` is the distance of rows and `apart` that
    of limbs, in elements; `kept` blocks of sums belong to a tile of rows. With each step `written`
    rows of the result are asked for, and `read` lines of the next tile's rows (without parts).
    """

    inner: Int
    steps: Int
    part: Int
    pitch: Int
    apart: Int
    kept: Int
    written: Int
    read: Int


@dataclass(frozen=True, slots=True)
class LimbChunk:
    """What a chunk multiplies.

    Attributes:
        tiles: First tile of rows, one past the last.
        blocks: First panel, one past the last.
        panels: Where panels of float32 are, sixteen columns of a row side by side.
        number: Tells them from other chunks' panels; the same where those are the same.
        copy: Copies the limbs of a tile's rows, between two steps of the reduction.
        finish: Does with a tile's stored sums of a panel what is to be done.
        fetch: Asks for the results of a tile and a panel, from one row to another.
        source: Where a tile's rows are, if these lie together.
    """

    tiles: tuple[Int, Int]
    blocks: tuple[Int, Int]
    panels: Ptr
    number: Int
    copy: Callable[[Int, Int, Int], None]
    finish: Callable[[Int, Int, BlockSums], None]
    fetch: Callable[[Int, Int, tuple[Int, Int]], None]
    source: Callable[[Int], Ptr]


@dataclass(frozen=True, slots=True)
class _LimbBlock:
    """A tile of rows and a panel, and steps of their products."""

    tile: Int
    number: Int
    start: Int
    stop: Int


class LimbProducts:
    """Emits chunks of products.

    Args:
        k: Builder.
        rows: Tiles of a block of sums, along the rows.
        ragged: Whether products may not fill the last step.
    """

    def __init__(self, k: KernelBuilder, rows: int, *, ragged: bool) -> None:
        self.k, self.rows, self.height, self.ragged = k, rows, rows * ROWS, ragged
        self.copy = k.scratch("limbs", "bfloat16")
        self.panels, self.sums = k.scratch("panels", "bfloat16"), k.scratch("sums")
        self.g: LimbSizes
        self.split: Var

    def declare_integers(self) -> None:
        """After all pointers."""
        self.g = self.k.sizes(LimbSizes)

    def begin(self) -> None:
        """Before a thread's first chunk."""
        self.split = self.k.var(-1)

    def row(self, number: Int) -> LimbRow:
        """Where the limbs of a tile's row go."""
        return LimbRow(self.k, self.copy + number * self.g.pitch, self.g.apart)

    def multiply(self, chunk: LimbChunk) -> None:
        """All sums of a chunk."""
        k, g, size = self.k, self.g, self.height * ROWS
        first, end = chunk.blocks
        with k.range(0, g.steps, g.part) as start:
            stop = k.minimum_int(start + g.part, g.steps)
            what = chunk.number * g.steps + start
            with k.when(self.split.get().differs(what)):
                self.split.set(what)
                self._split(chunk, start, stop)
            with k.range(*chunk.tiles) as tile:
                chunk.copy(tile, start, stop)
                sums = self.sums + (tile - chunk.tiles[0]) * g.kept * size
                with k.range(first, end) as number:
                    block = _LimbBlock(tile, number, start, stop)
                    self._block(chunk, block, sums + (number - first) * size)
                with k.when(stop.equals(g.steps)), k.range(first, end) as number:
                    stored = sums + (number - first) * size
                    chunk.finish(tile, number, BlockSums(k, stored, self.height, ROWS))

    def _split(self, chunk: LimbChunk, start: Int, stop: Int) -> None:
        """Steps of a chunk's panels."""
        k, g, (first, end) = self.k, self.g, chunk.blocks
        with k.range(first, end) as number:
            source = chunk.panels + number * g.inner * ROWS
            to = self.panels + (number - first) * g.part * STEP
            LimbPanel(k, source, g.inner, to).split(start, stop, ragged=self.ragged)

    def _block(self, chunk: LimbChunk, block: _LimbBlock, sums: Ptr) -> None:
        """Steps of a block of sums, which are what was stored before or zero."""
        k, g, stored, count = self.k, self.g, sums.viewed("bfloat16"), block.stop - block.start
        with k.when_else(block.start.equals(0)) as (fresh, later):
            with fresh:
                for i in range(self.rows):
                    k.tile_zero(i)
            with later:
                for i in range(self.rows):
                    k.tile_load(i, stored, 2 * i * ROWS * ROWS, 2 * ROWS)
        number = block.number - chunk.blocks[0]
        panel = anchored(k, self.panels + number * g.part * STEP)
        following = chunk.source(block.tile + 1)
        with k.range(0, count) as step:
            # Behind the last step the next panel's first one is asked for.
            behind = (step + 1 < count).select(step + 1, g.part)
            self._step(self.copy + step * DEPTH, panel + step * STEP, behind - step)
            with k.range(0, g.read) as line:
                at = (number * g.steps + step) * g.read + line
                k.prefetch(following, at * _FLOATS, 2)
            with k.when(block.stop.equals(g.steps)):
                rows = step * g.written
                until = k.minimum_int(rows + g.written, self.height)
                chunk.fetch(block.tile, block.number, (rows, until))
        for i in range(self.rows):
            k.tile_store(i, sums, i * ROWS * ROWS, ROWS)

    def _step(self, a: Ptr, panel: Ptr, ahead: Int) -> None:
        """Products of 32 elements of each row; b's limbs stay in registers."""
        k, g = self.k, self.g
        left, right, size = self.rows, self.rows + 1, DEPTH * ROWS
        for limb in range(LIMBS):
            for i in range(self.rows):
                k.tile_load(left, a, limb * g.apart + i * ROWS * g.pitch, g.pitch)
                for other in range(LIMBS - limb):
                    if i == limb == 0:
                        k.tile_load(right + other, panel, other * size, 2 * ROWS)
                        for line in range(other * size, (other + 1) * size, _LINE):
                            k.prefetch(panel, ahead * STEP + line)
                    k.tile_dot(i, left, right + other)
