"""Exact counts of the arithmetic that windows do: taps in the padding cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from saccade.ir.expr import Expr, fold
from saccade.ir.op import Array

__all__ = ["Windows", "expr_flops"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one axis: `taps` taps `dilation` apart, the first window at `-pad`."""

    taps: int
    stride: int
    pad: int
    dilation: int

    def valid(self, size: int, count: int) -> Array:
        """For each of `count` windows, how many of its taps fall on one of `size` elements."""
        first = np.arange(count)[:, None] * self.stride - self.pad
        at = first + np.arange(self.taps)[None, :] * self.dilation
        return np.asarray(np.count_nonzero((at >= 0) & (at < size), axis=1))

    def total(self, size: int, count: int) -> int:
        """Valid taps of all windows together."""
        return int(self.valid(size, count).sum())


@lru_cache(maxsize=4096)
def expr_flops(expr: Expr) -> int:
    """Operators in an expression, each distinct subtree once, each counted as one operation."""
    seen: list[str] = []
    fold(expr, lambda _: None, lambda _: None, lambda op, _: seen.append(op))
    return len(seen)
