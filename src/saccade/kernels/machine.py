"""Nominal speeds of the machine, for cost estimates before anything was measured."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.codegen.target import Target

__all__ = ["Machine", "machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What estimates divide by.

    Attributes:
        flops: Peak fp32 operations per microsecond of one core (a fused multiply-add counts two).
        pair_flops: The same of dot products of pairs of bfloat16.
        bandwidth: Bytes per microsecond from memory, all cores together.
        cache_bandwidth: Bytes per microsecond from the last-level cache, one core.
        step: Microseconds that a phase takes when it does nothing: barrier, claims, tables.
    """

    flops: float
    pair_flops: float
    bandwidth: float
    cache_bandwidth: float
    step: float

    def roofline(self, flops: float, nbytes: float, threads: int, efficiency: float) -> float:
        """Microseconds for `flops` operations at a share of the peak while `nbytes` move."""
        return self.step + flops / (efficiency * self.flops * threads) + nbytes / self.bandwidth


_CLOCK = 3.7e3  # cycles per microsecond, a server core under full vector load
_FMA_PER_CYCLE = {"avx512": 1, "avx2": 2, "neon": 2}


def machine(target: Target) -> Machine:
    """Defaults: one 512-bit or two narrower fused multiply-adds per cycle, or dot products."""
    flops = 2.0 * target.lanes * _FMA_PER_CYCLE.get(target.isa, 1) * _CLOCK
    return Machine(flops, 2.0 * flops if target.bf16 else flops, 40e3, 60e3, 1.5)
