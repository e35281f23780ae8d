"""The passes of graphs for GPUs: float16 stays what it is."""

from __future__ import annotations

from saccade import passes
from saccade.options import Options, Precision

__all__ = ["passes_of"]

_PASSES = {Precision.BF16: passes.BFLOAT16, Precision.FP16: passes.FLOAT16}


def passes_of(options: Options) -> tuple[passes.Pass, ...]:
    """In order."""
    return _PASSES.get(options.precision, passes.STANDARD)
