"""Which of Winograd's variants a call takes, and what it is expected to cost.

`fused`: a chunk is a block of tiles; V and M of the block live in the thread's L2, and the
transformed weights are read once per block. `phased`: V and M of all tiles are shared buffers, and
the weights are read once per run, which pays when they are large and the tiles few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from saccade.codegen.target import Target
from saccade.kernels.conv2d.winograd_gemm import (
    even_heights,
    panel_vectors,
    phased_heights,
    usual_heights,
)
from saccade.kernels.conv2d.winograd_points import Tile, accurate, bases, edge_for
from saccade.kernels.conv2d.winograd_tiles import rows_of, tile_counts
from saccade.kernels.machine import Machine, machine

__all__ = ["SET_STEP", "Problem", "Schedule", "ranked", "variants"]

SET_STEP = 16
"""Elements that keep frequencies off each other's L1 sets."""
_SCRATCH = (448 << 10, 896 << 10, 1536 << 10)
# Measured on a Zen 4 server core: the products reach 93% of the peak; a transform takes these
# cycles for one vector of one whole patch, most of it waiting for V and M in L2 (in L1 they would
# take half). Weights stream at these bytes per microsecond and core: from memory, from memory when
# every core reads all of them and they do not stay in the last-level cache, or again from there.
_GEMM_EFFICIENCY = 0.93
_INPUT_CYCLES = {
    **{(1, 6): 620.0, (1, 4): 270.0, (1, 2): 90.0},
    **{(2, 7): 2100.0, (2, 5): 1100.0, (2, 3): 380.0},
}
_OUTPUT_CYCLES = {
    **{(1, 6): 520.0, (1, 4): 213.0, (1, 2): 71.0},
    **{(2, 7): 1700.0, (2, 5): 900.0, (2, 3): 300.0},
}
_CYCLES = 3.7e3  # per microsecond
_COLD, _COLD_SHARED, _COLD_LARGE, _WARM = 20e3, 26e3, 13e3, 37e3
_FED = 12  # rows that keep a core busy for as long as the next weights take to come from memory
_NOMINAL_THREADS = 2
_OVERLAP = 0.2  # share of the shorter of arithmetic and streaming that adds to the longer
_AHEAD = 64  # vectors of weights: what comes from memory takes half a microsecond
_PART = 64 << 10  # bytes of weights in a chunk of the phased products


@dataclass(frozen=True, slots=True)
class Problem:
    """What estimates depend on.

    Attributes:
        images, rows, columns: Extents of the result.
        channels, vectors: Channels of the picture, vectors of filters.
        threads: Width of the team.
        target: Machine.
        sizes: Bytes of an element of the picture and of the result.
        stride: Pixels from result to result, 1 or 2.
    """

    images: int
    rows: int
    columns: int
    channels: int
    vectors: int
    threads: int
    target: Target
    sizes: tuple[int, int] = (4, 4)
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """One variant.

    Attributes:
        m: Edge of a whole tile.
        edges: Heights of the tiles at the bottom and widths of those at the right; 0 where there
            are none or where they are whole tiles that are clipped.
        phased: Three phases over shared buffers, or one over blocks of tiles.
        nv: Vectors in a panel.
        blocks: Chunks that the tiles are divided into.
        parts: Chunks that the panels of a frequency are divided into, when phased.
        ahead: Vectors of weights ahead of use that are asked for.
        stride: Of the convolution.
        micros: Expected microseconds.
    """

    m: int
    edges: tuple[int, int]
    phased: bool
    nv: int
    blocks: int
    parts: int = 1
    ahead: int = 0
    stride: int = 1
    micros: float = 0.0

    @property
    def tile(self) -> Tile:
        """A whole tile."""
        return Tile(self.m, self.m, self.stride)

    def counts(self, p: Problem) -> tuple[int, ...]:
        """Tiles in each region."""
        return tile_counts(p.images, p.rows, p.columns, self.m, self.edges)


