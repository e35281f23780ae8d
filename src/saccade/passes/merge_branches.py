"""Sums of convolutions of one image are one convolution.

    conv(x, w) + conv(x, v)   ->   conv(x, w + v)            where v's taps are some of w's
    conv(x, w) + (s·x + t)    ->   conv(x, w + diag(s)) + t  one s, t per channel

Networks that are trained with branches to be merged (RepVGG, MobileOne, RT-DETR, YOLO 9) are often
exported with them. Computed in float64, stored in the weights' type.

Must not touch: branches that others read too; weights that are not constants; convolutions that
differ in stride, groups or distance of taps, or none of whose windows has the other's taps;
epilogues that are more than a scale and a shift; what is not finite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saccade.ir import Array, Dim, Node, Value
from saccade.ir import expr as e
from saccade.opdefs import Conv2d, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule
from saccade.passes.fold_scale_shift import own_affine, scale_shift, with_bias

__all__ = ["PASS"]

_SUM = e.apply("add", e.arg(0), e.arg(1))


@dataclass(frozen=True, slots=True)
class _Branches:
    """A convolution, and what else of its image is added to it.

    Attributes:
        total: The sum.
        kept: The convolution that has all taps.
        other: Another one, or a scale and a shift of the image.
        at: The first of its taps among those of the convolution.
    """

    total: Node
    kept: Node
    other: Node
    at: tuple[int, int]


def match(editor: Editor, node: Node) -> _Branches | None:
    """A sum of two branches that read the same image."""
    if not isinstance(node.op, Pointwise) or node.op.expr != _SUM or len(node.inputs) != 2:
        return None
    makers = [editor.producer(value) for value in node.inputs]
    for kept, other in (makers, makers[::-1]):
        if kept is None or other is None or not isinstance(kept.op, Conv2d):
            continue
        x = kept.inputs[0]
        if kept.output.type != node.output.type or other.output.type != node.output.type:
            continue
        at = _place(kept, other, x)
        if at is not None:
            return _Branches(node, kept, other, at)
    return None


def _place(kept: Node, other: Node, x: Value) -> tuple[int, int] | None:
    """Where a branch's taps are among those of a convolution; None if they are not."""
    op = kept.op
    assert isinstance(op, Conv2d)
    taps, padding = kept.inputs[1].shape[2:], (0, 0)
    their: tuple[Dim, ...] = (1, 1)
    if isinstance(other.op, Conv2d):
        if other.inputs[0] is not x or other.op.stride != op.stride:
            return None
        their, padding = other.inputs[1].shape[2:], other.op.padding[:2]
        apart = zip(their, other.op.dilation, op.dilation, strict=True)
        if any(n != 1 and theirs != ours for n, theirs, ours in apart):
            return None
    elif not isinstance(other.op, Pointwise) or x not in other.inputs or op.stride != (1, 1):
        return None
    found = []
    for ours, n, pad, added, step in zip(
        taps, their, op.padding[:2], padding, op.dilation, strict=True
    ):
        at, between = divmod(pad - added, step)
        if between or at < 0 or not isinstance(ours, int) or not isinstance(n, int):
            return None
        if at + n > ours:
            return None
        found.append(at)
    return found[0], found[1]


def refuse(editor: Editor, found: _Branches) -> str | None:
    """See the cases above."""
    parts = [found.kept] + [found.other] * isinstance(found.other.op, Conv2d)
    if not all(editor.single_use(node.output) for node in (found.kept, found.other)):
        return "a branch is also read elsewhere"
    for node in parts:
        op = node.op
        assert isinstance(op, Conv2d)
        if editor.constant(node.inputs[1]) is None:
            return "the weights are not constant"
        if op.prologue != e.IDENTITY or op.store is not None or op.integral:
            return "a convolution that does more than to add up"
        if own_affine(editor, node) is None:
            return "the epilogue of a branch is not a scale and a shift"
    if len({node.inputs[1].shape[1] for node in parts}) > 1:
        return "branches of other groups"
    known: list[Array | None] = [editor.constant(node.inputs[1]) for node in parts]
    for node in parts:
        known += own_affine(editor, node) or ()
    if len(parts) < 2:
        pair = scale_shift(editor, found.other, found.kept.inputs[0], 1)
        if pair is None:
            return "a branch that is not a scale and a shift"
        known += pair
    if not all(np.isfinite(array).all() for array in known if array is not None):
        return "a weight, a scale or a shift is not finite"
    return None


def _merged(editor: Editor, found: _Branches) -> tuple[Array, Array]:
    """Weights and bias of all, in float64."""
    own, bias = _scaled(editor, found.kept)
    total = own.copy()
    top, left = found.at
    if isinstance(found.other.op, Conv2d):
        added, shift = _scaled(editor, found.other)
    else:
        pair = scale_shift(editor, found.other, found.kept.inputs[0], 1)
        assert pair is not None
        scale, shift = pair
        added = _diagonal(scale, own.shape)
    _, _, r, s = added.shape
    total[:, :, top : top + r, left : left + s] += added
    return total, bias + shift


def _scaled(editor: Editor, node: Node) -> tuple[Array, Array]:
    """Weights with what the epilogue scales them by, and the bias."""
    weights, affine = editor.constant(node.inputs[1]), own_affine(editor, node)
    assert weights is not None and affine is not None
    scale, bias = affine
    return weights.astype(np.float64) * scale.reshape(-1, 1, 1, 1), bias


def _diagonal(scale: Array, shape: tuple[int, ...]) -> Array:
    """Filters of one tap that scale each channel; `shape` are a convolution's with its groups."""
    k, c, *_ = shape
    found = np.zeros((k, c, 1, 1))
    channels = np.arange(k)
    found[channels, channels % c, 0, 0] = scale  # one number may be all channels'
    return found


def rewrite(editor: Editor, found: _Branches) -> None:
    """Add up weights and biases."""
    weights, bias = _merged(editor, found)
    value = found.kept.inputs[1]
    merged = editor.add_constant(weights.astype(value.dtype.numpy), value.name)
    op, operands = with_bias(editor, found.kept, bias)
    editor.replace(found.total, op, (found.kept.inputs[0], merged, *operands))


PASS = Pass("merge_branches", (Rule(match, refuse, rewrite),), after=("fold_scale_shift",))
