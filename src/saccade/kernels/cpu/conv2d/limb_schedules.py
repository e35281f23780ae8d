"""How products of limbs are cut into chunks, the best way first, by estimated time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from typing import NamedTuple

from saccade.backends.cpu.codegen.bfloat16 import LIMBS
from saccade.backends.cpu.codegen.matrix_tiles import DEPTH, ROWS
from saccade.backends.cpu.target import Target
from saccade.kernels.base import Operand, Scratch
from saccade.kernels.cpu.conv2d.direct_config import Blocking, halves
from saccade.kernels.cpu.conv2d.limb_copies import STEP
from saccade.kernels.cpu.machine import machine, ports, tile_clock

__all__ = ["LimbSchedule", "LimbWork"]

# Cycles of two cores of an Emerald Rapids that were alone, fitted with those of `conv2d.limbs` to
# 209 layers of seven networks, 13% off in the mean: of 32 elements whose limbs are copied; of 32
# rows of a panel, which come from memory. By the instruction's own rate: of a step of one tile of
# sums, six products of two tiles.
_SPLIT, _SPLIT_PANEL, _PRODUCTS = 20, 440, 6 * 16
# As many times that as a step is taken to take: less was fitted to cores that are alone, 2.3 was
# measured beside a busy thread of the same core, which slows vectors down by half of that, and with
# 1.15 ViT-B/16 at batch 1 lost there. A lone tile of rows takes a fifth more.
_CROWDED, _LONE = 1.25, 1.2
# Fitted as well: of a block of sums beside its steps (zeros or what was stored, the wait for the
# last product); of a vector of sums (to scratch, back, through the epilogue and to its place). By
# eye, twice what was fitted: of a chunk.
_BLOCK, _FINISHED, _CLAIM = 60, 6, 4000
_UNEVEN = 0.2
"""Of the time of a thread's chunks, more where it has one alone, a half of it where two: threads
are not equally fast beside others' work. Of two chunks for two threads a tenth was idle there."""
_L2_SHARE = 0.65  # that what a chunk comes back to may take (by eye)
_CUTS = 6  # that are worth measuring, of each block (by eye)
_BLOCKS = 2, 1  # tiles of rows of a block of sums
_PARTS = 1, 2, 4, 8, 16  # of the reduction, at least


