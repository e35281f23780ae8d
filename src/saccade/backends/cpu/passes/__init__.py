"""The CPU's passes: the device-independent ones between its own rewrites, one file each."""

from __future__ import annotations

from saccade import passes
from saccade.backends.cpu.passes import tell_sizes, widen_float16
from saccade.options import Options, Precision

__all__ = ["passes_of"]


def passes_of(options: Options) -> tuple[passes.Pass, ...]:
    """In order. What is float16 in the file is float32 from the first pass on."""
    shared = passes.BFLOAT16 if options.precision is Precision.BF16 else passes.STANDARD
    return (widen_float16.PASS, *shared, tell_sizes.PASS)
