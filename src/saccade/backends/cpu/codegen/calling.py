"""Sizes of the calling convention, for those who call kernels but emit none."""

from __future__ import annotations

import struct

__all__ = ["CONTEXT_WORDS", "COUNTER_WORDS", "real_word"]

CONTEXT_WORDS = 6
"""What every thread of a phase is told, see `emitter.BASES`."""
COUNTER_WORDS = 8
"""Words from one thread's counter to the next one's: a cache line."""


def real_word(value: float) -> int:
    """The integer parameter that `KernelBuilder.real` reads as this number."""
    word: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return word
