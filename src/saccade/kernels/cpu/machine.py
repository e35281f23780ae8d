"""Speeds of the described machine that a target names."""

from __future__ import annotations

from functools import lru_cache

from saccade.backends.cpu.machines import description
from saccade.backends.cpu.target import Target
from saccade.kernels.machine import Machine

__all__ = ["CYCLES", "beyond_caches", "machine"]

CYCLES = 3.7e3
"""Per microsecond: a Zen 4 core's nominal clock.

Costs that kernels count in cycles were measured there, so they are divided by this on every
machine; what others do faster or slower is in `machine`.
"""


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
