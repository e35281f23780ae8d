"""Axes of matrix products of any rank: batch axes and rows merged into three."""

from __future__ import annotations

from saccade.kernels.base import View

__all__ = ["Axis", "batch_strides", "matrix_strides", "merged_axes"]

Axis = tuple[int, tuple[int, ...]]
"""An axis of a product: its size, and its stride in every operand (a, b, result, others)."""


def matrix_strides(view: View, transposed: bool) -> tuple[int, int]:
    """Strides of the two axes of the matrices, in the order of the product."""
    first, second = view.strides[-2:]
    return (second, first) if transposed else (first, second)


def batch_strides(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the batch axes, broadcast to those of a result of `shape`."""
    batch = View(view.dtype, view.shape[:-2], view.strides[:-2])
    return batch.broadcast_to(shape[:-2]).strides


def merged_axes(axes: list[Axis]) -> tuple[Axis, Axis, Axis] | None:
    """Batch axes and rows (last) with neighbours that step evenly in every operand made one.

    None when more than two batch axes are left.
    """
    merged = [axes[-1]]
    for size, steps in reversed(axes[:-1]):
        inner, inner_steps = merged[0]
        if size == 1:
            continue
        if all(s == inner * t for s, t in zip(steps, inner_steps, strict=True)):
            merged[0] = (size * inner, inner_steps)
        elif len(merged) == 1 and inner == 1 and steps[1] == 0:
            merged[0] = (size, steps)  # one row: the axis takes the place of the rows
        else:
            merged.insert(0, (size, steps))
    none = (1, (0,) * len(axes[-1][1]))
    merged = [none] * (3 - len(merged)) + merged
    return (merged[0], merged[1], merged[2]) if len(merged) == 3 else None
