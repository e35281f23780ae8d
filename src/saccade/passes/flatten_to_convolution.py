"""A matrix product over a flattened feature map is a convolution whose window is the feature map.

    MatMul(Move [N, C, H, W] -> [N, C·H·W], w [C·H·W, K])
        ->  Move [N, K, 1, 1] -> [N, K] of Conv2d(x, w [K, C, H, W])

so that a feature map stored channels last need not be transposed first (VGG's first Gemm). Must not
touch: 1x1 feature maps (their flattening is free), weights that are not constants, dims that are
    not
known, epilogue operands other than constants per channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.ir import Array, Node, Value
from saccade.ir.compose_maps import is_view
from saccade.ir.reshape_maps import reshape
from saccade.opdefs import Conv2d, MatMul, Move
from saccade.passes._editor import Editor
from saccade.passes._operands import channel_vector, epilogue_operands
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _FlattenMatch:
    product: Node
    image: Value
    window: tuple[int, int, int]


def match(editor: Editor, node: Node) -> _FlattenMatch | None:
    """A matrix product over a flattened feature map of more than one pixel."""
    if not isinstance(node.op, MatMul) or node.op.transpose_a:
        return None
    move = editor.producer(node.inputs[0])
    if move is None or not isinstance(move.op, Move) or not is_view(move.op.map):
        return None
    image = move.inputs[0]
    if image.rank != 4 or move.output.rank != 2 or image.shape[0] != move.output.shape[0]:
        return None
    c, h, w = image.shape[1:]
    if not (isinstance(c, int) and isinstance(h, int) and isinstance(w, int)) or h * w == 1:
        return None
    return _FlattenMatch(node, image, (c, h, w))


def refuse(editor: Editor, found: _FlattenMatch) -> str | None:
    """See the cases above."""
    weights = found.product.inputs[1]
    if editor.constant(weights) is None:
        return "the weights are not constant"
    if weights.rank != 2:
        return "there is a matrix of weights per batch"
    if not weights.dtype.is_float:
        return "the arithmetic is not floating point"
    for value in epilogue_operands(found.product):
        array = editor.constant(value)
        if array is None or channel_vector(array, 2, 1) is None:
            return f"the epilogue operand %{value.name} is not constant per channel"
    return None


def rewrite(editor: Editor, found: _FlattenMatch) -> None:
    """A convolution, and the free movement of its one pixel."""
    product, op = found.product, found.product.op
    assert isinstance(op, MatMul)
    matrix = editor.constant(product.inputs[1])
    assert matrix is not None
    rows = matrix if op.transpose_b else matrix.T
    weights = editor.add_constant(rows.reshape(-1, *found.window), product.inputs[1].name)
    operands = [_as_bias(editor, value) for value in epilogue_operands(product)]
    convolution = Conv2d(epilogue=op.epilogue)
    pixel = editor.emit(product, convolution, (found.image, weights, *operands))
    back = reshape(pixel.shape, product.output.shape)
    assert back is not None
    editor.replace(product, Move(back), (pixel,))


def _as_bias(editor: Editor, value: Value) -> Value:
    array: Array | None = editor.constant(value)
    assert array is not None
    return editor.add_constant(array.reshape(1, -1, 1, 1), value.name)


PASS = Pass(
    "flatten_to_convolution",
    (Rule(match, refuse, rewrite),),
    after=("compose_moves", "fuse_epilogue"),
)
