"""Speeds of the machine that a plan is for, which estimates divide by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from saccade.backends.cpu.machines import description
from saccade.backends.cpu.target import Target

__all__ = ["Machine", "beyond_caches", "machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What estimates divide by.

    Attributes:
        flops: Peak fp32 operations per microsecond of one core (a fused multiply-add counts two).
        pair_flops: The same of dot products of pairs of bfloat16.
        bandwidth: Bytes per microsecond from and to memory, all cores together.
        cache_bandwidth: Bytes per microsecond from and to the last-level cache, one core.
        step: Microseconds that a phase takes when it does nothing: barrier, claims, tables.
        cache: Bytes of the last-level cache.
        name: Of the description; empty where speeds were measured.
    """

    flops: float
    pair_flops: float
    bandwidth: float
    cache_bandwidth: float
    step: float
    cache: float
    name: str = ""

    def traffic(self, nbytes: float, threads: int) -> float:
        """Microseconds in which `nbytes` move, all different ones.

        What a step reads was written by one just before. As much as half of the last-level cache
        holds comes from there, the rest of it from memory.
        """
        far = max(0.0, 1.0 - 0.5 * self.cache / nbytes) if nbytes else 0.0
        return nbytes * ((1 - far) / (self.cache_bandwidth * threads) + far / self.bandwidth)

    def roofline(self, flops: float, nbytes: float, threads: int, efficiency: float) -> float:
        """Microseconds for `flops` operations at a share of the peak while `nbytes` move."""
        busy = flops / (efficiency * self.flops * threads)
        return self.step + busy + self.traffic(nbytes, threads)


@lru_cache(maxsize=64)
def machine(target: Target) -> Machine:
    """The speeds of the machine that a target names; its last-level cache is the target's own."""
    known = description(target.machine)
    flops = 2.0 * target.lanes * known.fma.get(target.isa, 1) * known.clock
    pairs = known.pairs * flops if target.bf16 else flops
    return Machine(
        flops, pairs, known.bandwidth, known.cache_bandwidth, known.step, float(target.l3),
        known.name,
    )  # fmt: skip


def beyond_caches(target: Target, nbytes: int) -> bool:
    """Whether a result of so many bytes is better stored past the caches.

    The last-level cache does not hold it until it is read, whatever else is read meanwhile.
    """
    return target.fills_lines and nbytes > target.l3
