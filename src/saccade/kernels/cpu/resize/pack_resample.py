"""Tables of `resize.resample`: what each position reads, as `opdefs.Resample` says."""

from __future__ import annotations

import numpy as np

from saccade.ir import Array
from saccade.opdefs._resample_numpy import AxisRule, axis_tables

__all__ = ["resample_spans", "resample_weights"]


def resample_spans(rule: AxisRule, before: int, after: int) -> Array:
    """Int32 [after, 2]: the first element, and how many there are."""
    tables = axis_tables(AxisRule(*rule), before, after)
    return np.stack([tables.first, tables.length], axis=1).astype(np.int32)


def resample_weights(rule: AxisRule, before: int, after: int) -> Array:
    """Float32 [after, most]: their weights."""
    return axis_tables(AxisRule(*rule), before, after).weights.astype(np.float32)
