"""Which of Winograd's variants a call takes, and what it is expected to cost.

`fused`: a chunk is a block of tiles; V and M of the block live in the thread's L2, and the
transformed weights are read once per block. `phased`: V and M of all tiles are shared buffers, and
the weights are read once per run, which pays when they are large and the tiles few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from saccade.backends.cpu.target import NOMINAL_THREADS, Target
from saccade.kernels.cpu.conv2d.winograd_gemm import (
    even_heights,
    panel_vectors,
    phased_heights,
    usual_heights,
)
from saccade.kernels.cpu.conv2d.winograd_points import (
    WinogradTile,
    accurate,
    bases,
    count_of,
    edge_for,
    whole_tile,
)
from saccade.kernels.cpu.conv2d.winograd_tiles import rows_of, tile_counts
from saccade.kernels.cpu.machine import clock, machine, ports, streams_late
from saccade.kernels.machine import Machine

__all__ = ["SET_STEP", "Problem", "Schedule", "ranked"]

SET_STEP = 16
"""Elements that keep frequencies off each other's L1 sets."""
# Bytes of V and M of a block: within half of Zen 4's L2 cache, where V stays; within all of it and
# beyond, where weights are read less often.
_SCRATCH = (448 << 10, 896 << 10, 1536 << 10)
# Measured on a Zen 4 server core: the products reach 93% of the peak; a transform takes these
# cycles for one vector of one whole patch, most of it waiting for V and M in L2 (in L1 they would
# take half).
_GEMM_EFFICIENCY = {False: 0.93, True: 0.85}
_INPUT_CYCLES = {
    **{(1, 6): 620.0, (1, 4): 270.0, (1, 2): 90.0},
    **{(2, 7): 2100.0, (2, 5): 1100.0, (2, 3): 380.0},
}
_OUTPUT_CYCLES = {
    **{(1, 6): 520.0, (1, 4): 213.0, (1, 2): 71.0},
    **{(2, 7): 1700.0, (2, 5): 900.0, (2, 3): 300.0},
}
# Bytes per microsecond at which weights stream to one core: from memory, from memory when every
# core reads all of them and they do not stay in the last-level cache (Zen 4; a Zen 5 core waits
# as long, though its memory is faster). Again from that cache: a share of its rate.
_COLD, _COLD_SHARED, _COLD_LARGE, _WARM = 20e3, 26e3, 13e3, 0.402
# Bytes per microsecond through shared buffers of less than an eighth of the last-level cache, most
# of which the cores take from each other; of a third, as a share of the cache's rate; of more, of
# the memory's (Zen 4: 40 and 22 GB/s).
_SMALL, _MIDDLE, _LARGE = 120e3, 0.435, 0.6875
_FED = 12  # rows that keep a core busy for as long as the next weights take to come from memory
# Share of the shorter of arithmetic and streaming that adds to the longer: calibrated inside
# running programs on two Zen 4 cores, to 15%. Of hungry cores for blocks of tiles, which do not
# ask for their weights ahead (Zen 5).
_OVERLAP = 0.2
_OVERLAP_FUSED = {False: 0.2, True: 0.3}
_AHEAD = 64  # vectors of weights: what comes from memory takes half a microsecond (Zen 4)
# Steps of weights where blocks of tiles read them from the L2 cache: 8 to 32 gained VGG-16 2 to 3%
# (Emerald Rapids).
_STEPS_AHEAD = 16
_PART = 64 << 10  # bytes of weights in a chunk of the phased products
_ROUNDED_OFF = 1 - 1e-9  # of a bound that is added up in another order than what it bounds


