"""Samples of images that are weighed and added up are no intermediates.

    s_l = GridSample(x_l, g_l)                    [N·heads, C, Q, P_l], for each image l
    Move(Reduce(Concat(s_0, …) · w, sum over places))   ->   WeightedSamples(x…, g…, w)

That is how exporters write multi-scale deformable attention: heads are images, and the last `Move`
makes channels of them. Images, grids and weights are read with heads as an axis of their own, by
movements that are composed with those in front of them, which leaves views of what the products
before it gave.

Must not touch: samples or sums that others read, other modes and paddings, weights that differ
between channels, and what becomes of the sums if heads are not made channels of.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.ir import Dim, Factor, IndexMap, Node, Value
from saccade.ir.compose_maps import compose, is_view, same_map
from saccade.ir.dim import floordiv
from saccade.ir.expr import IDENTITY, parse
from saccade.opdefs import Concat, GridSample, Move, Pointwise, Reduce, WeightedSamples
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_PRODUCTS = (parse("mul($0, $1)"), parse("mul($1, $0)"))


@dataclass(frozen=True, slots=True)
class _SampleSum:
    """What is fused.

    Attributes:
        move: The last node, which makes channels of the heads.
        sums: The sums over places.
        product: Samples by weights.
        weights: [N·heads, 1, Q, places].
        samples: Those of each image, and what puts them beside each other.
        heads: How many there are.
    """

    move: Node
    sums: Node
    product: Node
    weights: Value
    samples: tuple[Node, ...]
    between: tuple[Node, ...]
    heads: int


def match(editor: Editor, node: Node) -> _SampleSum | None:
    """Channels of heads that are sums of weighted samples."""
    sums = editor.producer(node.inputs[0]) if isinstance(node.op, Move) else None
    if sums is None or not isinstance(sums.op, Reduce) or sums.inputs[0].rank != 4:
        return None
    op = sums.op
    if (op.kind, op.axes, op.keepdims, op.epilogue) != ("sum", (3,), False, IDENTITY):
        return None
    product = editor.producer(sums.inputs[0])
    if product is None or not isinstance(product.op, Pointwise) or len(product.inputs) != 2:
        return None
    for value, weights in (product.inputs, product.inputs[::-1]):
        # Samples that are repeated for weights would have to be first.
        found = _samples(editor, value) if value.shape == product.output.shape else None
        if product.op.expr in _PRODUCTS and found is not None:
            heads = _heads(node, sums.output)
            return _SampleSum(node, sums, product, weights, *found, heads) if heads else None
    return None


def _samples(editor: Editor, value: Value) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
    """The samples of each image that a value is made of, along its last axis, and what makes it."""
    joint = editor.producer(value)
    if joint is not None and isinstance(joint.op, GridSample):
        return ((joint,), ()) if value.rank == 4 else None
    between = list[Node]()
    # Places of images stacked, then counted through.
    stacked = joint is not None and isinstance(joint.op, Move)
    if joint is not None and isinstance(joint.op, Move):
        whole = joint.inputs[0].shape
        if not is_view(joint.op.map) or len(whole) != 5 or whole[:3] != value.shape[:3]:
            return None
        between.append(joint)
        joint = editor.producer(joint.inputs[0])
    if joint is None or joint.op != Concat(3):
        return None
    between.append(joint)
    samples = list[Node]()
    for part in joint.inputs:
        maker = editor.producer(part)
        if maker is not None and stacked and isinstance(maker.op, Move):
            one = part.rank == 5 and part.shape[3] == 1 and is_view(maker.op.map)
            between.append(maker)
            maker = editor.producer(maker.inputs[0]) if one else None
        elif stacked:
            return None
        if maker is None or not isinstance(maker.op, GridSample) or maker.output.rank != 4:
            return None
        samples.append(maker)
    return tuple(samples), tuple(between)


def _heads(move: Node, sums: Value) -> int:
    """Of how many heads a movement makes channels; 0 if it does something else."""
    assert isinstance(move.op, Move)
    each, whole = sums.shape[1], move.output.shape[-1]
    if not isinstance(each, int) or not isinstance(whole, int) or not each or whole % each:
        return 0
    heads = whole // each
    batch, queries = floordiv(sums.shape[0], heads), sums.shape[2]
    # [N·heads, C, Q] to [N, Q, heads·C].
    wanted = _regrouped([(batch, heads), (each,), (queries,)], (0, 3, 1, 2), (1, 1, 2))
    return heads if same_map(move.op.map, wanted) else 0


def _regrouped(
    groups: list[tuple[Dim, ...]], order: tuple[int, ...], out: tuple[int, ...]
) -> IndexMap:
    """Axes split into factors, these in another order, and some of them merged."""
    sizes = [size for group in groups for size in group]
    return IndexMap(tuple(groups), tuple(Factor(sizes[i], i) for i in order), out)


def refuse(editor: Editor, found: _SampleSum) -> str | None:
    """See the cases above."""
    ops = [node.op for node in found.samples if isinstance(node.op, GridSample)]
    if any((op.mode, op.padding) != ("linear", "zeros") for op in ops):
        return "samples that are not linear with zeros outside"
    if len({op.aligned for op in ops}) > 1:
        return "images whose corners are aligned and others"
    if any(node.output.dtype is not found.weights.dtype for node in found.samples):
        return "samples and weights of different types"
    whole, weights = found.product.output.shape, found.weights.shape
    if len(weights) != 4 or weights[1] != 1 or weights[::2] != whole[::2] or weights[3] != whole[3]:
        return "weights that differ between channels, or are repeated"
    parts = (found.sums, found.product, *found.between, *found.samples)
    if not all(editor.single_use(node.output) for node in parts):
        return "samples or sums are also read elsewhere"
    return None


def rewrite(editor: Editor, found: _SampleSum) -> None:
    """Sample, weigh and add up at once."""
    heads = found.heads
    batch, queries = floordiv(found.weights.shape[0], heads), found.weights.shape[2]
    head = (batch, heads)
    images, grids = list[Value](), list[Value]()
    for node in found.samples:
        x, grid = node.inputs
        _, c, h, w = x.shape
        image = _regrouped([head, (c,), (h,), (w,)], (0, 1, 2, 3, 4), (1, 2, 1, 1))
        images.append(_moved(editor, found.move, x, image))
        points = grid.shape[2]
        places = _regrouped([head, (queries,), (points,), (2,)], (0, 2, 1, 3, 4), (1,) * 5)
        grids.append(_moved(editor, found.move, grid, places))
    spread = [head, (1,), (queries,), (found.weights.shape[3],)]
    weights = _moved(
        editor, found.move, found.weights, _regrouped(spread, (0, 2, 3, 1, 4), (1, 2, 1, 1))
    )
    first = found.samples[0].op
    assert isinstance(first, GridSample)
    op = WeightedSamples(len(images), heads, first.aligned)
    editor.replace(found.move, op, (*images, *grids, weights))


def _moved(editor: Editor, near: Node, value: Value, index_map: IndexMap) -> Value:
    """A movement of a value; one with that which made it, if that can be."""
    maker = editor.producer(value)
    if maker is not None and isinstance(maker.op, Move):
        composed = compose(maker.op.map, index_map)
        if isinstance(composed, IndexMap):
            return editor.emit(near, Move(composed), maker.inputs)
    return editor.emit(near, Move(index_map), (value,))


PASS = Pass("fuse_samples", (Rule(match, refuse, rewrite),), after=("compose_moves",))
