"""Attention: the scores of a product, their softmax, and the product with the values, as one step.

    s = MatMul(q, k), scale · s + mask in its epilogue or in a Pointwise behind it
    p = Softmax(s)                                        ->  y = Attention(q, k, v, mask)
    y = MatMul(p, v)

A `Move` that only reorders the axes of y afterwards, before it merges some, gets them in its order:
heads are stored beside each other, as the next product reads them, and the `Move` is a view.

Left alone, with the reason (`refuse`): softmax along another axis, or its logarithm; scores or
weights that anyone else reads or the caller gets; products whose rows are stored as columns;
epilogues that do more than scale and add one operand; an epilogue of the second product; masks of
truth values, or that scores are repeated for; and what no kernel takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from saccade.backends.cuda.fusions.attention import Attention
from saccade.ir import Graph, IndexMap, Node, Value
from saccade.ir.derived import derived
from saccade.ir.expr import IDENTITY, Expr, arg
from saccade.layout import Shapes, Taken
from saccade.opdefs import MatMul, Move, Pointwise, Softmax

__all__ = ["fuse_attention", "refuse"]


@dataclass(frozen=True, slots=True)
class _Site:
    """One attention of a graph.

    Attributes:
        gone: The nodes in whose place it is.
        made: What takes their place, in order: the attention, and a `Move` that reads it or none.
    """

    gone: tuple[Node, ...]
    made: tuple[Node, ...]

    @property
    def attention(self) -> Node:
        return self.made[0]


def fuse_attention(graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
    """The graph with every attention that a kernel takes in one step.

    Args:
        graph: The model.
        shapes: Of every value.
        taken: Whether a kernel takes a node.
    """
    chosen = tuple(
        site
        for site in _sites(graph)
        if taken(site.attention, {**shapes, **_new_shapes(site, shapes)})
    )
    return _rewritten(graph, chosen) if chosen else graph


def refuse(graph: Graph, softmax: Node) -> str | None:
    """Why a softmax is no part of an attention, or None if it is."""
    return _refusal(softmax, _Context(graph))


class _Context:
    """Who makes and who reads the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.producers, self.uses = graph, graph.producers(), graph.uses()

    def reader(self, value: Value) -> Node | None:
        """The only node that reads a value, if the caller does not get it."""
        readers = self.uses[value]
        return readers[0] if len(readers) == 1 and value not in self.graph.outputs else None


@dataclass(frozen=True, slots=True)
class _Scores:
    """What a softmax is taken of.

    Attributes:
        nodes: What makes it: the product first.
        scale: Of the product's sums.
        mask: What is added to them.
    """

    nodes: tuple[Node, ...]
    scale: float
    mask: Value | None

    @property
    def product(self) -> Node:
        return self.nodes[0]


def _refusal(softmax: Node, context: _Context) -> str | None:
    op = softmax.op
    assert isinstance(op, Softmax)
    if op.log or op.axis != softmax.output.rank - 1:
        return "the logarithm is wanted" if op.log else f"softmax along axis {op.axis}"
    scores = _scores(softmax, context)
    if isinstance(scores, str):
        return scores
    values = context.reader(softmax.output)
    if values is None:
        return "weights are read elsewhere"
    return _refuse_values(values, softmax.output)


def _scores(softmax: Node, context: _Context) -> _Scores | str:
    """The scores, or why they are none."""
    last = context.producers.get(softmax.inputs[0])
    behind = last is not None and isinstance(last.op, Pointwise)
    product = _product_among(last.inputs, context) if last is not None and behind else last
    if last is None or product is None or not isinstance(product.op, MatMul):
        return "scores are not a product"
    nodes = (product, last) if behind else (product,)
    readers = (*nodes[1:], softmax)
    # For another reader they would have to be stored all the same.
    if any(context.reader(n.output) is not r for n, r in zip(nodes, readers, strict=True)):
        return "scores are read elsewhere"
    if product.op.transpose_a:
        return "q is transposed"
    return _scaled(nodes)


def _product_among(operands: tuple[Value, ...], context: _Context) -> Node | None:
    """The first operand's maker that is a product."""
    makers = (context.producers.get(value) for value in operands)
    return next((node for node in makers if node is not None and isinstance(node.op, MatMul)), None)


