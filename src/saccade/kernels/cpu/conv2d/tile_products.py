"""The inner loop of products in tiles of matrices: blocks of sums that stay in their registers.

`sums[m][n] = Σ_k a[m][k] · b[k][n]` for 16 · `rows` rows and 16 · `vectors` columns. a's rows lie
evenly apart; b is a panel of pairs, `b[k / 2][n][k % 2]`, as for `microkernel.accumulate`. What is
left of the last 32 products is zero in a, and in a copy of b's last rows (`fill_rest`), so that
nothing is read past a panel and no NaN of a neighbour is multiplied by zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.matrix_tiles import COUNT, DEPTH, ROWS
from saccade.backends.cpu.codegen.values import Bool, Int, IntLike
from saccade.kernels.base import Operand, Scratch
from saccade.kernels.cpu.conv2d.epilogue import Epilogue, Pixel, VectorPlace

__all__ = [
    "BLOCKS",
    "DEPTH",
    "PAIRS",
    "ROWS",
    "BlockSums",
    "TileBlock",
    "TileProducts",
    "blank",
    "copy_row",
    "deepened",
    "tiles_and_blocks",
]

PAIRS = DEPTH // 2
"""Steps of one product of tiles, in pairs."""
_LINE = 32  # bfloat16 of a line of cache
_TOGETHER = 4  # rows that one trip of the epilogue does
_AHEAD = 2  # steps that a panel's lines are asked for ahead of their products


def deepened(elements: int) -> int:
    """So many products, filled up to whole tiles."""
    return -(-elements // DEPTH) * DEPTH


@dataclass(frozen=True, slots=True)
class TileBlock:
    """Tiles of sums that are computed together.

    Attributes:
        rows: Tiles along the rows.
        vectors: Tiles along the columns, each as wide as a vector of float32.
    """

    rows: int
    vectors: int

    @property
    def height(self) -> int:
        """Rows of sums."""
        return self.rows * ROWS

    @property
    def width(self) -> int:
        """Columns of sums."""
        return self.vectors * ROWS

    @property
    def products(self) -> int:
        """Of tiles, for each step."""
        return self.rows * self.vectors

    @property
    def panels(self) -> int:
        """Tiles of b that stay in registers for a step: several rows of tiles share them."""
        return self.vectors if self.rows > 1 else 1

    @property
    def registers(self) -> int:
        """In use: sums, b's, and one of a."""
        return self.products + self.panels + 1

    def operands(self, rest: int) -> dict[str, Operand]:
        """The scratch that `TileProducts` declares, where so many pairs are left."""
        found: dict[str, Operand] = {"sums": Scratch(4 * self.height * self.width)}
        if rest:
            found["rest"] = Scratch(4 * PAIRS * self.width)
        return found


BLOCKS = tuple(TileBlock(*shape) for shape in ((2, 1), (3, 1), (1, 2), (2, 2), (4, 1), (1, 1)))
"""Those that are worth trying."""


@dataclass(frozen=True, slots=True)
class BlockSums:
    """A block of sums that was stored row by row.

    Attributes:
        k: Builder.
        sums: The first.
        height: Rows.
        width: Sums of a row.
    """

    k: KernelBuilder
    sums: Ptr
    height: int
    width: int

    def finish(
        self,
        epilogue: Epilogue,
        first: Int,
        count: Int,
        pixel: Pixel,
        places: Sequence[VectorPlace],
    ) -> None:
        """The epilogue of rows, which are neighbours in a row of the result.

        Args:
            epilogue: What to do with them.
            first: The first of the rows.
            count: How many there are.
            pixel: The first one's.
            places: Of the vectors of a row.
        """
        k, main = self.k, count // _TOGETHER * _TOGETHER
        for begin, end, step in ((0, main, _TOGETHER), (main, count, 1)):
            with k.range(begin, end, step) as at:
                here = epilogue.along(pixel, at)
                for i in range(step):
                    row = (first + at + i) * self.width
                    for j, place in enumerate(places):
                        total = self.sums.vec(row + j * place.lanes)
                        epilogue.finish(total, epilogue.along(here, i) if i else here, place)


