"""Convolutions whose weights are not all finite make the products that the model says, no others.

    Conv2d(x, w) with padding            ->  Conv2d(Pad(x, zeros), w), not finite
    Conv2d(x, w), ConvTranspose2d(x, w)  ->  the same, not finite

Zero times infinity is NaN, and so it matters whether a tap in the padding is a product: ONNX says
that it is, kernels choose what is faster for a tile, and tiles depend on the team. Padding that is
written out leaves no choice. Last of all, as weights are folded until then. Must not touch: finite
weights, in bfloat16 too; weights that are not known; one tap without padding, which meets no zeros
but the feature map's own.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.ir import Array, Node, Value
from saccade.opdefs import Conv2d, ConvTranspose2d, Pad
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_LARGEST = float.fromhex("0x1.fep127")
"""The largest bfloat16; what is larger may round to infinity."""


def match(editor: Editor, node: Node) -> Node | None:
    """A convolution that is taken to have finite weights, and has not, where that matters."""
    op = node.op
    if not isinstance(op, Conv2d | ConvTranspose2d) or not op.finite:
        return None
    # One tap meets the elements that there are, in any kernel.
    if isinstance(op, Conv2d) and node.inputs[1].shape[2:] == (1, 1) and not any(op.padding):
        return None
    weights = editor.constant(node.inputs[1])
    return None if weights is None or _finite(weights) else node


def _finite(array: Array) -> bool:
    # A NaN is the largest and the smallest, and not within anything.
    return array.size == 0 or bool(float(array.max()) <= _LARGEST >= -float(array.min()))


def refuse(_editor: Editor, _found: Node) -> str | None:
    """Nothing is in the way."""
    return None


def rewrite(editor: Editor, node: Node) -> None:
    """Say so, and write the padding out."""
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Conv2d | ConvTranspose2d)
    if isinstance(op, Conv2d) and any(op.padding):
        x = _padded(editor, node, op)
        op = replace(op, padding=(0, 0, 0, 0))
    editor.replace(node, replace(op, finite=False), (x, *node.inputs[1:]))


def _padded(editor: Editor, node: Node, conv: Conv2d) -> Value:
    top, left, bottom, right = conv.padding
    pads = ((0, 0), (0, 0), (top, bottom), (left, right))
    return editor.emit(node, Pad(pads), node.inputs[:1], node.inputs[0].name)


PASS = Pass(
    "keep_infinities",
    (Rule(match, refuse, rewrite),),
    after=("fold_padding", "fold_scale_shift", "fold_factors", "fuse_prologue"),
)
