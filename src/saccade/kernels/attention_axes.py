"""Attention of any rank over two batch axes: [n0, n1, L, D], [n0, n1, S, D] and [n0, n1, S, E]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from saccade.kernels.base import Call, View
from saccade.kernels.product_axes import Axis, batch_strides

if TYPE_CHECKING:
    from saccade.backends.fusions import Attention

__all__ = ["AttentionAxes", "heads_of"]

Steps = tuple[int, int, int, int]
"""Strides of two batch axes, rows and columns."""


class _BatchAxis(NamedTuple):
    """An axis: its size, the strides of q, k, v, y and the mask, and how many the mask has."""

    size: int
    steps: tuple[int, ...]
    again: int


@dataclass(frozen=True, slots=True)
class AttentionAxes:
    """A call of `Attention`.

    Attributes:
        batch: Sizes of the batch axes; either may be 1.
        rows: L.
        keys: S.
        head: D.
        width: E.
        q, v, y: Strides (n0, n1, row, column).
        k: The same as [n0, n1, S, D], however it is stored.
        mask: The same of the mask as [n0, n1, L, S], or None.
        again: How many of each batch axis the mask has, before it begins anew.
    """

    batch: tuple[int, int]
    rows: int
    keys: int
    head: int
    width: int
    q: Steps
    k: Steps
    v: Steps
    y: Steps
    mask: Steps | None
    again: tuple[int, int]

    @classmethod
    def of(cls, call: Call) -> AttentionAxes | None:
        """None when the batch axes do not merge into two."""
        op: Attention = call.op
        q, k, v = call.inputs[:3]
        y = _unordered(call.outputs[0], op.order)
        k = _swapped(k) if op.transpose_k else k
        views = [q, k, v, y]
        if len(call.inputs) > 3:
            scores = (*y.shape[:-2], q.shape[-2], k.shape[-2])
            views.append(call.inputs[3].broadcast_to(scores))
        batch = [batch_strides(view, y.shape) for view in views]
        axes = _merged([(n, tuple(s[i] for s in batch)) for i, n in enumerate(y.shape[:-2])])
        if len(axes) > 2:
            return None
        none = _BatchAxis(1, (0,) * len(views), 1)
        first, second = [none] * (2 - len(axes)) + axes
        steps = [
            (first.steps[i], second.steps[i], view.strides[-2], view.strides[-1])
            for i, view in enumerate(views)
        ]
        mask = steps[4] if len(steps) > 4 else None
        by_q, by_k, by_v, by_y = steps[:4]
        sizes = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
        return cls(
            (first.size, second.size), *sizes, by_q, by_k, by_v, by_y, mask,
            (first.again, second.again),
        )  # fmt: skip

    @property
    def matrices(self) -> int:
        """How many heads there are, in all images."""
        return self.batch[0] * self.batch[1]


def heads_of(call: Call) -> AttentionAxes:
    """The axes of a call that is supported."""
    axes = AttentionAxes.of(call)
    assert axes is not None  # `supports` was asked
    return axes


def _swapped(view: View) -> View:
    """With the last two axes exchanged."""
    *batch, rows, columns = view.shape
    *steps, down, along = view.strides
    return View(view.dtype, (*batch, columns, rows), (*steps, along, down))


def _unordered(view: View, order: Sequence[int]) -> View:
    """The result before its axes were ordered."""
    if not order:
        return view
    at = [order.index(i) for i in range(len(order))]
    return View(view.dtype, tuple(view.shape[i] for i in at), tuple(view.strides[i] for i in at))


def _merged(axes: Sequence[Axis]) -> list[_BatchAxis]:
    """Axes of more than one element, neighbours that step evenly in every operand made one.

    A mask may begin anew instead, once.
    """
    merged: list[_BatchAxis] = []
    for size, steps in reversed(axes):
        if size == 1:
            continue
        inner = merged[0] if merged else None
        if inner is None or not _even(steps[:4], inner.size, inner.steps[:4]):
            merged.insert(0, _BatchAxis(size, steps, size))
        elif _even(steps[4:], inner.size, inner.steps[4:]) and inner.again == inner.size:
            merged[0] = _BatchAxis(size * inner.size, inner.steps, size * inner.size)
        elif steps[4] == 0:
            merged[0] = _BatchAxis(size * inner.size, inner.steps, inner.again)
        else:
            merged.insert(0, _BatchAxis(size, steps, size))
    return merged


def _even(outer: Sequence[int], size: int, inner: Sequence[int]) -> bool:
    return all(s == size * t for s, t in zip(outer, inner, strict=True))
