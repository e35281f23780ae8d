"""Attention: the scores of a product, their softmax, and the product with the values, as one step.

    s = MatMul(q, k), scale · s + mask in its epilogue or in a Pointwise behind it
    p = Softmax(s), or zeros where that is NaN            ->  y = Attention(q, k, v, mask)
    y = MatMul(p, v), or MatMul(v', p')

A mask that differs by windows is added to scores whose batches are split into images and windows,
between two `Move`s that are views: q, k and v are split so in their place. What each matrix of
scores is multiplied by, a factor of its own, multiplies q; a constant that q or k was multiplied by
in a step of its own is a part of the scale.

A `Move` that only reorders the axes of y afterwards, before it merges some, gets them in its order:
heads are stored beside each other, as the next product reads them, and the `Move` is a view. Of a
transposed y whose `Move` makes an image of it, heads are channels.

Left alone, with the reason (`refuse`): softmax along another axis, or its logarithm; scores or
weights that anyone else reads or the caller gets; products whose rows are stored as columns;
epilogues that do more than scale and add one operand; an epilogue of the second product that has
operands; masks of truth values, or that scores are repeated for; and what no kernel takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from saccade.backends.fusions.attention import Attention
from saccade.backends.fusions.attention_parts import (
    Context,
    Scores,
    Weighted,
    scores_of,
    swap_map,
    weights_of,
)
from saccade.ir import Dim, DType, Factor, Graph, IndexMap, Node, Value
from saccade.ir.compose_maps import compose
from saccade.ir.derived import derived
from saccade.ir.expr import arg, parse
from saccade.ir.index_map import transpose_map
from saccade.layout import Shapes, Taken
from saccade.opdefs import MatMul, Move, Pointwise, Softmax

__all__ = ["fuse_attention", "refuse"]

_TIMES = parse("mul($0, $1)")
_Axes = tuple[tuple[Value, int], ...]


@dataclass(frozen=True, slots=True)
class _Site:
    """One attention of a graph.

    Attributes:
        gone: The nodes in whose place it is.
        made: What takes their place, in order: the attention, and a `Move` that reads it or none;
            in front of it what makes its operands.
        sizes: For each value that is new, where its axes' sizes are known from.
    """

    gone: tuple[Node, ...]
    made: tuple[Node, ...]
    sizes: Mapping[Value, _Axes] = field(compare=False)

    @property
    def attention(self) -> Node:
        return next(node for node in self.made if isinstance(node.op, Attention))

    def shapes(self, shapes: Shapes) -> dict[Value, tuple[int, ...]]:
        """Those of its new values."""
        return {v: tuple(shapes[of][i] for of, i in axes) for v, axes in self.sizes.items()}


def fuse_attention(graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
    """The graph with every attention that a kernel takes in one step.

    Args:
        graph: The model.
        shapes: Of every value.
        taken: Whether a kernel takes a node.
    """
    chosen = tuple(
        site for site in _sites(graph) if taken(site.attention, {**shapes, **site.shapes(shapes)})
    )
    return _rewritten(graph, chosen) if chosen else graph


def refuse(graph: Graph, softmax: Node) -> str | None:
    """Why a softmax is no part of an attention, or None if it is."""
    found = _found(softmax, Context(graph))
    return found if isinstance(found, str) else None


def _found(softmax: Node, context: Context) -> tuple[Scores, Weighted] | str:
    op = softmax.op
    assert isinstance(op, Softmax)
    if op.log or op.axis != softmax.output.rank - 1:
        return "the logarithm is wanted" if op.log else f"softmax along axis {op.axis}"
    scores = scores_of(softmax, context)
    if isinstance(scores, str):
        return scores
    weights = weights_of(softmax, scores, context)
    return weights if isinstance(weights, str) else (scores, weights)


@derived
def _sites(graph: Graph) -> tuple[_Site, ...]:
    """Attentions whatever their sizes."""
    context = Context(graph)
    nodes = (node for node in graph.nodes if isinstance(node.op, Softmax))
    found = ((node, _found(node, context)) for node in nodes)
    return tuple(
        _SiteBuilder(node, *parts, context).site()
        for node, parts in found
        if not isinstance(parts, str)
    )


@dataclass
class _SiteBuilder:
    """One attention under construction.

    Attributes:
        softmax, scores, weights: What it is made of.
        context: Who makes and reads values.
        gone: See `_Site`.
        made: The same, so far.
        sizes: The same.
    """

    softmax: Node
    scores: Scores
    weights: Weighted
    context: Context
    gone: list[Node] = field(default_factory=list)
    made: list[Node] = field(default_factory=list)
    sizes: dict[Value, _Axes] = field(default_factory=dict)

    def site(self) -> _Site:
        """What the attention replaces, and by what."""
        scores, weights, last = self.scores, self.weights, self.weights.product
        product = scores.product
        assert isinstance(product.op, MatMul)
        (q, by_q), (k, by_k) = map(self._unscaled, product.inputs[:2])
        if scores.factor is not None:
            q = self._times(q, scores.factor)
        v = self._swapped(weights.values) if weights.transposed else weights.values
        if scores.apart:
            q, k, v = (self._split(value, i) for i, value in enumerate((q, k, v)))
        masks = () if scores.mask is None else (scores.mask,)
        op = Attention(
            scores.scale * by_q * by_k,
            transpose_k=not product.op.transpose_b,
            hidden=weights.hidden,
            epilogue=weights.epilogue,
        )
        self.gone += [*scores.nodes, self.softmax, *weights.nodes]
        order, index_map, read = self._order()
        if index_map is None:
            made = Node(replace(op, order=order), (q, k, v, *masks), last.outputs, last.name)
            return _Site(tuple(self.gone), (*self.made, made), self.sizes)
        axes = self._axes()
        ordered = tuple(axes[i] for i in order) or axes
        shape = tuple(of.shape[i] for of, i in ordered)
        heads = self._new(f"{last.output.name}/ordered", last.output.dtype, shape, ordered)
        attention = Node(replace(op, order=order), (q, k, v, *masks), (heads,), last.name)
        moved = Node(Move(index_map), (heads,), read.outputs, read.name)
        return _Site(tuple(self.gone), (*self.made, attention, moved), self.sizes)

    def _axes(self) -> _Axes:
        """Where the sizes of the result's axes are known from, before they are ordered."""
        y, apart = self.weights.product.output, self.scores.apart
        axes = [(y, i) for i in range(y.rank)]
        if self.weights.swapped:
            axes[-2:] = axes[:-3:-1]
        if not apart:
            return tuple(axes)
        split = next(n for n in self.scores.nodes if isinstance(n.op, Move)).output
        return ((split, 0), (split, 1), *axes[1:])

    def _order(self) -> tuple[tuple[int, ...], IndexMap | None, Node]:
        """Order of the result's axes, what is left to be moved behind it, and the node it ends."""
        last, scores = self.weights.product, self.scores
        y = last.output
        move = self.context.reader(y)
        after = move.op.map if move is not None and isinstance(move.op, Move) else None
        if self.weights.swapped:
            return self._image(move, after)
        merge = _merge_map((*scores.apart, *y.shape[1:])) if scores.apart else None
        if merge is not None and after is not None:
            composed = compose(merge, after)
            after = None if isinstance(composed, str) else composed
        ordered = None if after is None else _ordered(after)
        if ordered is not None and move is not None:
            self.gone.append(move)
            return *ordered, move
        return (), merge, last

    def _image(
        self, move: Node | None, after: IndexMap | None
    ) -> tuple[tuple[int, ...], IndexMap | None, Node]:
        """The same of a transposed result: heads are channels where it becomes an image."""
        last = self.weights.product
        rank = last.output.rank
        if move is None or after is None or move.output.rank != 4 or rank < 3:
            return (*range(rank - 2), rank - 1, rank - 2), None, last
        # Pixels, heads, channels of a head; the product has heads, channels, pixels. Where heads
        # have no axis, the first one is images.
        several = rank > 3
        order = (*range(rank - 3), rank - 2, rank - 3, rank - 1) if several else (0, 1, 2)
        axes = self._axes()
        stored = [axes[i][0].shape[axes[i][1]] for i in order]
        back = (*range(rank - 3), rank - 2, rank - 1, rank - 3) if several else (0, 2, 1)
        composed = compose(transpose_map(stored, back), after)
        if isinstance(composed, str):
            return order, transpose_map(stored, back), last
        self.gone.append(move)
        return order, composed, move

    def _unscaled(self, value: Value) -> tuple[Value, float]:
        """An operand before a step that multiplied it by a constant, and that constant."""
        producers, reader = self.context.producers, self.context.reader
        move = producers.get(value)
        if move is None or not isinstance(move.op, Move) or reader(value) is None:
            move = None
        read = value if move is None else move.inputs[0]
        pointwise = producers.get(read)
        if pointwise is None or not isinstance(pointwise.op, Pointwise) or reader(read) is None:
            return value, 1.0
        expr, (source, *others) = pointwise.op.expr, pointwise.inputs
        by = expr.args[1] if expr.op == "mul" and expr.args[0] == arg(0) else None
        if by is None or by.op != "const" or others or source.type != read.type:
            return value, 1.0
        if move is None:
            self.gone.append(pointwise)
            return source, by.value
        self.gone += [pointwise, move]
        axes = tuple((value, i) for i in range(value.rank))
        found = self._new(f"{value.name}/unscaled", value.dtype, value.shape, axes)
        self.made.append(Node(move.op, (source,), (found,), move.name))
        return found, by.value

    def _times(self, q: Value, factor: Value) -> Value:
        """The rows of q by what each matrix of scores is multiplied by."""
        op = Pointwise(_TIMES, DType.F32)
        axes = tuple((q, i) for i in range(q.rank))
        result = self._new(f"{self.softmax.name}/scaled", q.dtype, q.shape, axes)
        self.made.append(Node(op, (q, factor), (result,), self.scores.product.name))
        return result

    def _swapped(self, value: Value) -> Value:
        """A view of it with its last two axes the other way round."""
        rank = value.rank
        axes = tuple((value, i) for i in (*range(rank - 2), rank - 1, rank - 2))
        shape = tuple(value.shape[i] for _, i in axes)
        result = self._new(f"{self.softmax.name}/values", value.dtype, shape, axes)
        self.made.append(Node(Move(swap_map(value)), (value,), (result,), self.softmax.name))
        return result

    def _split(self, value: Value, number: int) -> Value:
        """Its batches split into images and windows."""
        split = next(n for n in self.scores.nodes if isinstance(n.op, Move)).output
        sizes = (*self.scores.apart, *value.shape[1:])
        index_map = IndexMap(
            (self.scores.apart, *((size,) for size in value.shape[1:])),
            tuple(Factor(size, i) for i, size in enumerate(sizes)),
            (1,) * len(sizes),
        )
        # One value may be several operands, of several attentions.
        near, known = self.weights.product, ((split, 0), (split, 1))
        axes = (*known, *((value, i) for i in range(1, value.rank)))
        result = self._new(f"{near.output.name}/split{number}", value.dtype, sizes, axes)
        self.made.append(Node(Move(index_map), (value,), (result,), near.name))
        return result

    def _new(self, name: str, dtype: DType, shape: tuple[Dim, ...], axes: _Axes) -> Value:
        result = Value(name, dtype, shape)
        # What is new itself is known from what is not.
        self.sizes[result] = tuple(
            self.sizes[of][i] if of in self.sizes else (of, i) for of, i in axes
        )
        return result


