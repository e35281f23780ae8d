"""What an attention is made of: the scores, scaled and masked; the weights, and what they weigh."""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.ir import Dim, Graph, IndexMap, Node, Value
from saccade.ir.compose_maps import is_view, same_map
from saccade.ir.expr import Expr, arg, parse
from saccade.ir.index_map import transpose_map
from saccade.opdefs import MatMul, Move, Pointwise

__all__ = ["Context", "Scores", "Weighted", "scores_of", "swap_map", "weights_of"]

_HIDDEN = parse("where(isnan($0), 0.0, $0)")


class Context:
    """Who makes and who reads the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.producers, self.uses = graph, graph.producers(), graph.uses()

    def reader(self, value: Value) -> Node | None:
        """The only node that reads a value, if the caller does not get it."""
        readers = self.uses[value]
        return readers[0] if len(readers) == 1 and value not in self.graph.outputs else None


@dataclass(frozen=True, slots=True)
class Scores:
    """What a softmax is taken of.

    Attributes:
        nodes: What makes it: the product first.
        scale: Of the product's sums.
        mask: What is added to them.
        factor: What each matrix of them is multiplied by, besides.
        apart: Images and windows that batches are split into while the mask is added, or none.
    """

    nodes: tuple[Node, ...]
    scale: float
    mask: Value | None
    factor: Value | None = None
    apart: tuple[Dim, ...] = ()

    @property
    def product(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True, slots=True)
class Weighted:
    """What becomes of a softmax's result.

    Attributes:
        nodes: From behind the softmax to the product with the values.
        values: What is weighed, as the product reads it.
        transposed: Whether its last two axes are the other way round.
        swapped: Whether the result's are.
        hidden: Whether rows of NaN became zeros.
        epilogue: Of the product.
    """

    nodes: tuple[Node, ...]
    values: Value
    transposed: bool
    swapped: bool
    hidden: bool
    epilogue: Expr

    @property
    def product(self) -> Node:
        return self.nodes[-1]


def scores_of(softmax: Node, context: Context) -> Scores | str:
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
    """Whether a node is a movement that moves nothing: axes split, merged, added or left out."""
    return isinstance(node.op, Move) and is_view(node.op.map)


def _windowed(nodes: tuple[Node, ...]) -> Scores | str:
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


def _made_among(operands: tuple[Value, ...], context: Context) -> Node | None:
    """The first operand's maker that is a product, or a view."""
    makers = [context.producers.get(value) for value in operands]
    made = [node for node in makers if node is not None]
    products = (node for node in made if isinstance(node.op, MatMul))
    return next(products, next(filter(_is_view, made), None))


def _scaled(nodes: tuple[Node, ...], read: Value | None = None) -> Scores | str:
    """Scale and mask of a product and what follows it, or why there are none.

    What follows reads `read`, the product itself or a view of it.
    """
    product = nodes[0]
    assert isinstance(product.op, MatMul)
    read = read or product.output
    scale, mask, factor = 1.0, None, None
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
        by, times, added = found
        if times is not None:
            # Once, and not where batches are split.
            once = factor is None and operands[0] is product.output
            factor = operands[times]
            if not once or not _scales_rows(factor, product.inputs[0]):
                return f"the scores' epilogue {expr}"
        scale *= by
        mask = None if added is None else operands[added]
    if mask is not None and not mask.dtype.is_float:
        return "the mask holds truth values"
    return Scores(nodes, scale, mask, factor)


def _scales_rows(factor: Value, q: Value) -> bool:
    """Whether a factor is one for each matrix of q, so that it may be multiplied by q instead."""
    sizes = zip(reversed(factor.shape), reversed(q.shape), strict=False)
    fits = factor.rank <= q.rank and all(n in (1, size) for n, size in sizes)
    return fits and factor.shape[-2:] == (1, 1)


def _scale_and_mask(expr: Expr, place: int) -> tuple[float, int | None, int | None] | None:
    """Scale of `$place`, what else it is multiplied by, what is added; None if there is more."""
    mask = None
    if expr.op == "add":
        masks = [e for e in expr.args if e.op == "arg" and e.index != place]
        if len(masks) != 1:
            return None
        mask = masks[0].index
        (expr,) = (e for e in expr.args if e is not masks[0])
    if expr.op == "mul" and {e.op for e in expr.args} == {"arg"}:
        left, right = (e.index for e in expr.args)
        if (left == place) is not (right == place):
            return 1.0, right if left == place else left, mask
    scale = _scale(expr, arg(place))
    return None if scale is None else (scale, None, mask)


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


def weights_of(softmax: Node, scores: Scores, context: Context) -> Weighted | str:
    """What becomes of the weights, or why that is no attention."""
    value, nodes, hidden, transposed = softmax.output, list[Node](), False, False
    reader = context.reader(value)
    if reader is not None and isinstance(reader.op, Pointwise) and reader.op.expr == _HIDDEN:
        hidden, value = True, reader.output
        nodes.append(reader)
        reader = context.reader(value)
    if reader is not None and isinstance(reader.op, Move) and _swaps(reader):
        transposed, value = True, reader.output
        nodes.append(reader)
        reader = context.reader(value)
    if reader is None:
        return "weights are read elsewhere"
    op = reader.op
    if not isinstance(op, MatMul) or (reader.inputs[0] is value) is (reader.inputs[1] is value):
        return "weights are not multiplied with values"
    left = reader.inputs[0] is value
    values = reader.inputs[1 if left else 0]
    # y = p v, or its transpose from v' p'.
    if (transposed != (op.transpose_a if left else op.transpose_b)) is left:
        return "weights are transposed"
    if op.epilogue.operands > 1:
        return f"the result's epilogue {op.epilogue}"
    if scores.apart and not (left and _has_batches(values, softmax.output)):
        return "batches that are repeated"
    other = op.transpose_b if left else not op.transpose_a
    return Weighted((*nodes, reader), values, other, not left, hidden, op.epilogue)


def _swaps(node: Node) -> bool:
    assert isinstance(node.op, Move)
    return node.output.rank > 1 and same_map(node.op.map, swap_map(node.inputs[0]))


def swap_map(value: Value) -> IndexMap:
    """The movement that swaps a value's last two axes."""
    last = value.rank - 1
    return transpose_map(value.shape, (*range(last - 1), last, last - 1))
