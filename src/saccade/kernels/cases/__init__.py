"""Calls that every device's kernels are held against: a list for each family.

A family is the first part of its kernels' names (`conv2d.winograd`), on every device. Operators
that one device adds to `opdefs` have their cases there (`saccade.backends.cpu.fusions.cases`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from saccade.kernels.cases import (
    conv2d,
    conv_transpose2d,
    deform,
    matmul,
    movement,
    nms,
    norm,
    normalize,
    pointwise,
    pool,
    recurrent,
    reduce,
    resize,
    roi,
    sample,
    select,
    softmax,
)
from saccade.kernels.cases.base import Case

__all__ = ["CASES"]

CASES: Mapping[str, tuple[Case, ...]] = MappingProxyType(
    {
        "conv2d": conv2d.CASES,
        "conv_transpose2d": conv_transpose2d.CASES,
        "deform": deform.CASES,
        "matmul": matmul.CASES,
        "movement": (*movement.CASES, *select.SCATTERS),
        "nms": nms.CASES,
        "norm": norm.CASES,
        "normalize": normalize.CASES,
        "pointwise": pointwise.CASES,
        "pool": pool.CASES,
        "recurrent": recurrent.CASES,
        "reduce": reduce.CASES,
        "resize": resize.CASES,
        "roi": roi.CASES,
        "sample": sample.CASES,
        "select": select.CASES,
        "softmax": softmax.CASES,
    }
)
