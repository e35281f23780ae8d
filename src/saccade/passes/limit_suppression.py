"""Suppression ends when there are as many boxes as are read.

    NonMaxSuppression(boxes, scores)[:300]  ->  NonMaxSuppression<most=300>(boxes, scores)[:300]

Detectors take the best hundred or thousand of what stays, and a file says so by a slice. What stays
comes class by class, the best first: no box behind the 300th of its class is among the first 300.
The number of boxes that stay is then at most so large, too, and what is planned for it.

Must not touch boxes that are read beyond the first ones, nor a number on which more hangs than the
size of what is read of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from saccade.ir import Dim, Graph, Node, Value
from saccade.ir.counts import Count
from saccade.ir.dim import Affine, Symbol, Term, minimum, symbols_of
from saccade.ir.expr import Expr, subtrees
from saccade.opdefs import Move, NonMaxSuppression, Pointwise
from saccade.passes._pass import Pass

__all__ = ["PASS", "limit"]


def limit(graph: Graph) -> Graph:
    """The graph with suppressions that keep what is read."""
    found = [node for node in graph.nodes if isinstance(node.op, NonMaxSuppression)]
    uses = graph.uses() if found else {}
    for node in found:
        # Who reads what stays is as it was, whatever became of others.
        one = _Selection.of(graph, node, uses)
        most = one.most()
        if most is not None:
            graph = one.limited(most)
    return graph


@dataclass
class _Selection:
    """What stays of one suppression, and who reads it.

    Attributes:
        graph: All of it.
        node: The suppression.
        op: What it is.
        uses: See `Graph.uses`.
        numbers: Symbols whose sizes steps find out, by their numbers.
        symbols: Those that are the number of boxes that stay, or 0.
        whole: What has all that stays.
        least: What the number is compared with, elsewhere: the smaller one is taken.
    """

    graph: Graph
    node: Node
    op: NonMaxSuppression
    uses: Mapping[Value, list[Node]]
    numbers: Mapping[Value, str]
    symbols: set[str] = field(default_factory=set)
    whole: set[Value] = field(default_factory=set)
    least: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, node: Node, uses: Mapping[Value, list[Node]]) -> _Selection:
        assert isinstance(node.op, NonMaxSuppression)
        numbers = graph.outputs[len(graph.results) :]
        named = {v: c.symbol for c, v in zip(graph.counts, numbers, strict=True)}
        return cls(graph, node, node.op, uses, named)

    def most(self) -> int | None:
        """How many boxes of each class are read at most, if fewer stay then."""
        rows, number = self.node.outputs
        if not self._follow(number):
            return None
        most = self._read(rows, 0)
        if most is None or not max([0.0, *self.least]) <= most < self._known():
            return None
        return most if self._else_settled(most) else None

    def _known(self) -> int:
        """How many of a class stay at most as it is."""
        boxes = self.node.inputs[0].shape[1]
        return min(self.op.most, boxes) if isinstance(boxes, int) else self.op.most

    def _follow(self, number: Value) -> bool:
        """Note what the number is the size of; whether little else hangs on it."""
        symbol = self.numbers.get(number)
        if symbol is None or number in self.graph.results:
            return False
        self.symbols.add(symbol)
        return all(self._follow_into(reader, number) for reader in self.uses[number])

    def _follow_into(self, reader: Node, number: Value) -> bool:
        if not isinstance(reader.op, Pointwise):
            return False
        places = {i for i, value in enumerate(reader.inputs) if value is number}
        least = _compared(reader.op.expr, places)
        if least is not None:
            self.least += least
            return True
        return _is_branch(reader.op.expr, places) and self._follow(reader.output)

    def _read(self, value: Value, axis: int) -> int | None:
        """How many elements along an axis are read, from the first on; None if it is unknown."""
        self.whole.add(value)
        if value in self.graph.outputs:
            return None
        found = 1  # that none are is no limit
        for reader in self.uses[value]:
            many = self._read_by(reader, axis)
            if many is None:
                return None
            found = max(found, many)
        return found

    def _read_by(self, reader: Node, axis: int) -> int | None:
        if not isinstance(reader.op, Move):
            return None
        moved = reader.op.map
        if len(moved.in_factors[axis]) != 1:
            return None
        source = sum(map(len, moved.in_factors[:axis]))
        factor = next((f for f in moved.factors if f.source == source), None)
        if factor is None or factor.start != 0 or factor.step != 1:
            return None
        if not _is_one_of(factor.size, self.symbols):
            return _least_of(factor.size)
        # All of them: it depends on who reads the result.
        begin, place = 0, moved.factors.index(factor)
        for out, group in enumerate(moved.out_groups):
            beside = moved.factors[begin : begin + group]
            begin += group
            if place < begin:
                alone = all(one.size == 1 for one in beside if one is not factor)
                return self._read(reader.output, out) if alone else None
        return None

    def _else_settled(self, most: int) -> bool:
        """Whether no other size is another one where at most so many boxes stay."""
        dims = [d for v in self.graph.values() if v not in self.whole for d in v.shape]
        for node in self.graph.nodes:
            # Of what reads all that stays, sizes of the results say what there is to say.
            if node is not self.node and self.whole.isdisjoint(node.inputs):
                dims += node.op.dims
        own = [count for count in self.graph.counts if count.symbol not in self.symbols]
        dims += [count.bound for count in own]
        computed = {d for one in self.graph.computed for d in one.symbols}
        return computed.isdisjoint(self.symbols) and all(
            _is_settled(dim, self.symbols, most) for dim in dims
        )

    def limited(self, most: int) -> Graph:
        """The graph where no more of a class stay."""
        node = replace(self.node, op=replace(self.op, most=most))
        nodes = tuple(node if one is self.node else one for one in self.graph.nodes)
        images, classes, _ = self.node.inputs[1].shape
        counts = tuple(
            Count(c.symbol, minimum(c.bound, most))
            if c.symbol in self.symbols and (images, classes) == (1, 1)
            else c
            for c in self.graph.counts
        )
        return replace(self.graph, nodes=nodes, counts=counts)


def _compared(expr: Expr, places: Set[int]) -> list[float] | None:
    """The constants that operands are at most as large as, where no more of them matters."""
    if expr.op == "arg":
        return None if expr.index in places else []
    if expr.op == "min":
        for one, other in (expr.args, expr.args[::-1]):
            if one.op == "const" and other.op == "arg" and other.index in places:
                return [one.value]
    found = [_compared(one, places) for one in expr.args]
    return None if None in found else [value for one in found if one for value in one]


def _is_branch(expr: Expr, places: Set[int]) -> bool:
    """Whether it is one of the operands or 0, which does not depend on them."""
    if expr.op == "where":
        condition, *branches = expr.args
        ignores = all(one.op != "arg" or one.index not in places for one in subtrees(condition))
        return ignores and all(_is_branch(one, places) for one in branches)
    if expr.op == "arg":
        return expr.index in places
    # Another number could be larger than what is planned for then.
    return expr.op == "const" and expr.value == 0


def _is_one_of(dim: Dim, symbols: Set[str]) -> bool:
    match dim:
        case Affine(0, ((Symbol(name), 1),)):
            return name in symbols
    return False


def _least_of(dim: Dim) -> int | None:
    """A number that a dim never exceeds, if it says one."""
    match dim:
        case int():
            return dim
        case Affine(0, ((Term("min", left, right), 1),)):
            sides = [side for side in map(_least_of, (left, right)) if side is not None]
            return min(sides, default=None)
    return None


def _is_settled(dim: Dim, symbols: Set[str], most: int) -> bool:
    """Whether a dim is the same where symbols that are larger are `most`."""
    if isinstance(dim, int) or symbols.isdisjoint(symbols_of(dim)):
        return True
    return all(_is_settled_atom(atom, symbols, most) for atom, _ in dim.terms)


def _is_settled_atom(atom: Symbol | Term, symbols: Set[str], most: int) -> bool:
    if isinstance(atom, Symbol):
        return atom.name not in symbols
    sides = (atom.left, atom.right)
    if atom.op == "min" and any(_is_one_of(side, symbols) for side in sides):
        # Of more than `most` the other side would still be the smaller one.
        return any(isinstance(side, int) and side <= most for side in sides)
    return all(_is_settled(side, symbols, most) for side in sides)


PASS = Pass("limit_suppression", after=("compose_moves",), whole=limit)
