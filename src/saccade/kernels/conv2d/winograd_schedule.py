"""Which of Winograd's variants a call takes, and what it is expected to cost.

`fused`: a chunk is a block of tiles; V and M of the block live in the thread's L2, and the
transformed weights are read once per block. `phased`: V and M of all tiles are shared buffers, and
the weights are read once per run, which pays when they are large and the tiles few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from saccade.codegen.target import Target
from saccade.kernels.conv2d.winograd_gemm import panel_vectors, rows_in_registers
from saccade.kernels.machine import Machine, machine

__all__ = ["SET_STEP", "Problem", "Schedule", "ranked", "variants"]

SET_STEP = 16
"""Elements that keep frequencies off each other's L1 sets."""
_SCRATCH = (448 << 10, 896 << 10, 1536 << 10)
# Measured on a Zen 4 server core: the products reach 93% of the peak; a transform takes these
# cycles for one vector of one patch; weights stream at these bytes per microsecond and core, from
# memory or again from L3.
_GEMM_EFFICIENCY = 0.93
_INPUT_CYCLES = {4: 180.0, 2: 75.0}
_OUTPUT_CYCLES = {4: 165.0, 2: 65.0}
_CYCLES = 3.7e3  # per microsecond
_COLD, _WARM = 20e3, 37e3
_NOMINAL_THREADS = 2
_OVERLAP = 0.15  # share of the shorter of arithmetic and streaming that adds to the longer


@dataclass(frozen=True, slots=True)
class Problem:
    """Sizes: images, rows and columns of the result, channels, vectors of filters."""

    images: int
    rows: int
    columns: int
    channels: int
    vectors: int
    threads: int
    target: Target


@dataclass(frozen=True, slots=True)
class Schedule:
    """One variant.

    Attributes:
        m: Edge of a tile.
        phased: Three phases over shared buffers, or one over blocks of tiles.
        nv: Vectors in a panel.
        block: Tiles in a chunk (of the products, when phased).
        micros: Expected microseconds.
    """

    m: int
    phased: bool
    nv: int
    block: int
    micros: float


@dataclass(frozen=True, slots=True)
class _Amounts:
    """What one tile size takes: tiles, panels, bytes of weights, microseconds of one core."""

    tiles: int
    panels: int
    weights: float
    transforms: float
    products: float


def _amounts(p: Problem, m: int, nv: int, speed: Machine) -> _Amounts:
    tiles = p.images * -(-p.rows // m) * -(-p.columns // m)
    panels = -(-p.vectors // nv)
    products = (m + 2) ** 2 * p.channels * panels * nv * p.target.lanes
    transforms = tiles * (
        -(-p.channels // p.target.lanes) * _INPUT_CYCLES[m] + p.vectors * _OUTPUT_CYCLES[m]
    )
    time = 2.0 * tiles * products / (_GEMM_EFFICIENCY * speed.flops)
    return _Amounts(tiles, panels, 4.0 * products, transforms / _CYCLES, time)


def _drag(rows: int, nv: int, target: Target) -> float:
    """Time for `rows` rows of products, over that of as many rows in full tiles.

    One or two rows that are left over take as long as two and a half: they wait for the panel.
    """
    rest = rows % rows_in_registers(nv, target)
    pieces = [h for h in (8, 4, 2, 1) if rest & h]
    return (rows - rest + sum(max(h, 2.5) for h in pieces)) / rows


def _overlapped(a: float, b: float) -> float:
    return max(a, b) + _OVERLAP * min(a, b)


def _pictures(p: Problem, speed: Machine) -> float:
    """Microseconds for reading x and writing y (a written line is read first)."""
    filters = p.vectors * p.target.lanes
    moved = 4.0 * p.images * p.rows * p.columns * (p.channels + 2 * filters)
    return moved / (speed.bandwidth if moved > p.target.l3 else 2 * _WARM * p.threads)


def _fused(p: Problem, m: int, nv: int, speed: Machine, scratch: int) -> Schedule:
    a = _amounts(p, m, nv, speed)
    row = 4 * (m + 2) ** 2 * (_pitch(p.channels, p.target) + nv * p.target.lanes)
    # Equal blocks, the same number for every thread.
    blocks = -(-a.tiles // max(1, scratch // row))
    blocks = max(1, min(-(-blocks // p.threads) * p.threads, a.tiles))
    block = max(1, -(-a.tiles // blocks))
    rounds = -(-blocks // p.threads)
    stream = a.weights / _COLD + (rounds - 1) * a.weights / _WARM
    # V that does not stay in L2 is fetched again for every panel.
    spilled = row * block if row * block > p.target.l2 // 2 else 0
    busy = (a.transforms + a.products * _drag(block, nv, p.target)) * rounds / blocks
    micros = speed.step + _overlapped(busy, stream) + _pictures(p, speed)
    micros += rounds * 0.5 * a.panels * spilled / _WARM
    return Schedule(m, False, nv, block, micros)


def _phased(p: Problem, m: int, nv: int, speed: Machine) -> Schedule:
    a = _amounts(p, m, nv, speed)
    block = max(1, min(a.tiles, (256 << 10) // (4 * _pitch(p.channels, p.target))))
    shared = 4.0 * (m + 2) ** 2 * a.tiles * (p.channels + a.panels * nv * p.target.lanes)
    # Half of what one core writes into the shared buffers is fetched from it by another.
    speed_between = _COLD if shared < p.target.l3 / 2 else _COLD / 2
    handed = (1.5 if p.threads > 1 else 0.3) * shared / speed_between
    busy = (a.transforms + a.products * _drag(block, nv, p.target)) / p.threads
    stream = a.weights / (_COLD * p.threads)
    micros = 3 * speed.step + _overlapped(busy, stream) + handed + _pictures(p, speed)
    return Schedule(m, True, nv, block, micros)


def _pitch(channels: int, target: Target) -> int:
    return -(-channels // target.lanes) * target.lanes


@lru_cache(maxsize=1024)
def ranked(p: Problem) -> tuple[Schedule, ...]:
    """All variants, the fastest first.

    Tile sizes round differently, so which one is best is asked for a fixed number of threads.
    """
    nominal = variants(replace(p, threads=_NOMINAL_THREADS))
    m = min(nominal, key=lambda s: s.micros).m
    return tuple(sorted(variants(p), key=lambda s: (s.m != m, s.micros)))


def variants(p: Problem) -> list[Schedule]:
    """All variants worth measuring."""
    nv = panel_vectors(p.vectors, p.target)
    speed = machine(p.target)
    found = [_fused(p, m, nv, speed, scratch) for m in (4, 2) for scratch in _SCRATCH]
    found += [_phased(p, m, nv, speed) for m in (4, 2)]
    return list({(s.m, s.phased, s.block): s for s in found}.values())
