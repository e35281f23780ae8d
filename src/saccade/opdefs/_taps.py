"""Exact counts of the arithmetic that windows do: taps in the padding cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from saccade.ir.expr import Expr, fold
from saccade.ir.op import Array

__all__ = ["AxisWindows", "expr_flops", "expr_length"]


@dataclass(frozen=True, slots=True)
class AxisWindows:
    """Windows along one axis: `taps` taps `dilation` apart, the first window at `-pad`."""

    taps: int
    stride: int
    pad: int
    dilation: int

    def valid(self, size: int, count: int) -> Array:
        """For each of `count` windows, how many of its taps fall on one of `size` elements."""
        first = np.arange(count) * self.stride - self.pad
        low = np.maximum(0, -(first // self.dilation))
        high = np.minimum(self.taps - 1, (size - 1 - first) // self.dilation)
        return np.asarray(np.maximum(0, high - low + 1))

    def total(self, size: int, count: int) -> int:
        """Valid taps of all windows together."""
        return int(self.valid(size, count).sum())


@lru_cache(maxsize=4096)
def expr_length(expr: Expr) -> int:
    """Operators, operands and literals of an expression as it is written, shared parts repeated."""
    return fold(expr, lambda _: 1, lambda _: 1, lambda _, parts: 1 + sum(parts))


@lru_cache(maxsize=4096)
def expr_flops(expr: Expr) -> int:
    """Operators in an expression, each distinct subtree once, each counted as one operation."""
    seen: list[str] = []
    fold(expr, lambda _: None, lambda _: None, lambda op, _: seen.append(op))
    return len(seen)
