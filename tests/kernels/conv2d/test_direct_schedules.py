"""Ways of a direct convolution: tiles and cuts in the order of their times, made when asked for."""

import itertools

import pytest

from saccade.backends.cpu.target import described_target
from saccade.kernels.cpu.conv2d.direct_config import blockings, schedules
from saccade.kernels.cpu.conv2d.register_tiles import Piece, ranked_tiles

ZEN4 = described_target("zen4", "avx512")
BORDERS = (
    ("zeros", (Piece(3136, 576.0, 27.0),)),
    ("regions", (Piece(2916, 576), Piece(216, 384), Piece(4, 256))),
)


def tiles_of(borders=BORDERS, threads=2):
    return ranked_tiles(
        borders, 96, pitch=256, unit=True, target=ZEN4, threads=threads, halves=True
    )


def cuts_of(tile):
    count, blocks = -(-3136 // tile.rows), -(-96 // tile.width(ZEN4.lanes))
    return blockings(count, blocks, panel=1 << 16, row=1 << 12, cycles=4000, target=ZEN4, threads=2)


def test_tiles_come_by_their_time():
    tiles = tiles_of()
    assert len(tiles) > 40 and {tile.border for tile in tiles} == {"zeros", "regions"}
    assert tiles[0].slowdown == 1.0
    assert all(a.cycles <= b.cycles for a, b in itertools.pairwise(tiles))
    assert tiles[:3] == tuple(tiles)[:3] and tiles[-1] == tuple(tiles)[-1]


def test_ways_come_by_their_time_each_once():
    tiles = tiles_of()
    found = list(schedules(tiles, cuts_of))
    assert [schedule.slowdown for schedule in found] == sorted(
        schedule.slowdown for schedule in found
    )
    assert len(set(found)) == len(found) and {schedule.tile for schedule in found} == set(tiles)
    cut_up = {schedule.tile for schedule in found if schedule.place}
    assert cut_up <= set(tiles[:4]) and cut_up
    for schedule in found:
        assert (
            schedule.slowdown
            == schedule.tile.slowdown * cuts_of(schedule.tile)[schedule.place].slowdown
        )


def test_what_nobody_asks_for_is_not_cut():
    asked = []

    def cuts(tile):
        asked.append(tile)
        return cuts_of(tile)

    next(schedules(tiles_of(), cuts))
    assert not asked


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_cuts_hold_the_whole_grid_and_come_by_their_time(threads):
    found = blockings(300, 7, panel=1 << 16, row=1 << 12, cycles=4000, target=ZEN4, threads=threads)
    assert found[0].slowdown == 1.0
    assert all(a.slowdown <= b.slowdown for a, b in itertools.pairwise(found))
    for cut in found:
        assert cut.tiles * (cut.tile_chunks - 1) < 300 <= cut.tiles * cut.tile_chunks
        assert cut.blocks * (cut.block_chunks - 1) < 7 <= cut.blocks * cut.block_chunks
