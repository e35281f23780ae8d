"""Blocks and the order of work of the direct convolution and of matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import NamedTuple

from saccade.backends.cpu.target import Target
from saccade.kernels.base import interned
from saccade.kernels.cpu.conv2d.register_tiles import RegisterTile

__all__ = [
    "Blocking",
    "Cuts",
    "DirectConfig",
    "TileSchedule",
    "blockings",
    "direct_config",
    "halves",
    "schedules",
]


@dataclass(frozen=True, slots=True)
class DirectConfig:
    """What the code of `conv2d.direct` depends on.

    Attributes:
        rows: Pixels of a tile.
        vectors: Vectors of output channels of a tile.
        half: Whether the last of them is half as wide.
        unroll: Steps of one trip of the inner loop.
        shape: `once`, `whole` or `tail`, see `microkernel.Reduction`.
        pairs: Whether channels are summed in pairs of bfloat16.
        odd: Whether one channel is left after the pairs.
        element: Type of the input's elements.
        border: What keeps taps inside the image: `none` (all are), `zeros` (those outside read
            zeros), `regions` (tiles hold pixels that need the same taps, and skip the others).
        unit: Whether neighbouring input channels are neighbours in memory.
        spread: Whether the result's pixels are apart, as in one phase of a transposed convolution.
        flat: Whether pixels are evenly apart in every operand, as in 1x1 convolutions.
        phase: `whole` sums with their epilogue, sums of `rows` of taps, the `sum` of parts, or
            `widen` (the image as float32).
        copied: Whether products read a copy of the chunk's pixels, made after the prologue.
        prologue: Expression applied to every loaded element; `$0` for none.
        prologue_operands: Type of the elements of each of its operands.
        epilogue: `EpilogueSpec.code`.
        early: Whether weights are asked for before they are read (`microkernel.asks_early`).
    """

    rows: int
    vectors: int
    half: bool
    unroll: int
    shape: str
    pairs: bool
    odd: bool
    element: str
    border: str
    unit: bool
    spread: bool
    flat: bool
    phase: str
    copied: bool
    prologue: str
    prologue_operands: tuple[str, ...]
    epilogue: tuple[str, ...]
    early: bool = False


direct_config = interned(DirectConfig)

_CLAIM = 1500  # cycles that a chunk costs beyond its tiles (an estimate)
_MANY_CUTS, _CUTS = 4, 6  # tiles of which several cuts are worth measuring, and how many


class Blocking(NamedTuple):
    """How the grid of tiles is cut into chunks.

    Attributes:
        tiles: Tiles of pixels of one chunk.
        blocks: Blocks of channels of one chunk.
        tile_chunks: Chunks along the pixels.
        block_chunks: Chunks along the channels.
        pixels_first: Whether neighbouring chunks share their channels (else their pixels).
        slowdown: Expected time over that of the best cut.
    """

    tiles: int
    blocks: int
    tile_chunks: int
    block_chunks: int
    pixels_first: bool
    slowdown: float

    def integers(self, groups: int, blocks: int) -> dict[str, int]:
        """The values of `tile_grid.TileGrid`, for `groups` grids of so many blocks in all."""
        return {
            "groups": groups,
            "blocks": blocks,
            "tiles_chunk": self.tiles,
            "blocks_chunk": self.blocks,
            "tile_chunks": self.tile_chunks,
            "block_chunks": self.block_chunks,
            "tiles_first": int(self.pixels_first),
        }


class Cuts:
    """Ways to cut a grid, the best one first; each is made when it is asked for.

    Hundreds are remembered, as plain tuples of numbers: Python's collector never visits these.

    Args:
        found: The fields of each.
    """

    __slots__ = ("_found",)

    def __init__(self, found: tuple[tuple[int, int, int, int, bool, float], ...]) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, place: int) -> Blocking:
        return Blocking(*self._found[place])

    def slowdown(self, place: int) -> float:
        """Of one of them."""
        return self._found[place][-1]


@lru_cache(maxsize=1024)
def blockings(
    tiles: int,
    blocks: int,
    *,
    panel: int,
    row: int,
    cycles: int,
    target: Target,
    threads: int,
    shared: int = 0,
) -> Cuts:
    """Ways to cut a grid of `tiles` times `blocks` into chunks, the best one first, a few at most.

    Args:
        tiles: Tiles of pixels.
        blocks: Blocks of channels.
        panel: Bytes of the weights of one block.
        row: Bytes of input that one tile reads.
        cycles: Roughly, of one tile.
        target: Machine, for its caches.
        threads: Width of the team.
        shared: Cycles that a tile costs every chunk that it is in, however many its blocks.
    """
    if tiles * blocks == 0:
        return Cuts(((1, 1, 0, 0, True, 1.0),))
    channels_stay = panel * blocks > target.l2 // 2
    wide = 1 if channels_stay and not shared else blocks
    reuse = max(1, target.l2 // 4 // max(row, 1)) if wide > 1 else tiles
    found: list[tuple[float, int, int, int, int, int]] = []
    for b in halves(wide):
        for t in halves(min(tiles, reuse)):
            # Time against perfect balance, with a charge for every chunk, for weights that are
            # read again, and for what is shared.
            many, across = -(-tiles // t), -(-blocks // b)
            chunks = many * across
            slowest = -(-chunks // threads) * t * b * threads / (tiles * blocks)
            grains = 1 + 0.5 / max(1, chunks / threads) + _CLAIM / (t * b * cycles)
            waste = max(1.0, slowest) * grains + 0.02 / t + 0.002 / b
            found.append((waste + shared / (b * cycles), len(found), t, b, many, across))
    found.sort()
    return Cuts(
        tuple(
            (t, b, many, across, channels_stay, time / found[0][0])
            for time, _, t, b, many, across in found[:_CUTS]
        )
    )


def halves(count: int) -> list[int]:
    """So many, half as many, and so on, down to one."""
    found = [count]
    while found[-1] > 1:
        found.append(-(-found[-1] // 2))
    return found


class TileSchedule(NamedTuple):
    """A tile and how its grid is cut into chunks.

    Attributes:
        slowdown: Expected time over that of the best schedule.
        tile: The tile.
        place: Of the cut among the tile's `blockings`.
    """

    slowdown: float
    tile: RegisterTile
    place: int


def schedules(
    tiles: Sequence[RegisterTile], cuts: Callable[[RegisterTile], Cuts]
) -> Iterator[TileSchedule]:
    """Every tile with its best cuts, the best pair first; each is only made when asked for."""
    waiting: list[tuple[float, int, int]] = []
    for rank, tile in enumerate(tiles):
        # The best cut of a tile takes no longer than the tile says; of equal ones the first tile.
        while waiting and waiting[0] < (tile.slowdown, rank, 0):
            slowdown, other, place = heappop(waiting)
            yield TileSchedule(slowdown, tiles[other], place)
        yield TileSchedule(tile.slowdown, tile, 0)
        if rank < _MANY_CUTS:
            found = cuts(tile)
            for place in range(1, len(found)):
                heappush(waiting, (tile.slowdown * found.slowdown(place), rank, place))
    while waiting:
        slowdown, other, place = heappop(waiting)
        yield TileSchedule(slowdown, tiles[other], place)
