"""Which of Winograd's variants a call takes, and what it is expected to cost.

`fused`: a chunk is a block of tiles; V and M of the block live in the thread's L2, and the transformed weights are
read once per block. `phased`: V and M of all tiles are shared buffers, and the weights are read once per run, which
pays when they are large and the tiles few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from saccade.codegen.target import Target
from saccade.kernels.conv2d.winograd_gemm import panel_vectors
from saccade.kernels.machine import Machine, machine

__all__ = ["Problem", "Schedule", "schedule"]

SET_STEP = 16
"""Elements that keep frequencies off each other's L1 sets."""
FUSED_BYTES = 640 << 10
_GEMM_EFFICIENCY = 0.85
_INPUT_CYCLES = {4: 190.0, 2: 60.0}  # a patch, one vector of channels
_OUTPUT_CYCLES = {4: 150.0, 2: 50.0}
_CYCLES = 3.7e3  # per microsecond


@dataclass(frozen=True, slots=True)
class Problem:
    """Sizes of one convolution: images, result rows and columns, channels, filters, vectors of filters."""

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


def _fused(p: Problem, m: int, nv: int, speed: Machine) -> Schedule:
    a = _amounts(p, m, nv, speed)
    row = 4 * (m + 2) ** 2 * (_pitch(p.channels, p.target) + nv * p.target.lanes)
    most = max(1, FUSED_BYTES // row)
    # Equal blocks, the same number for every thread while blocks do not get too small.
    blocks = -(-a.tiles // most)
    blocks = min(-(-blocks // p.threads) * p.threads, max(a.tiles, 1))
    block = max(1, -(-a.tiles // blocks))
    rounds = -(-blocks // p.threads)
    share = rounds / max(blocks, 1)
    stream = rounds * a.weights / speed.cache_bandwidth
    busy = (a.transforms + a.products) * share
    return Schedule(m, False, nv, block, speed.step + max(busy, stream) + 0.2 * min(busy, stream))


def _phased(p: Problem, m: int, nv: int, speed: Machine) -> Schedule:
    a = _amounts(p, m, nv, speed)
    block = max(1, min(a.tiles, (256 << 10) // (4 * _pitch(p.channels, p.target))))
    moved = 8.0 * (m + 2) ** 2 * a.tiles * (p.channels + a.panels * nv * p.target.lanes)
    spread = moved / (speed.cache_bandwidth * p.threads)
    busy, stream = (a.transforms + a.products) / p.threads, a.weights / speed.bandwidth
    micros = 3 * speed.step + max(busy, stream) + 0.2 * min(busy, stream) + spread
    return Schedule(m, True, nv, block, micros)


def _pitch(channels: int, target: Target) -> int:
    return -(-channels // target.lanes) * target.lanes


@lru_cache(maxsize=1024)
def schedule(p: Problem) -> Schedule:
    """The variant that is expected to be fastest."""
    nv = panel_vectors(p.vectors, p.target)
    speed = machine(p.target)
    variants = [make(p, m, nv, speed) for make in (_fused, _phased) for m in (4, 2)]
    return min(variants, key=lambda s: s.micros)