class TileProducts:
    """Emits blocks of sums.

    Args:
        k: Builder.
        block: The tiles.
        rest: Whether products are left of the last whole tile.
    """

    def __init__(self, k: KernelBuilder, block: TileBlock, *, rest: bool) -> None:
        assert block.registers <= COUNT
        self.k, self.block = k, block
        self.sums = BlockSums(k, k.scratch("sums"), block.height, block.width)
        self.rest = k.scratch("rest", "int32") if rest else None

    def fill_rest(self, panel: Ptr, pairs: Int) -> None:
        """Copy the rows of a panel that are left of its whole tiles, of so many pairs in all."""
        if self.rest is None:
            return
        k, width = self.k, self.block.width
        whole = pairs // PAIRS * PAIRS
        for i in range(PAIRS):
            inside = whole + i < pairs
            for j in range(0, width, k.lanes):
                # All or none: a mask of no lanes may stand past the buffer.
                mask = k.first(inside.select(k.lanes, 0))
                self.rest.store(panel.pairs((whole + i) * (2 * width) + 2 * j, mask), i * width + j)

    def compute(self, a: Ptr, pitch: IntLike, panel: Ptr, pairs: Int, cold: Bool) -> None:
        """Sums of a block into scratch, of rows that lie together.

        Args:
            a: The first row, of bfloat16.
            pitch: Elements from row to row.
            panel: Of b.
            pairs: Of a sum.
            cold: Whether nobody has read the panel yet.
        """
        self.clear()
        self.add(a, pitch, panel, pairs // PAIRS, cold)
        if self.rest is not None:
            self._step(a + pairs // PAIRS * DEPTH, pitch, self.rest.viewed("bfloat16"))
        self.store()

    def clear(self) -> None:
        """Sums are zero."""
        for tile in range(self.block.products):
            self.k.tile_zero(tile)

    def add(self, a: Ptr, pitch: IntLike, panel: Ptr, steps: Int, cold: Bool) -> None:
        """Products of so many whole tiles, whose rows lie together."""
        k, size = self.k, DEPTH * self.block.width
        with k.when_else(cold) as (first, later):
            with first, k.range(0, steps) as step:
                here = panel + step * size
                # Tiles ask for so few lines at a time that memory would be waited for.
                for line in range(0, size, _LINE):
                    k.prefetch(here, _AHEAD * size + line)
                self._step(a + step * DEPTH, pitch, here)
            with later, k.range(0, steps) as step:
                self._step(a + step * DEPTH, pitch, panel + step * size)

    def store(self) -> None:
        """Sums go to scratch, row by row."""
        k, block = self.k, self.block
        for tile in range(block.products):
            i, j = divmod(tile, block.vectors)
            k.tile_store(tile, self.sums.sums, i * ROWS * block.width + j * ROWS, block.width)

    def _step(self, a: Ptr, pitch: IntLike, panel: Ptr) -> None:
        # As few registers as can be, though a load then waits for the product before it: where
        # another thread runs on the same core, there are hardly more than those that are named.
        k, block = self.k, self.block
        left, right = block.products, block.products + 1
        for i in range(block.rows):
            k.tile_load(left, a, i * ROWS * pitch, pitch)
            for j in range(block.vectors):
                other = right + j % block.panels
                if i == 0:
                    k.tile_load(other, panel, j * DEPTH, 2 * block.width)
                k.tile_dot(i * block.vectors + j, left, other)


def copy_row(k: KernelBuilder, source: Ptr, to: Ptr, count: Int, *, ragged: bool) -> None:
    """So many neighbours of bfloat16, with zeros behind them where they do not fill rows of tiles.

    Args:
        k: Builder.
        source: The first.
        to: Where they go.
        count: How many there are.
        ragged: Whether the last are fewer than a row of a tile holds.
    """
    source, to = source.viewed("int16"), to.viewed("int16")
    main = count // DEPTH * DEPTH if ragged else count
    with k.range(0, main, DEPTH) as at:
        to.store(source.vec(at, lanes=DEPTH), at)
    if ragged:
        to.store(source.vec(main, k.first(count - main, DEPTH), DEPTH), main)


def blank(k: KernelBuilder, row: Ptr, at: Int) -> None:
    """Zeros as wide as a row of a tile."""
    row.viewed("int16").store(k.number(0, DEPTH, "int16"), at)


@contextmanager
def tiles_and_blocks(
    k: KernelBuilder, tiles: tuple[Int, Int], blocks: tuple[Int, Int], tiles_outer: Int
) -> Iterator[tuple[Int, Int]]:
    """Every tile of rows with every block of columns of a chunk, in one of both orders."""
    (first, end), (block, last) = tiles, blocks
    outer = tiles_outer.differs(0)
    height, width = k.maximum_int(end - first, 0), last - block
    inner = outer.select(width, height)
    with k.range(0, height * width) as number:
        slow = number // inner
        fast = number - slow * inner
        yield first + outer.select(slow, fast), block + outer.select(fast, slow)
