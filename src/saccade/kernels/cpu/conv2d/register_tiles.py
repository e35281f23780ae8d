"""Register tiles of the direct convolution and of matrix products, by the time that they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, overload

import numpy as np

from saccade.backends.cpu.target import Target
from saccade.kernels.cpu.machine import ports

__all__ = ["Borders", "Piece", "Ranked", "RegisterTile", "ranked_tiles", "tiles"]

# (vectors, rows): sums, vectors and one broadcast fit the registers. Few rows are read better than
# many: their distance is often a multiple of the cache's stride, and its ways are 8.
_TILES_32 = (
    *((4, 7), (4, 6), (3, 8), (2, 14), (2, 12), (4, 5), (5, 5), (1, 14), (2, 7), (4, 3), (8, 1)),
    *((1, 24), (2, 10), (4, 4), (6, 4), (3, 5), (2, 6), (1, 7), (2, 4), (8, 2), (2, 1), (4, 1)),
    *((1, 6), (1, 4), (1, 1)),
)
# Where the widest multiply-add takes as long as two of half its width, 24 channels take three of
# those rather than four.
_HALVED = (
    *((5, 5), (3, 8), (4, 6), (2, 10), (2, 7), (3, 5), (5, 4), (4, 4), (2, 6), (3, 4), (2, 4)),
    *((5, 1), (3, 1), (2, 1)),
)
# (vectors, rows) for 16 registers.
_TILES_16 = (
    *((2, 6), (3, 4), (1, 12), (2, 5), (1, 7), (2, 4), (2, 3), (4, 2), (4, 1), (2, 1), (1, 4)),
    (1, 1),
)
# Fitted to the times of all tiles of five networks' 1x1 layers on a Zen 4 core.
_ROWS_IN_REGISTERS = 10  # addresses of rows
_SPILLED_ROW = 0.6  # cycles of a step for every other row
_TILE, _SUM = 30, 3  # cycles of a tile, of each of its sums
# A tile's first loads and its epilogue overlap with its neighbours' products as far as the core
# looks ahead: of a large tile less does. Cycles for the squares of its rows and of its sums, fitted
# to the same times (Zen 4).
_FAR_ROWS, _FAR_SUMS = 0.8, 0.2
_FMA_LATENCY = 4  # cycles until a sum may be added to again (Zen 4)
_WAYS = 8  # of a set of the L1 cache (Zen 4)
_EVEN = 8  # tiles a thread from which on they are taken to be shared evenly (by eye)
# Cycles of a row's broadcast, as an operand or by itself. Tiles of one vector, which have one for
# each multiply-add, take 1.2 to 1.4 times as long as those of two (Zen 5; by itself: a guess).
_BROADCAST, _BROADCAST_APART = 0.75, 0.25
_FEEDING = 0.1  # share of its products that a step's weights take longer (an estimate)
_ALIAS = 4096  # bytes: rows that are so far apart compete for the same ways of the L1 cache


def tiles(target: Target, *, halves: bool = False) -> tuple[tuple[int, int, bool], ...]:
    """Tiles (vectors, rows, whether the last vector is half as wide), the best ones first.

    Args:
        target: Machine.
        halves: Whether half vectors can be used.
    """
    if target.registers < 32:
        return tuple((nv, mr, False) for nv, mr in _TILES_16)
    # Where a product cannot take a broadcast from memory, that and its address pass through one
    # register more.
    spare = 0 if target.embedded_broadcasts else 2
    known = [(nv, mr, False) for nv, mr in _TILES_32 if nv * (mr + 1) + spare <= target.registers]
    if halves and target.splits_vectors:
        known += [(nv, mr, True) for nv, mr in _HALVED]
    return tuple(known)


class Piece(NamedTuple):
    """Pixels that are cut into tiles together.

    Attributes:
        pixels: How many.
        depth: Summed elements of each.
        overhead: Cycles that a pixel of a tile costs beyond its products.
    """

    pixels: int
    depth: float
    overhead: float = 0.0


Borders = tuple[tuple[str, tuple[Piece, ...]], ...]
"""Names, see `DirectConfig.border`, each with what tiles are cut from."""


class RegisterTile(NamedTuple):
    """A tile of sums.

    Attributes:
        vectors: Vectors of output channels.
        rows: Pixels.
        slowdown: Expected time over that of the best tile.
        cycles: Expected time of the team.
        half: Whether the last vector is half as wide.
        border: See `DirectConfig`.
    """

    vectors: int
    rows: int
    slowdown: float
    cycles: float
    half: bool = False
    border: str = "none"

    def width(self, lanes: int) -> int:
        """Output channels, for vectors of so many lanes."""
        return _width(self.vectors, self.half, lanes)


def _width(vectors: int, half: bool, lanes: int) -> int:
    return vectors * lanes - lanes // 2 * half


class Ranked(Sequence[RegisterTile]):
    """Tiles, the one that takes the least time first; each is made when it is asked for.

    Hundreds are remembered, as plain tuples of numbers: Python's collector never visits these.

    Args:
        tiles: Vectors, rows, whether the last vector is half as wide.
        borders: Names; every tile can be used with each of them.
        times: Cycles of each tile with the first border, then with the others.
    """

    __slots__ = ("_best", "_borders", "_order", "_tiles", "_times")

    def __init__(
        self,
        tiles: tuple[tuple[int, int, bool], ...],
        borders: tuple[str, ...],
        times: Sequence[float],
    ) -> None:
        self._tiles, self._borders, self._times = tiles, borders, tuple(times)
        # Of equal ones the first in the table.
        self._order = tuple(sorted(range(len(times)), key=times.__getitem__))
        self._best = max(times[self._order[0]], 1.0)

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, place: int) -> RegisterTile: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[RegisterTile, ...]: ...
    def __getitem__(self, place: int | slice) -> RegisterTile | tuple[RegisterTile, ...]:
        if isinstance(place, slice):
            return tuple(map(self._tile, self._order[place]))
        return self._tile(self._order[place])

    def _tile(self, number: int) -> RegisterTile:
        border, place = divmod(number, len(self._tiles))
        (vectors, rows, half), time = self._tiles[place], self._times[number]
        return RegisterTile(vectors, rows, time / self._best, time, half, self._borders[border])


@lru_cache(maxsize=256)
def ranked_tiles(
    borders: Borders,
    channels: int,
    *,
    pitch: int,
    unit: bool,
    target: Target,
    threads: int,
    groups: int = 1,
    halves: bool = False,
) -> Ranked:
    """The tiles that can be used, the one that takes the least time first.

    Args:
        borders: Ways to keep taps inside the image, each with the rows of the product; no tile
            has rows of two pieces.
        channels: Output channels.
        pitch: Bytes from row to row.
        unit: Whether the summed elements of a row are neighbours.
        target: Machine.
        threads: Width of the team.
        groups: How many times there are these pieces and channels.
        halves: Whether half vectors can be used.
    """
    sets = _ALIAS // math.gcd(max(pitch, 1), _ALIAS)
    team, core = _Team(channels, target.l2 // 2, groups, threads), ports(target)
    times: list[float] = []
    for _, pieces in borders:
        weights = max((piece.depth for piece in pieces), default=0.0) * 4  # bytes of a channel
        stream = core.far if weights * channels > target.l3 else core.near
        costs = _costs(target, sets, unit, halves, stream)
        if len(pieces) == 1:
            times += _times_of_one(costs, pieces[0], weights, team)
        else:
            times += _times_of_all(costs, pieces, weights, team)
    return Ranked(costs.tiles, tuple(border for border, _ in borders), times)


class _Team(NamedTuple):
    """Who shares the tiles, and of what.

    Attributes:
        channels: Output channels.
        near: Bytes of a tile's weights that stay in the L2 cache; more are read from afar.
        groups: How many times there are these pieces and channels.
        threads: Width of the team.
    """

    channels: int
    near: int
    groups: int
    threads: int


class _Costs(NamedTuple):
    """What the time of each tile is made of, whatever the sizes.

    Attributes:
        tiles: Vectors, rows, whether the last vector is half as wide; in the table's order.
        numbers: Of each tile its rows, its channels, cycles of a step with weights in the L2
            cache and from afar, cycles besides the steps and the rows' overhead.
        columns: The same, an array of each.
    """

    tiles: tuple[tuple[int, int, bool], ...]
    numbers: tuple[tuple[int, int, float, float, float], ...]
    columns: tuple[np.ndarray, ...]


def _times_of_one(costs: _Costs, piece: Piece, weights: float, team: _Team) -> list[float]:
    """Cycles of the team with each tile, of one piece: for so few numbers arrays are no faster."""
    channels, near, groups, threads = team
    pixels, depth, overhead = piece
    found = []
    for rows, width, close, afar, ends in costs.numbers:
        units = -(-pixels // rows) * -(-channels // width)
        total = units * (
            depth * (afar if weights * width > near else close) + overhead * rows + ends
        )
        if units:
            fair = units * groups / threads
            total *= (math.ceil(fair) if fair < _EVEN else fair) / units
        found.append(total)
    return found


def _times_of_all(
    costs: _Costs, pieces: tuple[Piece, ...], weights: float, team: _Team
) -> list[float]:
    """Cycles of the team with each tile, of any number of pieces."""
    rows, width, close, afar, ends = costs.columns
    columns = np.array(pieces, float).reshape(-1, 3, 1)
    pixels, depth, overhead = columns[:, 0], columns[:, 1], columns[:, 2]
    units = np.ceil(pixels / rows) * np.ceil(team.channels / width)
    step = np.where(weights * width > team.near, afar, close)
    total = np.add.reduce(units * (depth * step + overhead * rows + ends))
    many = np.add.reduce(units)
    fair = many * team.groups / team.threads
    even = np.where(fair < _EVEN, np.ceil(fair), fair)
    times: list[float] = (total * (even / np.maximum(many, 1))).tolist()
    return times


@lru_cache(maxsize=256)
def _costs(target: Target, sets: int, unit: bool, halves: bool, stream: int) -> _Costs:
    """What the times of tiles are made of.

    Args:
        target: Machine.
        sets: Rows that do not compete for the same ways of the L1 cache.
        unit: Whether the summed elements of a row are neighbours.
        halves: Whether half vectors can be used.
        stream: Bytes per cycle of weights from afar.
    """
    broadcast = _BROADCAST if target.embedded_broadcasts else _BROADCAST_APART
    rate, halved, _, fed, *_ = ports(target)  # multiply-adds, and vector loads, per cycle; bytes
    limit = target.registers - 4
    found, numbers = [], []
    for rank, (nv, mr, half) in enumerate(tiles(target, halves=halves)):
        # Rows that step on their own need registers for their steps too.
        if unit or (mr <= 12 and nv * (mr + 1) <= limit):
            width = _width(nv, half, target.lanes)
            products = mr * (nv - half / 2 if halved else nv) / rate
            least = max(products, mr * broadcast + nv / rate, _FMA_LATENCY)
            close, afar = (
                max(least, width * 4 / rate_of + _FEEDING * products) for rate_of in (fed, stream)
            )
            crowd = max(0.0, -(-mr // sets) + 1 - _WAYS)
            slower = 1 + 0.1 * crowd + 0.001 * rank
            spilled = _SPILLED_ROW * max(0, mr - _ROWS_IN_REGISTERS)
            ends = _TILE + _SUM * mr * nv + _FAR_ROWS * mr**2 + _FAR_SUMS * (mr * nv) ** 2
            steps = (close * slower + spilled, afar * slower + spilled)
            found.append((nv, mr, half))
            numbers.append((mr, width, *steps, ends))
    columns = tuple(np.array(column, float) for column in zip(*numbers, strict=True))
    return _Costs(tuple(found), tuple(numbers), columns)
