"""Compute what follows from the sizes of the inputs alone once for each size, and not in each run.

    op2(op1(c1, …), c2, …), all of whose shapes or attributes are sizes  ->  SizeConstant(c1, c2, …)

Ranges as long as an image is wide, grids of anchors made of them, positions of tokens, masks of
shifted windows: files that take any size compute them from the shapes of their inputs. Once a
plan's sizes are known so are they, as plainly as other constants.

Must not touch what is cheaper to repeat than to store: an element that is repeated, and views of
constants; nor what is larger than an image, takes long to compute with NumPy, or differs from run
to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from saccade.ir import DType, Graph, Node, Value, embed
from saccade.ir.dim import product, symbols_of
from saccade.ir.dim_terms import growth
from saccade.opdefs import (
    ArgReduce,
    BitCast,
    Concat,
    CumSum,
    Gather,
    Move,
    Pointwise,
    Reduce,
    ScatterRows,
    SizeConstant,
)
from saccade.opdefs.size_constant import Indices
from saccade.passes._pass import Pass

__all__ = ["GRIDS", "PASS", "fold"]

_QUICK = (ArgReduce, BitCast, Concat, CumSum, Gather, Move, Pointwise, Reduce, ScatterRows)
"""What NumPy does about as fast as memory."""
_MOST_BYTES = (1 << 20, 1 << 12, 16)
"""Of a value, by that power: in all, for each row or column, for each pixel."""
_NAME = "sizes"


def fold(graph: Graph, most: int) -> Graph:
    """The graph with what others read of sizes alone from a `SizeConstant`.

    Args:
        graph: Left as it is.
        most: As what power of the sizes the number of elements of a value may grow: 2 at most.
    """
    found = _Sized(graph, most)
    if not found.wanted:
        return graph
    kept = _read(graph, set(found.wanted))
    # Constants are all that it reads.
    return graph.with_nodes((found.node(), *(node for node in graph.nodes if node in kept)))


@dataclass
class _Sized:
    """Values that follow from sizes and constants.

    Attributes:
        graph: Where.
        most: As of `fold`.
        makers: The nodes behind them.
        wanted: Those to hold: computed, and read by others; in order.
    """

    graph: Graph
    most: int
    makers: dict[Value, Node] = field(default_factory=dict)
    wanted: list[Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            if self._is_sized(node):
                self.makers[node.output] = node
        inside = set(self.makers.values())
        read = {v for node in self.graph.nodes if node not in inside for v in node.inputs}
        read.update(self.graph.outputs)
        held = {self._held(value) for value in read if value in self.makers}
        self.wanted = [value for value in self.makers if value in held]

    def _is_sized(self, node: Node) -> bool:
        if not isinstance(node.op, _QUICK) or not node.op.pure or len(node.outputs) > 1:
            return False
        if not all(v in self.makers or v in self.graph.constants for v in node.inputs):
            return False
        power, factor = growth(product(node.output.shape))
        if power > self.most or factor * node.output.dtype.itemsize > _MOST_BYTES[power]:
            return False
        # What no size is part of was folded, or is too large to be kept.
        return (
            any(v in self.makers for v in node.inputs)
            or bool(node.op.symbols)
            or any(symbols_of(dim) for dim in node.output.shape)
        )

    def _held(self, value: Value) -> Value:
        """The value, or what it is a repetition of; a constant if it is but moved from one."""
        source = value
        while source in self.makers:
            maker = self.makers[source]
            if not isinstance(maker.op, Move):
                break
            source = maker.inputs[0]
        if source not in self.makers:
            return source
        while isinstance(op := self.makers[value].op, Move) and _repeats(op):
            (value,) = self.makers[value].inputs
        return value

    def node(self) -> Node:
        """The node that gives what is wanted."""
        graph, behind = self.graph, set[Node]()
        waiting = list(self.wanted)
        while waiting:
            maker = self.makers.get(waiting.pop())
            if maker is not None and maker not in behind:
                behind.add(maker)
                waiting.extend(maker.inputs)
        nodes = tuple(self._counted(node) for node in graph.nodes if node in behind)
        nodes = tuple(_without_unread(nodes, self.wanted))
        read = dict.fromkeys(v for node in nodes for v in node.inputs)
        known = {value: graph.constants[value] for value in read if value in graph.constants}
        inner = Graph((), tuple(self.wanted), nodes, MappingProxyType(known))
        body = embed(inner, {value.name: number for number, value in enumerate(known)})
        op = SizeConstant((body,), len(known), _NAME)
        return Node(op, tuple(known), tuple(self.wanted), _NAME)

    def _counted(self, node: Node) -> Node:
        """What counts from 0 by adding up ones, made of nothing."""
        op, makers, constants = node.op, self.makers, self.graph.constants
        if op != CumSum(0, exclusive=True) or node.inputs[0] not in makers:
            return node
        ones = makers[node.inputs[0]]
        one = constants.get(ones.inputs[0])
        if one is None or not isinstance(ones.op, Move) or node.output.rank != 1:
            return node
        plain = one.shape == () and one == 1 and node.output.dtype is DType.I64
        return replace(node, op=Indices(node.output.shape[0]), inputs=()) if plain else node


def _without_unread(nodes: Sequence[Node], wanted: Iterable[Value]) -> list[Node]:
    read, kept = set(wanted), list[Node]()
    for node in reversed(nodes):
        if node.output in read:
            read.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def _repeats(op: Move) -> bool:
    return any(factor.source is None and factor.size != 1 for factor in op.map.factors)


def _read(graph: Graph, held: set[Value]) -> set[Node]:
    """The nodes that somebody reads where these values are held."""
    makers = graph.producers()
    needed = set[Node]()
    waiting = [*graph.outputs, *(v for n in graph.nodes if not n.op.pure for v in n.outputs)]
    while waiting:
        value = waiting.pop()
        maker = makers.get(value)
        if value not in held and maker is not None and maker not in needed:
            needed.add(maker)
            waiting.extend(maker.inputs)
    return needed


def _pass(most: int) -> Pass:
    return Pass("fold_sizes", whole=partial(fold, most=most))


PASS = _pass(1)
"""For plans that wait for it: numbers and ranges, and no grids of them, which kernels fill."""
GRIDS = _pass(2)
"""Where each step has to be launched in each run: whole grids."""
