"""Axes of matrix products of any rank: batch axes and rows merged into three."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.kernels.base import Call, View

__all__ = ["Axis", "MergedProduct", "batch_strides", "merged_product"]

Axis = tuple[int, tuple[int, ...]]
"""An axis of a product: its size, and its stride in every operand (a, b, result, others)."""


def _matrix_strides(view: View, transposed: bool) -> tuple[int, int]:
    """Strides of the two axes of the matrices, in the order of the product."""
    first, second = view.strides[-2:]
    return (second, first) if transposed else (first, second)


def batch_strides(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the batch axes, broadcast to those of a result of `shape`."""
    batch = View(view.dtype, view.shape[:-2], view.strides[:-2])
    return batch.broadcast_to(shape[:-2]).strides


def _merged_axes(axes: list[Axis]) -> tuple[Axis, Axis, Axis] | None:
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


@dataclass(frozen=True, slots=True)
class MergedProduct:
    """A call of `MatMul` over two batch axes and rows.

    Attributes:
        axes: The batch axes and the rows, with strides of a, b, the result, the other operands.
        inner: K, the summed axis.
        columns: N.
        a_k: Stride of a along K.
        b: Strides of b along K and N.
        along: Strides along N of the result, then of the other operands.
    """

    axes: tuple[Axis, Axis, Axis]
    inner: int
    columns: int
    a_k: int
    b: tuple[int, int]
    along: tuple[int, ...]

    def image(self, view: View, place: int) -> View:
        """The result (place 0) or another operand as images [b0, N, b1, M]."""
        (n0, s0), (n1, s1), (rows, sm) = self.axes
        i = place + 2  # a and b come first
        strides = (s0[i], self.along[place], s1[i], sm[i])
        return View(view.dtype, (n0, self.columns, n1, rows), strides)


def merged_product(call: Call, transposed: tuple[bool, bool]) -> MergedProduct | None:
    """The axes of a call; None when the batch axes do not merge into two.

    Args:
        call: Of `MatMul`.
        transposed: Whether the matrices of a and of b are.
    """
    a, b, *operands = call.inputs
    out = call.outputs[0]
    shape = out.shape
    a_m, a_k = _matrix_strides(a, transposed[0])
    others = [out.strides, *(view.broadcast_to(shape).strides for view in operands)]
    # Rows of the result are not b's: 0 lets batch axes that share b merge into the rows.
    steps = [(*batch_strides(a, shape), a_m), (*batch_strides(b, shape), 0)]
    steps += [strides[:-1] for strides in others]
    axes = _merged_axes([(n, tuple(s[i] for s in steps)) for i, n in enumerate(shape[:-1])])
    if axes is None:
        return None
    inner = a.shape[-2 if transposed[0] else -1]
    b_strides = _matrix_strides(b, transposed[1])
    along = tuple(strides[-1] for strides in others)
    return MergedProduct(axes, inner, shape[-1], a_k, b_strides, along)
