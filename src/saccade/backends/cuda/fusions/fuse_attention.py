"""Attention: the scores of a product, their softmax, and the product with the values, as one step.

    s = MatMul(q, k), scale · s + mask in its epilogue or in a Pointwise behind it
    p = Softmax(s)                                        ->  y = Attention(q, k, v, mask)
    y = MatMul(p, v)

A mask that differs by windows is added to scores whose batches are split into images and windows,
between two `Move`s that are views: q, k and v are split so in their place.

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
from saccade.ir import Dim, Factor, Graph, IndexMap, Node, Value
from saccade.ir.compose_maps import compose, is_view
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
        made: What takes their place, in order: the attention, and a `Move` that reads it or none;
            in front of it those that split what it reads.
    """

    gone: tuple[Node, ...]
    made: tuple[Node, ...]

    @property
    def attention(self) -> Node:
        return next(node for node in self.made if isinstance(node.op, Attention))


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
        apart: Images and windows that batches are split into while it is added, or none.
    """

    nodes: tuple[Node, ...]
    scale: float
    mask: Value | None
    apart: tuple[Dim, ...] = ()

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
    if scores.apart and not _has_batches(values.inputs[1], softmax.output):
        return "batches that are repeated"
    return _refuse_values(values, softmax.output)


def _scores(softmax: Node, context: _Context) -> _Scores | str:
    """The scores, or why they are none."""
    last = context.producers.get(softmax.inputs[0])
    merge = last if last is not None and _is_view(last) else None
    if merge is not None:
        last = context.producers.get(merge.inputs[0])
    behind = last is not None and isinstance(last.op, Pointwise)
    made = _made_among(last.inputs, context) if last is not None and behind else last
    split = made if made is not None and merge is not None and _is_view(made) else None
    product = made if split is None else context.producers.get(split.inputs[0])
    if last is None or product is None or not isinstance(product.op, MatMul):
        return "scores are not a product"
    if (merge is None) is not (split is None) or (split is not None and not behind):
        return "scores are reshaped"
    nodes = tuple(n for n in (product, split, last if behind else None, merge) if n is not None)
    readers = (*nodes[1:], softmax)
    # For another reader they would have to be stored all the same.
    if any(context.reader(n.output) is not r for n, r in zip(nodes, readers, strict=True)):
        return "scores are read elsewhere"
    if product.op.transpose_a:
        return "q is transposed"
    return _scaled(nodes) if split is None or merge is None else _windowed(nodes)


def _is_view(node: Node) -> bool:
    return isinstance(node.op, Move) and is_view(node.op.map)


def _windowed(nodes: tuple[Node, ...]) -> _Scores | str:
    """The same of scores whose batches are split and merged around the mask."""
    product, split, pointwise, merge = nodes
    apart, whole = split.output.shape, product.output.shape
    if len(whole) != 4 or apart[2:] != whole[1:] or merge.output.shape != whole:
        return "scores are reshaped"
    if not all(_has_batches(value, product.output) for value in product.inputs[:2]):
        return "batches that are repeated"
    found = _scaled((product, pointwise), split.output)
    return found if isinstance(found, str) else replace(found, nodes=nodes, apart=apart[:2])


def _has_batches(value: Value, scores: Value) -> bool:
    """Whether an operand has a matrix of its own for each batch of the scores."""
    return value.rank == scores.rank and value.shape[0] == scores.shape[0]


def _made_among(operands: tuple[Value, ...], context: _Context) -> Node | None:
    """The first operand's maker that is a product, or a view."""
    makers = [context.producers.get(value) for value in operands]
    made = [node for node in makers if node is not None]
    products = (node for node in made if isinstance(node.op, MatMul))
    return next(products, next(filter(_is_view, made), None))


