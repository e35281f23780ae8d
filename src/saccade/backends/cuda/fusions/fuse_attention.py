"""Attention: the scores of a product, their softmax, and the product with the values, as one step.

    s = MatMul(q, k), scale · s + mask in its epilogue
    p = Softmax(s)                                        ->  y = Attention(q, k, v, mask)
    y = MatMul(p, v)

A `Move` that only reorders the axes of y afterwards, before it merges some, gets them in its order:
heads are stored beside each other, as the next product reads them, and the `Move` is a view.

Left alone, with the reason (`refuse`): softmax along another axis, or its logarithm; scores or
weights that anyone else reads or the caller gets; products whose rows are stored as columns;
epilogues that do more than scale and add one operand; an epilogue of the second product; masks of
truth values; and what no kernel takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from saccade.backends.cuda.fusions.attention import Attention
from saccade.ir import Graph, IndexMap, Node, Value
from saccade.ir.derived import derived
from saccade.ir.expr import IDENTITY, Expr
from saccade.layout import Shapes, Taken
from saccade.opdefs import MatMul, Move, Softmax

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


def _refusal(softmax: Node, context: _Context) -> str | None:
    op = softmax.op
    assert isinstance(op, Softmax)
    if op.log or op.axis != softmax.output.rank - 1:
        return "the logarithm is wanted" if op.log else f"softmax along axis {op.axis}"
    scores = context.producers.get(softmax.inputs[0])
    if scores is None or not isinstance(scores.op, MatMul):
        return "scores are not a product"
    if context.reader(scores.output) is not softmax:
        return "scores are read elsewhere"
    values = context.reader(softmax.output)
    if values is None:
        return "weights are read elsewhere"
    return _refuse_scores(scores) or _refuse_values(values, softmax.output)


def _refuse_scores(scores: Node) -> str | None:
    assert isinstance(scores.op, MatMul)
    if scores.op.transpose_a:
        return "q is transposed"
    found = _scale_and_mask(scores.op.epilogue)
    if found is None:
        return f"the scores' epilogue {scores.op.epilogue}"
    mask = found[1]
    if mask is not None and not scores.inputs[1 + mask].dtype.is_float:
        return "the mask holds truth values"
    return None


def _refuse_values(values: Node, weights: Value) -> str | None:
    op = values.op
    if not isinstance(op, MatMul) or values.inputs[0] is not weights:
        return "weights are not multiplied with values"
    if op.transpose_a or op.transpose_b:
        return "weights or values are transposed"
    return None if op.epilogue == IDENTITY else f"the result's epilogue {op.epilogue}"


def _scale_and_mask(epilogue: Expr) -> tuple[float, int | None] | None:
    """Scale, and which operand is added, of what an epilogue does; None if it does more."""
    mask = None
    if epilogue.op == "add":
        masks = [e for e in epilogue.args if e.op == "arg" and e.index > 0]
        if len(masks) != 1:
            return None
        mask = masks[0].index
        (epilogue,) = (e for e in epilogue.args if e is not masks[0])
    scale = _scale(epilogue)
    return None if scale is None else (scale, mask)


def _scale(expr: Expr) -> float | None:
    """What `$0` is multiplied by."""
    if expr == IDENTITY:
        return 1.0
    if expr.op not in ("mul", "div"):
        return None
    left, right = expr.args
    if expr.op == "mul" and right == IDENTITY:
        left, right = right, left
    if left != IDENTITY or right.op != "const":
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
    scores = context.producers[softmax.inputs[0]]
    values = context.reader(softmax.output)
    assert values is not None and isinstance(scores.op, MatMul)
    found = _scale_and_mask(scores.op.epilogue)
    assert found is not None  # it was not refused
    scale, mask = found
    masks = () if mask is None else (scores.inputs[1 + mask],)
    inputs = (*scores.inputs[:2], values.inputs[1], *masks)
    op = Attention(scale, transpose_k=not scores.op.transpose_b)
    gone = (scores, softmax, values)
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
    if len(sizes) != len(axes) or len(index_map.factors) != len(axes):
        return None
    sources = []
    for factor in index_map.factors:
        source = factor.source
        if source is None or (factor.start, factor.step) != (0, 1) or factor.size != sizes[source]:
            return None
        sources.append(source)
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
    values = site.gone[2].output
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
