"""Speeds of the machine that a plan is for: what estimates and the floor divide by."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What estimates divide by.

    Attributes:
        flops: Peak fp32 operations per microsecond of one core (a fused multiply-add counts two).
        pair_flops: The same of products of bfloat16 (pairs of them on a CPU) or float16.
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
