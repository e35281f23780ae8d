"""Speeds of this machine as they are measured: what profiles and floors are held against.

No choice depends on them: plans go by what ships with the package (`machines`).
"""

from __future__ import annotations

from functools import cache

from saccade.backends.cpu.runtime.peaks import Peaks
from saccade.backends.cpu.target import Target
from saccade.kernels.cpu.machine import machine
from saccade.kernels.machine import Machine
from saccade.options import default_threads

__all__ = ["measured_speeds"]

# Microseconds of a phase's arguments, claims and cold code, beside the barrier (Zen 4).
_LAUNCH = 0.7
_TEAM = 2  # cores that memory is measured with
_LOOK = 8 << 20  # bytes of a look at memory, a fraction of the scheduler's time slice
_MOST = 512 << 20  # bytes that are looked at, where three times the last-level cache would be more


@cache
def measured_speeds(target: Target) -> Machine:
    """The best of short looks at each speed, about a tenth of a second once per process.

    Neighbours make a machine look slower than it is, so that the best of many short looks counts.
    """
    cores, large = min(_TEAM, default_threads()), min(3 * target.l3, _MOST)
    small = min(max(target.l3 // 8, 2 * target.l2), large // 8)
    peaks, usual = Peaks(target, large), machine(target)
    parts = max(1, large // _LOOK)
    flops = peaks.flops(1, looks=8)
    return Machine(
        flops=flops,
        pair_flops=flops * usual.pair_flops / usual.flops,
        bandwidth=max(
            peaks.read(large, cores, looks=parts, parts=parts),
            peaks.copy(large, cores, looks=parts, parts=parts),
        ),
        cache_bandwidth=peaks.copy(small, 1, looks=8),
        step=_LAUNCH + peaks.phase(cores, looks=4, phases=100),
        cache=float(target.l3),
    )