def _scaled(nodes: tuple[Node, ...]) -> _Scores | str:
    """Scale and mask of a product and what follows it, or why there are none."""
    product = nodes[0]
    assert isinstance(product.op, MatMul)
    scale = 1.0
    mask: Value | None = None
    # For each: the expression, its operands, and which of these is the product.
    steps = [(product.op.epilogue, (product.output, *product.inputs[2:]), 0)]
    for node in nodes[1:]:
        assert isinstance(node.op, Pointwise)
        if node.output.shape != product.output.shape:
            return "scores are repeated"
        steps.append((node.op.expr, node.inputs, node.inputs.index(product.output)))
    for expr, operands, place in steps:
        found = _scale_and_mask(expr, place)
        # Behind a mask nothing may follow: there is one only, and a scale would be the mask's, too.
        if found is None or mask is not None:
            return f"the scores' epilogue {expr}"
        scale *= found[0]
        mask = None if found[1] is None else operands[found[1]]
    if mask is not None and not mask.dtype.is_float:
        return "the mask holds truth values"
    return _Scores(nodes, scale, mask)


def _refuse_values(values: Node, weights: Value) -> str | None:
    op = values.op
    if not isinstance(op, MatMul) or values.inputs[0] is not weights:
        return "weights are not multiplied with values"
    if op.transpose_a or op.transpose_b:
        return "weights or values are transposed"
    return None if op.epilogue == IDENTITY else f"the result's epilogue {op.epilogue}"


def _scale_and_mask(expr: Expr, place: int) -> tuple[float, int | None] | None:
    """Scale of `$place`, and which operand is added; None if an expression does more."""
    mask = None
    if expr.op == "add":
        masks = [e for e in expr.args if e.op == "arg" and e.index != place]
        if len(masks) != 1:
            return None
        mask = masks[0].index
        (expr,) = (e for e in expr.args if e is not masks[0])
    scale = _scale(expr, arg(place))
    return None if scale is None else (scale, mask)


def _scale(expr: Expr, scores: Expr) -> float | None:
    """What the scores are multiplied by."""
    if expr == scores:
        return 1.0
    if expr.op not in ("mul", "div"):
        return None
    left, right = expr.args
    if expr.op == "mul" and right == scores:
        left, right = right, left
    if left != scores or right.op != "const":
        return None
    if expr.op == "mul":
        return right.value
    return 1.0 / right.value if right.value else None


@derived
def _sites(graph: Graph) -> tuple[_Site, ...]:
    """Attentions whatever their sizes."""
    context = _Context(graph)
    nodes = (node for node in graph.nodes if isinstance(node.op, Softmax))
    return tuple(_site(node, context) for node in nodes if _refusal(node, context) is None)


def _site(softmax: Node, context: _Context) -> _Site:
    scores = _scores(softmax, context)
    values = context.reader(softmax.output)
    assert isinstance(scores, _Scores) and values is not None  # it was not refused
    product = scores.product
    assert isinstance(product.op, MatMul)
    masks = () if scores.mask is None else (scores.mask,)
    inputs = (*product.inputs[:2], values.inputs[1], *masks)
    op = Attention(scores.scale, transpose_k=not product.op.transpose_b)
    gone = (*scores.nodes, softmax, values)
    move = context.reader(values.output)
    ordered = None if move is None else _ordered(move)
    if move is None or ordered is None:
        return _Site(gone, (Node(op, inputs, values.outputs, values.name),))
    order, index_map = ordered
    y = values.output
    heads = Value(f"{y.name}/ordered", y.dtype, tuple(y.shape[i] for i in order))
    attention = Node(replace(op, order=order), inputs, (heads,), values.name)
    return _Site(
        (*gone, move), (attention, Node(Move(index_map), (heads,), move.outputs, move.name))
    )


def _ordered(node: Node) -> tuple[tuple[int, ...], IndexMap] | None:
    """Of a `Move` that reorders whole axes: their order, and what is left to do after that.

    None where it does anything else to them, or nothing.
    """
    if not isinstance(node.op, Move):
        return None
    index_map = node.op.map
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


def _new_shapes(site: _Site, shapes: Shapes) -> Mapping[Value, tuple[int, ...]]:
    """Shapes of values that there were not before."""
    op, result = site.attention.op, site.attention.output
    assert isinstance(op, Attention)
    if not op.order:
        return {}
    values = next(n for n in reversed(site.gone) if isinstance(n.op, MatMul)).output
    return {result: tuple(shapes[values][i] for i in op.order)}


@derived
def _rewritten(graph: Graph, sites: tuple[_Site, ...]) -> Graph:
    """The graph with attentions where the last of what they replace was: operands come before."""
    last = {site.gone[-1]: site.made for site in sites}
    gone = {node for site in sites for node in site.gone}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += last.get(node, () if node in gone else (node,))
    return replace(graph, nodes=tuple(nodes))
