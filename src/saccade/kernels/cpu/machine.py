"""Speeds of the described machine that a target names."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from saccade.backends.cpu.machines import description
from saccade.backends.cpu.target import Target
from saccade.kernels.machine import Machine

__all__ = [
    "Ports",
    "beyond_caches",
    "clock",
    "machine",
    "pairs_pay",
    "ports",
    "streams_late",
    "tile_clock",
]


class Ports(NamedTuple):
    """What a core does in a cycle, and how fast bytes come to it.

    Attributes:
        products: Multiply-adds of the widest vectors a cycle.
        halves: Whether one of half their width takes half the time.
        hungry: Whether they are more than 16 of float32, so that less of what is read hides.
        fed, near, far: Bytes per cycle from the L2 cache, from the last-level cache and from
            memory, beside products.
    """

    products: int
    halves: bool
    hungry: bool
    fed: int
    near: int
    far: int


_LANES = 16  # of float32 that a Zen 4 core multiplies and adds in a cycle
# Of what a core reads if it does nothing else (an estimate, on Zen 4).
_BESIDE_CACHE, _BESIDE_MEMORY = 0.65, 0.7


@lru_cache(maxsize=64)
def ports(target: Target) -> Ports:
    """Those of the described machine that a target names."""
    known = description(target.machine)
    products = known.fma.get(target.vector_isa, 1)
    return Ports(
        products,
        target.splits_vectors and known.fma["avx2"] > products,
        products * target.lanes > _LANES,
        round(known.l2_bandwidth / known.clock),
        round(_BESIDE_CACHE * known.cache_bandwidth / known.clock),
        round(_BESIDE_MEMORY * known.bandwidth / known.clock),
    )


def clock(target: Target) -> float:
    """Cycles per microsecond: what costs that are counted in cycles are divided by."""
    return description(target.machine).clock


def pairs_pay(target: Target) -> bool:
    """Whether products of bfloat16 in pairs are faster than the same in float32."""
    return target.bf16 and description(target.machine).pairs > 1


def streams_late(target: Target) -> bool:
    """Whether what streams from the L2 cache and beyond comes late unless code asks for it."""
    return description(target.machine).late


def tile_clock(target: Target) -> float:
    """Cycles per microsecond of products in tiles of matrices, which do 1024 operations in one."""
    return description(target.machine).tiles / 1024


@lru_cache(maxsize=64)
def machine(target: Target) -> Machine:
    """The speeds of the machine that a target names; its last-level cache is the target's own."""
    known = description(target.machine)
    flops = 2.0 * target.lanes * known.fma.get(target.vector_isa, 1) * known.clock
    pairs = known.pairs * flops if target.bf16 else flops
    if target.tiles:
        pairs = max(pairs, known.tiles)
    return Machine(
        flops, pairs, known.bandwidth, known.cache_bandwidth, known.step, float(target.l3),
        known.name,
    )  # fmt: skip


def beyond_caches(target: Target, nbytes: int) -> bool:
    """Whether a result of so many bytes is better stored past the caches.

    The last-level cache does not hold it until it is read, whatever else is read meanwhile.
    """
    return target.fills_lines and nbytes > target.l3
