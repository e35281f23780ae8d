"""The passes of graphs for GPUs: the device-independent ones, and those that pay on GPUs alone."""

from __future__ import annotations

from saccade import passes
from saccade.backends.cuda.passes import fuse_gathers, sink_transposes, tell_numbers
from saccade.options import Options, Precision
from saccade.passes import compose_moves, fold_sizes, fuse_epilogue

__all__ = ["passes_of"]

_PASSES = {Precision.BF16: passes.BFLOAT16, Precision.FP16: passes.FLOAT16}
_OWN = (sink_transposes.PASS, compose_moves.PASS, fuse_epilogue.PASS)
"""Once products have their epilogues: movements that meet, and what comes behind them."""


def passes_of(options: Options) -> tuple[passes.Pass, ...]:
    """In order."""
    base = _PASSES.get(options.precision, passes.STANDARD)
    base = tuple(fold_sizes.GRIDS if one is fold_sizes.PASS else one for one in base)
    at = base.index(fuse_epilogue.PASS) + 1
    return (*base[:at], *_OWN, *base[at:], fuse_gathers.PASS, tell_numbers.PASS)
