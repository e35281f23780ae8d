"""Compute what follows from the sizes of the inputs alone once for each size, and not in each run.

    op2(op1(c1, …), c2, …), all of whose shapes or attributes are sizes  ->  SizeConstant(c1, c2, …)

Ranges as long as an image is wide, grids of anchors made of them, positions of tokens, masks of
shifted windows: files that take any size compute them from the shapes of their inputs. Once a
plan's sizes are known so are they, as plainly as other constants. Ranges that are too long to be
held are sums of two short ones.

Must not touch what is cheaper to repeat than to store: an element that is repeated, and views of
constants; nor what is larger than an image, takes long to compute with NumPy, or differs from run
to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from saccade.ir import Dim, DType, Factor, Graph, IndexMap, Node, Op, Value, embed
from saccade.ir.dim import ceildiv, mul, product, symbols_of
from saccade.ir.dim_terms import growth
from saccade.ir.expr import apply, arg, const
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
_ROW = 1024
_PLACE = apply("add", apply("mul", arg(0), const(_ROW)), arg(1))


def fold(graph: Graph, most: int) -> Graph:
    """The graph with what others read of sizes alone from a `SizeConstant`.

    Args:
        graph: Left as it is.
        most: As what power of the sizes the number of elements of a value may grow: 2 at most.
    """
    found = _Sized(graph, most)
    if found.long:
        graph = _with_rows(graph, {node: found.counting[node] for node in found.long})
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
        counting: As of `_counting`.
        long: Those of them that count so far that they are not held.
    """

    graph: Graph
    most: int
    makers: dict[Value, Node] = field(default_factory=dict)
    wanted: list[Value] = field(default_factory=list)
    counting: dict[Node, Value] = field(default_factory=dict)
    long: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counting = _counting(self.graph)
        for node in self.graph.nodes:
            if self._is_sized(node):
                self.makers[node.output] = node
            elif node in self.counting:
                self.long.append(node)
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
        made = [
            replace(node, op=Indices(node.output.shape[0]), inputs=())
            if node in self.counting
            else node
            for node in graph.nodes
            if node in behind
        ]
        nodes = tuple(_without_unread(made, self.wanted))
        read = dict.fromkeys(v for node in nodes for v in node.inputs)
        known = {value: graph.constants[value] for value in read if value in graph.constants}
        inner = Graph((), tuple(self.wanted), nodes, MappingProxyType(known))
        body = embed(inner, {value.name: number for number, value in enumerate(known)})
        op = SizeConstant((body,), len(known), _NAME)
        return Node(op, tuple(known), tuple(self.wanted), _NAME)


def _counting(graph: Graph) -> dict[Node, Value]:
    """Nodes that count from 0 by adding up ones, with the one element that these repeat."""
    ones = {
        node.output: node.inputs[0]
        for node in graph.nodes
        if isinstance(node.op, Move) and node.output.rank == 1
        and (one := graph.constants.get(node.inputs[0])) is not None
        and one.shape == () and one == 1 and node.output.dtype is DType.I64
    }  # fmt: skip
    return {
        node: ones[node.inputs[0]]
        for node in graph.nodes
        if node.op == CumSum(0, exclusive=True) and node.inputs[0] in ones
    }


def _with_rows(graph: Graph, long: Mapping[Node, Value]) -> Graph:
    """The graph with long counts, of these ones, as sums of two short counts over rows of a square.

    A sum over all that came before is made in one chain; these are made by all threads.
    """
    names = {value.name for value in graph.values()}
    constants = dict(graph.constants)
    nodes = []

    def fresh(near: Value, shape: tuple[Dim, ...]) -> Value:
        number = 1
        while (name := f"{near.name}.{number}") in names:
            number += 1
        names.add(name)
        return Value(name, near.dtype, shape)

    for node in graph.nodes:
        if node not in long:
            nodes.append(node)
            continue
        y, one = node.output, long[node]
        (n,), rows = y.shape, ceildiv(y.shape[0], _ROW)
        ones, count, first, row, grid, line = (
            fresh(y, shape)
            for shape in ((rows,), (rows,), (rows, 1), (1, _ROW), (rows, _ROW), (mul(rows, _ROW),))
        )
        array = np.arange(_ROW, dtype=np.int64)[None]
        array.flags.writeable = False
        constants[row] = array
        made: list[tuple[Op, tuple[Value, ...], Value]] = [
            (Move(IndexMap((), (Factor(rows, None),), (1,))), (one,), ones),
            (CumSum(0, exclusive=True), (ones,), count),
            (Move(IndexMap(((rows,),), (Factor(rows, 0),), (1, 0))), (count,), first),
            (Pointwise(_PLACE, DType.I64), (first, row), grid),
            (Move(IndexMap(((rows,), (_ROW,)), (Factor(rows, 0), Factor(_ROW, 1)), (2,))), (grid,),
             line),
            (Move(IndexMap(((mul(rows, _ROW),),), (Factor(n, 0),), (1,))), (line,), y),
        ]  # fmt: skip
        nodes += [Node(op, inputs, (output,), node.name) for op, inputs, output in made]
    return graph.with_nodes(tuple(nodes), constants)


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
