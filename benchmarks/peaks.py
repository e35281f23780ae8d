"""What the machine can do at most: fp32 arithmetic from registers, and reading memory."""

from __future__ import annotations

from saccade.backends.cpu.runtime.peaks import Peaks
from saccade.backends.cpu.target import host_target

__all__ = ["measure"]

READ_BYTES = 256 << 20
LOOKS = 40


def measure(threads: int) -> dict[str, float]:
    """`gflops` (fp32, a multiply-add counts two) and `read_gbs` of `threads` cores together."""
    peaks = Peaks(host_target(), READ_BYTES)
    return {
        "gflops": peaks.flops(threads, LOOKS) / 1e3,
        "read_gbs": peaks.read(READ_BYTES, threads, LOOKS) / 1e3,
    }