def _merge_map(shape: tuple[Dim, ...]) -> IndexMap:
    """Images and windows of a value brought together."""
    factors = tuple(Factor(size, i) for i, size in enumerate(shape))
    return IndexMap(tuple((size,) for size in shape), factors, (2, *(1,) * (len(shape) - 2)))


def _ordered(index_map: IndexMap) -> tuple[tuple[int, ...], IndexMap] | None:
    """Of a movement that reorders whole axes: their order, and what is left to do after that.

    None where it does anything else to them, or nothing.
    """
    axes = [i for i, group in enumerate(index_map.in_factors) if group]
    sizes = [group[0] for group in index_map.in_factors if len(group) == 1]
    # An axis that is split or repeated: more than another order.
    if len(sizes) != len(axes) or len(index_map.factors) != len(axes):
        return None
    sources = []
    for factor in index_map.factors:
        source = factor.source
        if source is None or (factor.start, factor.step) != (0, 1) or factor.size != sizes[source]:
            return None
        sources.append(source)
    # In order already: to merge neighbours is a view.
    if sources == sorted(sources):
        return None
    none = [i for i, group in enumerate(index_map.in_factors) if not group]
    order = (*none, *(axes[source] for source in sources))
    factors = tuple(replace(f, source=i) for i, f in enumerate(index_map.factors))
    groups = tuple(index_map.in_factors[i] for i in order)
    return order, replace(index_map, in_factors=groups, factors=factors)


@derived
def _rewritten(graph: Graph, sites: tuple[_Site, ...]) -> Graph:
    """The graph with attentions where the last of what they replace was: operands come before."""
    last = {site.gone[-1]: site.made for site in sites}
    gone = {node for site in sites for node in site.gone}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += last.get(node, () if node in gone else (node,))
    return replace(graph, nodes=tuple(nodes))
