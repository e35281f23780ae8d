"""Speeds of the machine, which estimates divide by: measured ones of a host, or nominal ones."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import log2

from saccade.codegen.target import Target

__all__ = ["Machine", "beyond_caches", "machine", "nominal"]

_PER_OCTAVE = 8


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
    """

    flops: float
    pair_flops: float
    bandwidth: float
    cache_bandwidth: float
    step: float
    cache: float

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

    def rounded(self) -> Machine:
        """The nearest on a scale of eight to an octave, so that noise hardly changes a choice."""

        def nearest(speed: float) -> float:
            return float(2 ** (round(log2(speed) * _PER_OCTAVE) / _PER_OCTAVE))

        return Machine(
            nearest(self.flops),
            nearest(self.pair_flops),
            nearest(self.bandwidth),
            nearest(self.cache_bandwidth),
            nearest(self.step),
            self.cache,
        )

    def improved(self, later: Machine, least: float = 1.0) -> Machine:
        """Each speed of a later measurement that is at least so many times as high, else this one.

        Whatever else a machine does makes it slower and never faster, so that the better of two
        measurements is nearer to the truth.
        """

        def better(kept: float, found: float) -> float:
            return found if found >= least * kept else kept

        return Machine(
            better(self.flops, later.flops),
            better(self.pair_flops, later.pair_flops),
            better(self.bandwidth, later.bandwidth),
            better(self.cache_bandwidth, later.cache_bandwidth),
            1 / better(1 / self.step, 1 / later.step),
            self.cache,
        )

    def plausible(self, other: Machine) -> bool:
        """Whether every speed is within a factor of 16 of another machine's."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return all(a > 0 and b / 16 <= a <= b * 16 for a, b in pairs)


_CLOCK = 3.7e3  # cycles per microsecond, a server core under full vector load
_FMA_PER_CYCLE = {"avx512": 1, "avx2": 2, "neon": 2}


def nominal(target: Target) -> Machine:
    """One 512-bit or two narrower fused multiply-adds per cycle, the memory of a small server."""
    flops = 2.0 * target.lanes * _FMA_PER_CYCLE.get(target.isa, 1) * _CLOCK
    pairs = 2.0 * flops if target.bf16 else flops
    return Machine(flops, pairs, 32e3, 90e3, 1.0, target.l3)


def machine(target: Target) -> Machine:
    """Measured speeds where the target has them, else nominal ones."""
    return nominal(target) if target.speeds is None else Machine(*target.speeds)


def beyond_caches(target: Target, nbytes: int) -> bool:
    """Whether a result of so many bytes is better stored past the caches.

    The last-level cache does not hold it until it is read, whatever else is read meanwhile.
    """
    return target.fills_lines and nbytes > target.l3
