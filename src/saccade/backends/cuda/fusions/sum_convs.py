"""Two convolutions whose results are added: the shortcut of a residual block with a projection.

    a = Conv2d(x, w)                                     epilogue f(sum)
    y = Conv2d(x2, w2, a), g(sum + a) in its epilogue    ->  y = Conv2dSum(x, w, x2, w2)

where f adds what it likes to its sum, and does nothing else. One of the two has one tap and no
padding; it becomes the second, whichever of them read the other's result. Neither a's bytes nor its
rounding are left. Which is faster is a matter of estimates: layout decides.

Left alone, with the reason: a that anyone else reads or the caller gets; results of other shapes or
element types; groups, prologues and stores; sums that are to be exact; weights that are no
constants; two windows of several taps; a result that is the end of another sum; epilogues where the
two sums are not added, or read twice.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.cuda.fusions.conv_sum import Conv2dSum
from saccade.ir import Graph, Node, Value
from saccade.ir.derived import derived
from saccade.ir.expr import IDENTITY, Expr, apply, arg, substitute
from saccade.layout import Pair, Pairs, Passed
from saccade.opdefs import Conv2d

__all__ = ["sum_pairs"]


@derived
def sum_pairs(graph: Graph) -> Pairs:
    """The pairs that may be one step, and why others whose results are added are not."""
    producers, uses = graph.producers(), graph.uses()
    joint, apart = dict[Node, Pair](), dict[Node, Passed]()
    for node in graph.nodes:
        if not isinstance(node.op, Conv2d):
            continue
        for at, value in enumerate(node.inputs[2:], start=2):
            maker = producers.get(value)
            if maker is None or not isinstance(maker.op, Conv2d):
                continue
            if len(uses[value]) != 1 or value in graph.outputs or node.inputs.count(value) != 1:
                both: Node | str = "its result is read elsewhere"
            elif any(maker is pair.second for pair in joint.values()):
                both = "it is the end of another sum"
            else:
                both = _both(maker, node, at, graph)
            if isinstance(both, Node):
                joint[maker] = Pair(maker, node, both)
                break
            apart[maker] = Passed(Conv2dSum.__name__, both)
    return Pairs(joint, apart)


def _both(maker: Node, reader: Node, at: int, graph: Graph) -> Node | str:
    """The node of both, or why there is none. Operand `at` of the reader is the maker's result."""
    own, other = reader.op, maker.op
    assert isinstance(own, Conv2d) and isinstance(other, Conv2d)
    for node, op in ((reader, own), (maker, other)):
        if op.groups != 1 or op.prologue != IDENTITY or op.store is not None:
            return "groups, a prologue or a store"
        if op.integral:
            return "sums are to be exact"
        if node.inputs[1] not in graph.constants:
            return "weights are no constant"
    if (maker.output.shape, maker.output.dtype) != (reader.output.shape, reader.output.dtype):
        return "the results differ in shape or element type"
    if len({reader.inputs[0].dtype, maker.inputs[0].dtype}) > 1:
        return "the images differ in element type"
    # The reader's operands, then the maker's own, in one numbering.
    count = len(reader.inputs) - 1
    moved = {i: arg(count + i - 1) for i in range(1, other.epilogue.operands)}
    place = at - 1
    theirs = substitute(other.epilogue, {0: arg(place), **moved})
    epilogue = _without(substitute(own.epilogue, {place: theirs}), place)
    if epilogue is None:
        return f"the sums are not added: {own.epilogue} of {other.epilogue}"
    operands = (*reader.inputs[2:], *maker.inputs[2:])
    # Its place holds the sum no more; what comes behind it moves up.
    operands = (*operands[: place - 1], *operands[place:])
    epilogue = substitute(epilogue, {i: arg(i - 1) for i in range(place + 1, epilogue.operands)})
    for first, second in ((reader, maker), (maker, reader)):
        if _is_point(second):
            return _joined(first, second, epilogue, operands, reader)
    return "both windows have several taps"


def _is_point(node: Node) -> bool:
    assert isinstance(node.op, Conv2d)
    return node.inputs[1].shape[2:] == (1, 1) and not any(node.op.padding)


def _joined(
    first: Node, second: Node, epilogue: Expr, operands: tuple[Value, ...], reader: Node
) -> Node:
    assert isinstance(first.op, Conv2d) and isinstance(second.op, Conv2d)
    op = Conv2dSum(replace(first.op, epilogue=epilogue), Conv2d(stride=second.op.stride))
    inputs = (*first.inputs[:2], *second.inputs[:2], *operands)
    return Node(op, inputs, reader.outputs, reader.name)


def _without(expr: Expr, place: int) -> Expr | None:
    """The expression with `$0 + $place` as `$0`: neither is read anywhere else. None if it is not.

    What is added to either stays, in whatever order.
    """
    if (_count(expr, 0), _count(expr, place)) != (1, 1):
        return None
    terms = _terms(expr)
    if arg(0) in terms and arg(place) in terms:
        rest = [term for term in terms if term != arg(place)]
        total = rest[0]
        for term in rest[1:]:
            total = apply("add", total, term)
        return total
    inner = [_without(part, place) for part in expr.args]
    if all(part is None for part in inner):
        return None
    changed = [new or old for new, old in zip(inner, expr.args, strict=True)]
    return apply(expr.op, *changed)


def _terms(expr: Expr) -> list[Expr]:
    """What a sum is the sum of, through all levels of additions."""
    if expr.op != "add":
        return [expr]
    return [term for part in expr.args for term in _terms(part)]


def _count(expr: Expr, place: int) -> int:
    """How many times an operand is read, with shared parts as often as they are used."""
    if expr.op == "arg":
        return int(expr.index == place)
    return sum(_count(part, place) for part in expr.args)