class LimbSchedule(NamedTuple):
    """A block of sums and how the grid is cut into chunks.

    Attributes:
        micros: Estimated, without the traffic of operands and results.
        rows: Tiles of the block.
        part: Steps of the reduction that all rows of a chunk go through before the next.
        cut: Into chunks.
    """

    micros: float
    rows: int
    part: int
    cut: Blocking

    @property
    def pitch(self) -> int:
        """Elements from row to row of a copy: whole steps, an odd number of lines of cache.

        Rows of a tile that are a multiple of 4096 bytes apart would compete for one set.
        """
        return (self.part | 1) * DEPTH

    @property
    def apart(self) -> int:
        """The same from limb to limb; what is written behind a row lies behind the last, too."""
        return self.rows * ROWS * self.pitch + DEPTH

    def integers(self, work: LimbWork, *, flat: bool, dense: bool) -> dict[str, int]:
        """The values of `LimbSizes`.

        Args:
            work: The products.
            flat: Whether rows of the result are evenly apart.
            dense: Whether those of the operand lie together.
        """
        parts = work.parts(self.part)
        last = work.steps - (parts - 1) * self.part
        written = -(-self.rows * ROWS // last) if flat else 0
        # Rows have two lines for each step; those of a part of them do not lie together.
        read = -(-2 * self.rows * ROWS // self.cut.blocks) if dense and parts == 1 else 0
        # Without parts sums are finished before the next tile of rows needs their place.
        kept = self.cut.blocks if parts > 1 else 0
        return {
            "inner": work.inner, "steps": work.steps, "part": self.part, "pitch": self.pitch,
            "apart": self.apart, "kept": kept, "written": written, "read": read,
        }  # fmt: skip

    def scratch(self, work: LimbWork) -> dict[str, Operand]:
        """What `LimbProducts` declares."""
        tiles = self.cut.tiles if work.parts(self.part) > 1 else 1
        return {
            "limbs": Scratch(2 * LIMBS * self.apart),
            "panels": Scratch(2 * STEP * self.part * self.cut.blocks),
            "sums": Scratch(4 * self.rows * ROWS * ROWS * self.cut.blocks * tiles),
        }


@dataclass(frozen=True, slots=True)
class LimbWork:
    """Products of rows with panels of columns.

    Attributes:
        rows: How many there are.
        columns: How many there are of a group.
        inner: Products of a sum.
        groups: How many times there are these products.
        row_cycles: Of a row, beside copying its limbs.
        whole: Steps that no part may be cut within; 0 for all.
    """

    rows: int
    columns: int
    inner: int
    groups: int
    row_cycles: float
    whole: int

    @property
    def steps(self) -> int:
        """Of 32 products, of a sum."""
        return -(-self.inner // DEPTH)

    def parts(self, part: int) -> int:
        """How many of so many steps there are."""
        return -(-self.steps // part)

    def tiles(self, rows: int) -> tuple[int, int]:
        """Blocks of sums along the rows, and panels."""
        return -(-self.rows // (rows * ROWS)), -(-self.columns // ROWS)

    def schedules(self, target: Target, threads: int) -> tuple[LimbSchedule, ...]:
        """Every block with a few cuts each, the best first."""
        return _schedules(self, target, threads)

    def part_sizes(self) -> tuple[int, ...]:
        """Steps of a part."""
        if not self.whole:
            return (self.steps,)
        found = (-(-self.steps // (parts * self.whole)) * self.whole for parts in _PARTS)
        return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1024)
def _schedules(work: LimbWork, target: Target, threads: int) -> tuple[LimbSchedule, ...]:
    found = []
    for rows in _BLOCKS:
        count, across = work.tiles(rows)
        cuts = _cuts(work, rows, target, threads)
        for micros, part, tiles, blocks in nsmallest(_CUTS, cuts):
            many, wide = -(-count // tiles), -(-across // blocks)
            cut = Blocking(tiles, blocks, many, wide, True, 1.0)
            found.append(LimbSchedule(micros, rows, part, cut))
    return tuple(sorted(found))


def _cuts(
    work: LimbWork, rows: int, target: Target, threads: int
) -> Iterator[tuple[float, int, int, int]]:
    """Microseconds, steps of a part, tiles and blocks of each way to cut.

    Parts are as large as the L2 cache lets them be.
    """
    count, across = work.tiles(rows)
    launch, sizes = machine(target).step, work.part_sizes()
    if not count * across * work.groups:
        yield launch, sizes[0], 1, 1
        return
    height, room, near = rows * ROWS, _L2_SHARE * target.l2, ports(target).near
    step = work.steps * rows * _PRODUCTS * _CROWDED * (_LONE if rows == 1 else 1)
    step += _FINISHED * height
    row = height * (_SPLIT * work.steps + work.row_cycles)
    for blocks in halves(across):
        split = _SPLIT_PANEL * work.steps * blocks
        for tiles in halves(count):
            different = work.groups * -(-across // blocks)
            chunks = different * -(-count // tiles)
            shares = -(-chunks // min(threads, chunks))
            grain = (1 + _UNEVEN / shares if threads > 1 else 1.0) / tile_clock(target)
            # A thread's chunks are neighbours, most of which have the same panels.
            splits = -(-different // threads)
            for part in sizes:
                parts, panels = work.parts(part), 2 * STEP * part * blocks
                sums = 4 * height * ROWS * blocks * (tiles if parts > 1 else 1)
                fits = panels + sums + 2 * LIMBS * DEPTH * part * height <= room
                cycles = tiles * (row + blocks * (step + parts * _BLOCK)) + _CLAIM
                if not fits:
                    cycles += parts * panels * tiles / near
                cycles *= shares
                cycles += split * (splits if parts == 1 else shares)
                yield launch + cycles * grain, part, tiles, blocks
                if fits:
                    break
