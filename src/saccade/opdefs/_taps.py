"""Exact counts of the arithmetic that windows do: taps in the padding cost nothing."""

from __future__ import annotations

import numpy as np

from saccade.ir.expr import Expr, fold

__all__ = ["expr_flops", "gather_taps", "scatter_taps", "valid_taps"]


def valid_taps(
    size: int, windows: int, taps: int, stride: int, pad: int, dilation: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each window along one axis, how many of its taps fall on one of `size` elements."""
    at = np.arange(windows)[:, None] * stride - pad + np.arange(taps)[None, :] * dilation
    return ((at >= 0) & (at < size)).sum(axis=1, dtype=np.int64)


def gather_taps(size: int, windows: int, taps: int, stride: int, pad: int, dilation: int) -> int:
    """Valid taps of all windows along one axis, for an operator whose windows read."""
    return int(valid_taps(size, windows, taps, stride, pad, dilation).sum())


def scatter_taps(size: int, result: int, taps: int, stride: int, pad: int, dilation: int) -> int:
    """Valid taps along one axis, for an operator whose `size` elements each write a window of the result."""
    return int(valid_taps(result, size, taps, stride, pad, dilation).sum())


def expr_flops(expr: Expr) -> int:
    """Operators in an expression, each distinct subtree once, each counted as one operation."""
    seen: list[str] = []
    fold(expr, lambda _: None, lambda _: None, lambda op, _: seen.append(op))
    return len(seen)