@dataclass(frozen=True, slots=True)
class Problem:
    """What estimates depend on.

    Attributes:
        images, rows, columns: Extents of the result.
        channels, vectors: Channels of the image, vectors of filters.
        threads: Width of the team.
        target: Machine.
        sizes: Bytes of an element of the image and of the result.
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


class Schedule(NamedTuple):
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
    def tile(self) -> WinogradTile:
        """A whole tile."""
        return whole_tile(self.m, self.stride)

    def counts(self, p: Problem) -> tuple[int, ...]:
        """Tiles in each region."""
        return tile_counts(p.images, p.rows, p.columns, self.m, self.edges)


_MICROS = attrgetter("micros")


def _pitch(channels: int, target: Target) -> int:
    return -(-channels // target.lanes) * target.lanes


class _Form(NamedTuple):
    """Tiles of a problem: what all variants over them share.

    Attributes:
        p: The problem.
        m: Edge of a whole tile.
        edges: As in `Schedule`.
        speed: Of the machine.
        frequencies: Of a whole tile, along one axis.
        distinct: Of these, those that differ in their weights.
        tiles: How many.
        shares: For each number of rows that a frequency has, how many frequencies have it.
        transforms: Microseconds of one core for both transforms.
        traffic: Microseconds for reading and writing them.
    """

    p: Problem
    m: int
    edges: tuple[int, int]
    speed: Machine
    frequencies: int
    distinct: int
    tiles: int
    shares: tuple[tuple[float, int], ...]
    transforms: float
    traffic: float

    @classmethod
    def of(cls, p: Problem, m: int, edges: tuple[int, int], speed: Machine) -> _Form:
        """Those of a problem."""
        counts = tile_counts(p.images, p.rows, p.columns, m, edges)
        tiles = sum(counts)
        shares = tuple(rows_of(counts, m, edges, p.stride).items())
        whole, transforms = whole_tile(m, p.stride), _transforms(p, m, tiles)
        return cls(
            p, m, edges, speed, whole.count, whole.weights, tiles, shares, transforms,
            _images(p, speed),
        )  # fmt: skip

    def variants(self) -> list[Schedule]:
        """All of them."""
        # Narrow panels wait for weights once, wide ones share theirs with the fused variants.
        widths = {1, panel_vectors(self.p.vectors, self.p.target)}
        return [*_fused(self), *(_phased(self, nv) for nv in widths)]

    def weights(self, nv: int) -> float:
        """Bytes of transformed weights in panels of so many vectors."""
        p = self.p
        return 4.0 * self.distinct**2 * p.channels * -(-p.vectors // nv) * nv * p.target.lanes


def _products(form: _Form, nv: int, blocks: int, *, phased: bool) -> float:
    """Microseconds of one core for all products.

    One or two rows take as long as two and a half: they wait for the panel. When phased, the first
    rows wait for it to come from memory, unless the frequency before had the same weights.
    """
    p = form.p
    fresh = (form.distinct / form.frequencies) ** 2 if phased else 0.0
    most = (phased_heights if phased else usual_heights)(nv, p.target)[0]
    total = 0.0
    for rows, many in form.shares:
        whole = max(1, round(rows / blocks))
        total += many * rows * _taken(whole, most, fresh) / whole
    flops = 2.0 * total * p.channels * -(-p.vectors // nv) * nv * p.target.lanes
    return flops / (_GEMM_EFFICIENCY[ports(p.target).hungry] * form.speed.flops)


@lru_cache(maxsize=1024)
def _taken(rows: int, most: int, fresh: float) -> float:
    """How many rows take as long as the products of so many."""
    heights = even_heights(rows, most)
    taken = sum(n * max(height, 2.5) for height, n in heights)
    return taken + fresh * max(0.0, _FED - max(heights[0][0], 2.5))


def _transforms(p: Problem, m: int, tiles: int) -> float:
    """Microseconds of one core for both transforms."""
    vectors = -(-p.channels // p.target.lanes)
    border = 2.5 if p.channels < p.target.lanes else 1.0
    cycles = vectors * border * _INPUT_CYCLES[p.stride, m] + p.vectors * _OUTPUT_CYCLES[p.stride, m]
    return tiles * cycles / clock(p.target)


def _overlapped(a: float, b: float, share: float) -> float:
    return max(a, b) + share * min(a, b)


def _images(p: Problem, speed: Machine) -> float:
    """Microseconds for reading x and writing y (a written line is read first)."""
    filters = p.vectors * p.target.lanes
    pixel = p.sizes[0] * p.channels * p.stride**2 + p.sizes[1] * 2 * filters
    moved = float(p.images * p.rows * p.columns * pixel)
    near = 2 * _WARM * speed.cache_bandwidth * p.threads
    return moved / (speed.bandwidth if moved > p.target.l3 else near)


def _fused(form: _Form) -> Iterator[Schedule]:
    """Blocks of tiles whose V and M fit a share of the L2 cache."""
    p, tiles = form.p, max(1, form.tiles)
    nv = panel_vectors(p.vectors, p.target)
    row = 4 * form.frequencies**2 * (_pitch(p.channels, p.target) + nv * p.target.lanes)
    cuts = []
    for scratch in _SCRATCH:
        # Equal blocks, the same number for every thread.
        blocks = -(-tiles // max(1, scratch // row))
        cuts.append(max(1, min(-(-blocks // p.threads) * p.threads, tiles)))
    ahead = _STEPS_AHEAD * nv if streams_late(p.target) else 0
    for blocks in dict.fromkeys(cuts):
        micros = _fused_micros(form, nv, row, blocks)
        yield Schedule(form.m, form.edges, False, nv, blocks, 1, ahead, p.stride, micros)


def _fused_micros(form: _Form, nv: int, row: int, blocks: int) -> float:
    p = form.p
    rounds = -(-blocks // p.threads)
    weights = form.weights(nv)
    stays = weights < p.target.l3 / 2
    speed = form.speed
    warm = _WARM * speed.cache_bandwidth
    stream = weights / (_COLD_SHARED if stays else _COLD_LARGE)
    stream += (rounds - 1) * weights / (warm if stays else _COLD_LARGE)
    # V that does not stay in L2 is fetched again for every panel.
    held = row * -(-max(1, form.tiles) // blocks)
    spilled = held if held > p.target.l2 // 2 else 0
    busy = (form.transforms + _products(form, nv, blocks, phased=False)) * rounds / blocks
    share = _OVERLAP_FUSED[ports(p.target).hungry]
    micros = speed.step + _overlapped(busy, stream, share) + form.traffic
    return micros + rounds * 0.5 * -(-p.vectors // nv) * spilled / warm


def _phased(form: _Form, nv: int) -> Schedule:
    p, tiles = form.p, max(1, form.tiles)
    panels = -(-p.vectors // nv)
    filters = nv * p.target.lanes
    parts = max(1, min(panels, round(4.0 * p.channels * panels * filters / _PART)))
    shared = 4.0 * form.frequencies**2 * tiles * (p.channels + panels * filters)
    # Half of what one core writes into the shared buffers is fetched from it by another.
    handed = (1.5 if p.threads > 1 else 0.3) * shared / _between(shared, p.target, form.speed)
    busy = (form.transforms + _products(form, nv, 1, phased=True)) / p.threads
    stream = form.weights(nv) / (_COLD * p.threads)
    micros = 3 * form.speed.step + _overlapped(busy, stream, _OVERLAP) + handed + form.traffic
    blocks = min(tiles, 16 * p.threads)
    return Schedule(form.m, form.edges, True, nv, blocks, parts, _AHEAD, p.stride, micros)


def _between(shared: float, target: Target, speed: Machine) -> float:
    """Bytes per microsecond through shared buffers of so many bytes."""
    if shared >= target.l3 / 3:
        return _LARGE * speed.bandwidth
    return _SMALL if shared < target.l3 / 8 else _MIDDLE * speed.cache_bandwidth


def _least_micros(p: Problem, m: int, edges: tuple[int, int], speed: Machine) -> float:
    """What no variant of a form takes less than: the team shares all work, no row waits."""
    counts = tile_counts(p.images, p.rows, p.columns, m, edges)
    whole = whole_tile(m, p.stride).count
    down, along = (count_of(m, edge, p.stride) for edge in edges)
    right, full, bottom, corner = counts
    rows = whole * (whole * full + along * right + down * bottom) + down * along * corner
    products = 2.0 * rows * p.channels * p.vectors * p.target.lanes
    busy = _transforms(p, m, sum(counts)) + products / (
        _GEMM_EFFICIENCY[ports(p.target).hungry] * speed.flops
    )
    return speed.step + busy / p.threads + _images(p, speed)


def ranked(p: Problem) -> Iterator[Schedule]:
    """All variants, the fastest first; those of other tiles are only made when they are asked for.

    Tiles round differently, so which ones are best is asked for a fixed number of threads.
    """
    nominal = p if p.threads == NOMINAL_THREADS else replace(p, threads=NOMINAL_THREADS)
    best, found = _best_tiles(nominal)
    forms, speed = _forms(p), machine(p.target)
    if nominal is not p:
        found = _Form.of(p, *forms[best], speed).variants()
    yield from sorted(found, key=_MICROS)
    del forms[best]
    others = (s for form in forms for s in _Form.of(p, *form, speed).variants())
    yield from sorted(others, key=_MICROS)


@lru_cache(maxsize=1024)
def _best_tiles(p: Problem) -> tuple[int, list[Schedule]]:
    """Number of the form with the fastest variant, the first of equals, and its variants."""
    forms, speed = _forms(p), machine(p.target)
    best, least, found = 0, float("inf"), list[Schedule]()
    bounds = [_least_micros(p, *form, speed) * _ROUNDED_OFF for form in forms]
    for number in sorted(range(len(forms)), key=bounds.__getitem__):
        if bounds[number] > least:
            break
        variants = _Form.of(p, *forms[number], speed).variants()
        micros = min(variants, key=_MICROS).micros
        if (micros, number) < (least, best):
            best, least, found = number, micros, variants
    return best, found


def _forms(p: Problem) -> list[tuple[int, tuple[int, int]]]:
    """Tiles that are accurate enough: with shorter ones at the edges, or clipped."""
    found = []
    for m in bases(p.stride):
        if accurate(m, p.channels, p.stride):
            edges = (edge_for(p.rows, m, p.stride), edge_for(p.columns, m, p.stride))
            found += [(m, cut) for cut in dict.fromkeys((edges, (0, 0)))]
    return found