def _scaled(nodes: tuple[Node, ...], read: Value | None = None) -> _Scores | str:
    """Scale and mask of a product and what follows it, or why there are none.

    What follows reads `read`, the product itself or a view of it.
    """
    product = nodes[0]
    assert isinstance(product.op, MatMul)
    read = read or product.output
    scale = 1.0
    mask: Value | None = None
    # For each: the expression, its operands, and which of these is the product.
    steps = [(product.op.epilogue, (product.output, *product.inputs[2:]), 0)]
    for node in nodes[1:]:
        assert isinstance(node.op, Pointwise)
        if node.output.shape != read.shape:
            return "scores are repeated"
        steps.append((node.op.expr, node.inputs, node.inputs.index(read)))
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
    operands, splits = (*product.inputs[:2], values.inputs[1]), list[Node]()
    if scores.apart:
        splits = [_split(value, scores.apart, values, i) for i, value in enumerate(operands)]
        operands = tuple(node.output for node in splits)
    op = Attention(scores.scale, transpose_k=not product.op.transpose_b)
    gone, y = (*scores.nodes, softmax, values), values.output
    merge = _merge_map((*scores.apart, *y.shape[1:])) if scores.apart else None
    move = context.reader(y)
    after = _map_of(move)
    if merge is not None and after is not None:
        composed = compose(merge, after)
        after = None if isinstance(composed, str) else composed
    ordered = None if after is None else _ordered(after)
    if ordered is not None and move is not None:
        (order, index_map), gone, read = ordered, (*gone, move), move
    elif merge is not None:
        order, index_map, read = (), merge, values
    else:
        return _Site(gone, (Node(op, (*operands, *masks), values.outputs, values.name),))
    shape = (*scores.apart, *y.shape[1:]) if scores.apart else y.shape
    heads = Value(f"{y.name}/ordered", y.dtype, tuple(shape[i] for i in order) or shape)
    attention = Node(replace(op, order=order), (*operands, *masks), (heads,), values.name)
    last = Node(Move(index_map), (heads,), read.outputs, read.name)
    return _Site(gone, (*splits, attention, last))


def _map_of(node: Node | None) -> IndexMap | None:
    return node.op.map if node is not None and isinstance(node.op, Move) else None


def _split(value: Value, apart: tuple[Dim, ...], near: Node, number: int) -> Node:
    """Batches of a value split into images and windows."""
    inner = value.shape[1:]
    sizes = (*apart, *inner)
    index_map = IndexMap(
        (apart, *((size,) for size in inner)),
        tuple(Factor(size, i) for i, size in enumerate(sizes)),
        (1,) * len(sizes),
    )
    # One value may be several operands, of several attentions.
    result = Value(f"{near.output.name}/split{number}", value.dtype, sizes)
    return Node(Move(index_map), (value,), (result,), near.name)


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


def _new_shapes(site: _Site, shapes: Shapes) -> Mapping[Value, tuple[int, ...]]:
    """Shapes of values that there were not before."""
    op, result = site.attention.op, site.attention.output
    assert isinstance(op, Attention)
    splits = [node for node in site.made if node.op is not op and node.inputs[0] is not result]
    if not op.order and not splits:
        return {}
    values = next(n for n in reversed(site.gone) if isinstance(n.op, MatMul)).output
    whole, apart = shapes[values], shapes[values][:0]
    if splits:
        scores = next(n for n in site.gone if isinstance(n.op, Move) and _is_view(n)).output
        apart = shapes[scores][:2]
        whole = (*apart, *whole[1:])
    found = {node.output: (*apart, *shapes[node.inputs[0]][1:]) for node in splits}
    return {**found, result: tuple(whole[i] for i in op.order) or whole}


@derived
def _rewritten(graph: Graph, sites: tuple[_Site, ...]) -> Graph:
    """The graph with attentions where the last of what they replace was: operands come before."""
    last = {site.gone[-1]: site.made for site in sites}
    gone = {node for site in sites for node in site.gone}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += last.get(node, () if node in gone else (node,))
    return replace(graph, nodes=tuple(nodes))