def _pitch(channels: int, target: Target) -> int:
    return -(-channels // target.lanes) * target.lanes


def _weights(p: Problem, s: Schedule) -> float:
    """Bytes of transformed weights."""
    panels = -(-p.vectors // s.nv)
    return 4.0 * s.tile.weights**2 * p.channels * panels * s.nv * p.target.lanes


def _products(p: Problem, s: Schedule, speed: Machine) -> float:
    """Microseconds of one core for all products.

    One or two rows take as long as two and a half: they wait for the panel. When phased, the first
    rows wait for it to come from memory, unless the frequency before had the same weights.
    """
    fresh = (s.tile.weights / s.tile.count) ** 2
    share = 1 if s.phased else s.blocks
    most = (phased_heights if s.phased else usual_heights)(s.nv, p.target)[0]
    total = 0.0
    for rows, many in _shares(p, s, share).items():
        whole = max(1, round(rows))
        heights = even_heights(whole, most)
        taken = sum(n * max(height, 2.5) for height, n in heights)
        if s.phased:
            taken += fresh * max(0.0, _FED - max(heights[0][0], 2.5))
        total += many * rows * share * taken / whole
    panels = -(-p.vectors // s.nv)
    flops = 2.0 * total * p.channels * panels * s.nv * p.target.lanes
    return flops / (_GEMM_EFFICIENCY * speed.flops)


def _shares(p: Problem, s: Schedule, blocks: int) -> dict[float, int]:
    """`rows_of` one of so many blocks."""
    return rows_of(tuple(n / blocks for n in s.counts(p)), s.m, s.edges, p.stride)


def _transforms(p: Problem, s: Schedule) -> float:
    """Microseconds of one core for both transforms."""
    tiles = sum(s.counts(p))
    vectors = -(-p.channels // p.target.lanes)
    border = 2.5 if p.channels < p.target.lanes else 1.0
    cycles = vectors * border * _INPUT_CYCLES[p.stride, s.m]
    cycles += p.vectors * _OUTPUT_CYCLES[p.stride, s.m]
    return tiles * cycles / _CYCLES


def _overlapped(a: float, b: float) -> float:
    return max(a, b) + _OVERLAP * min(a, b)


def _pictures(p: Problem, speed: Machine) -> float:
    """Microseconds for reading x and writing y (a written line is read first)."""
    filters = p.vectors * p.target.lanes
    pixel = p.sizes[0] * p.channels * p.stride**2 + p.sizes[1] * 2 * filters
    moved = float(p.images * p.rows * p.columns * pixel)
    return moved / (speed.bandwidth if moved > p.target.l3 else 2 * _WARM * p.threads)


def _fused(p: Problem, m: int, edges: tuple[int, int], scratch: int, speed: Machine) -> Schedule:
    nv = panel_vectors(p.vectors, p.target)
    tiles = max(1, sum(tile_counts(p.images, p.rows, p.columns, m, edges)))
    row = 4 * Tile(m, m, p.stride).count ** 2 * (_pitch(p.channels, p.target) + nv * p.target.lanes)
    # Equal blocks, the same number for every thread.
    blocks = -(-tiles // max(1, scratch // row))
    blocks = max(1, min(-(-blocks // p.threads) * p.threads, tiles))
    s = Schedule(m, edges, False, nv, blocks, stride=p.stride)
    rounds = -(-blocks // p.threads)
    weights = _weights(p, s)
    stays = weights < p.target.l3 / 2
    stream = weights / (_COLD_SHARED if stays else _COLD_LARGE)
    stream += (rounds - 1) * weights / (_WARM if stays else _COLD_LARGE)
    # V that does not stay in L2 is fetched again for every panel.
    held = row * -(-tiles // blocks)
    spilled = held if held > p.target.l2 // 2 else 0
    busy = (_transforms(p, s) + _products(p, s, speed)) * rounds / blocks
    micros = speed.step + _overlapped(busy, stream) + _pictures(p, speed)
    micros += rounds * 0.5 * -(-p.vectors // nv) * spilled / _WARM
    return replace(s, micros=micros)


def _phased(p: Problem, m: int, edges: tuple[int, int], nv: int, speed: Machine) -> Schedule:
    tiles = max(1, sum(tile_counts(p.images, p.rows, p.columns, m, edges)))
    panels = -(-p.vectors // nv)
    filters = nv * p.target.lanes
    parts = max(1, min(panels, round(4.0 * p.channels * panels * filters / _PART)))
    s = Schedule(m, edges, True, nv, min(tiles, 16 * p.threads), parts, _AHEAD, p.stride)
    shared = 4.0 * s.tile.count**2 * tiles * (p.channels + panels * filters)
    # Half of what one core writes into the shared buffers is fetched from it by another.
    handed = (1.5 if p.threads > 1 else 0.3) * shared / _between(shared, p.target)
    busy = (_transforms(p, s) + _products(p, s, speed)) / p.threads
    stream = _weights(p, s) / (_COLD * p.threads)
    micros = 3 * speed.step + _overlapped(busy, stream) + handed + _pictures(p, speed)
    return replace(s, micros=micros)


def _between(shared: float, target: Target) -> float:
    """Bytes per microsecond through shared buffers of so many bytes."""
    return 120e3 if shared < target.l3 / 8 else 40e3 if shared < target.l3 / 3 else 22e3


@lru_cache(maxsize=1024)
def ranked(p: Problem) -> tuple[Schedule, ...]:
    """All variants, the fastest first.

    Tiles round differently, so which ones are best is asked for a fixed number of threads.
    """
    found = variants(p)
    nominal = (
        found if p.threads == _NOMINAL_THREADS else variants(replace(p, threads=_NOMINAL_THREADS))
    )
    best = min(nominal, key=lambda s: s.micros)
    form = (best.m, best.edges)
    return tuple(sorted(found, key=lambda s: ((s.m, s.edges) != form, s.micros)))


def variants(p: Problem) -> list[Schedule]:
    """All variants worth measuring."""
    found = []
    speed = machine(p.target)
    # Narrow panels wait for weights once, wide ones share theirs with the fused variants.
    widths = {1, panel_vectors(p.vectors, p.target)}
    for m, edges in _forms(p):
        found += [_fused(p, m, edges, scratch, speed) for scratch in _SCRATCH]
        found += [_phased(p, m, edges, nv, speed) for nv in widths]
    return list({(s.m, s.edges, s.phased, s.nv, s.blocks): s for s in found}.values())


def _forms(p: Problem) -> Iterator[tuple[int, tuple[int, int]]]:
    """Tiles that are accurate enough: with shorter ones at the edges, or clipped."""
    for m in bases(p.stride):
        if accurate(m, p.channels, p.stride):
            edges = (edge_for(p.rows, m, p.stride), edge_for(p.columns, m, p.stride))
            yield m, edges
            if edges != (0, 0):
                yield m, (0, 0)
