"""Graphs inside of operators: bodies of loops and branches, as frozen attributes.

A body names its values by number, so that it compares, hashes and is written like any other
attribute. What it knows (weights) are no part of it: these are the last operands of its node,
constants of the graph around it, so that they are kept, mapped and shared as all others are.
`graph` makes a graph of a body again, for passes and for planning; `embed` is the way back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np

from saccade.ir import storage
from saccade.ir.counts import Count
from saccade.ir.dim import Dim, evaluate, symbols_of
from saccade.ir.graph import Graph, Node, Value
from saccade.ir.op import Array, Op, TensorType, Work

__all__ = ["Body", "BodyNode", "BodyOp", "Turn", "embed"]

Turn = Callable[[Sequence[Array]], Sequence[Array]]
"""Runs a body once: its outputs for its inputs."""


@dataclass(frozen=True, slots=True)
class BodyNode:
    """A node of a body, whose values are numbers."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Body:
    """A graph as an attribute.

    Attributes:
        names: Of its values: inputs first, then constants, then what its nodes give.
        types: Of the same.
        inputs: How many of them are inputs.
        constants: For each constant, which of the node's constant operands it is.
        nodes: In an order in which every value is made before it is used.
        outputs: Numbers of values.
        counts: As of a graph: the last outputs are the sizes that steps of it find out.
        remarks: The same.
    """

    names: tuple[str, ...]
    types: tuple[TensorType, ...]
    inputs: int
    constants: tuple[int, ...]
    nodes: tuple[BodyNode, ...]
    outputs: tuple[int, ...]
    counts: tuple[Count, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{{{len(self.nodes)} nodes}}"

    @property
    def takes(self) -> tuple[TensorType, ...]:
        """Types of its inputs."""
        return self.types[: self.inputs]

    @property
    def gives(self) -> tuple[TensorType, ...]:
        """Types of its outputs, without the sizes that steps find out."""
        return tuple(self.types[i] for i in self.outputs[: len(self.outputs) - len(self.counts)])

    @property
    def symbols(self) -> frozenset[str]:
        """Names of those whose sizes `bind` needs: of all in it, without those that steps find."""
        dims = [dim for kind in self.types for dim in kind.shape] + [c.bound for c in self.counts]
        inside = (symbols_of(dim) for dim in dims)
        found = frozenset().union(*inside, *(node.op.symbols for node in self.nodes))
        return found - {count.symbol for count in self.counts}

    def bind(self, sizes: Mapping[str, int]) -> Body:
        """The body with every dim evaluated; what its own steps find out is planned for a bound."""
        known = {**sizes, **{c.symbol: evaluate(c.bound, sizes) for c in self.counts}}

        def number(dim: Dim) -> int:
            return dim if isinstance(dim, int) else evaluate(dim, known)

        return replace(
            self,
            types=tuple(TensorType(t.dtype, tuple(map(number, t.shape))) for t in self.types),
            nodes=tuple(replace(node, op=node.op.bind(known)) for node in self.nodes),
            counts=tuple(Count(c.symbol, number(c.bound)) for c in self.counts),
        )

    def graph(self, known: Sequence[tuple[str, Array]]) -> Graph:
        """The body as a graph.

        Args:
            known: Names and arrays of the node's constant operands. Constants are called so in the
                graph, too: there is but one array for each name.
        """
        taken = {known[at][0] for at in self.constants}
        values = []
        for number, (name, kind) in enumerate(zip(self.names, self.types, strict=True)):
            at = number - self.inputs
            constant = 0 <= at < len(self.constants)
            free = known[self.constants[at]][0] if constant else _fresh(name, taken)
            values.append(Value(free, kind.dtype, kind.shape))
        constants = {values[self.inputs + i]: known[at][1] for i, at in enumerate(self.constants)}

        def named(numbers: tuple[int, ...]) -> tuple[Value, ...]:
            return tuple(values[i] for i in numbers)

        nodes = tuple(Node(n.op, named(n.inputs), named(n.outputs), n.name) for n in self.nodes)
        return Graph(
            tuple(values[: self.inputs]),
            named(self.outputs),
            nodes,
            MappingProxyType(constants),
            remarks=self.remarks,
            counts=self.counts,
        )

    def run(self, known: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
        """Its outputs, plainly computed; it has to be bound.

        Args:
            known: Arrays of the node's constant operands.
            inputs: Its inputs.
        """
        arrays = dict(enumerate(inputs))
        arrays |= {self.inputs + i: known[at] for i, at in enumerate(self.constants)}
        for node in self.nodes:
            results = storage.reference(node.op, [arrays[i] for i in node.inputs])
            for i, result in zip(node.outputs, results, strict=True):
                arrays[i] = np.asarray(result, self.types[i].dtype.numpy)
        return [arrays[i] for i in self.outputs[: len(self.outputs) - len(self.counts)]]


def embed(graph: Graph, constants: Mapping[str, int]) -> Body:
    """A graph as a body.

    Args:
        graph: The graph.
        constants: Number of the node's constant operand for the name of each constant.
    """
    numbers = {value: number for number, value in enumerate(graph.values())}
    nodes = tuple(
        BodyNode(
            node.op,
            tuple(numbers[value] for value in node.inputs),
            tuple(numbers[value] for value in node.outputs),
            node.name,
        )
        for node in graph.nodes
    )
    return Body(
        tuple(value.name for value in numbers),
        tuple(value.type for value in numbers),
        len(graph.inputs),
        tuple(constants[value.name] for value in graph.constants),
        nodes,
        tuple(numbers[value] for value in graph.outputs),
        graph.counts,
        graph.remarks,
    )


@dataclass(frozen=True)
class BodyOp(Op):
    """An operator with bodies, each a program of its own. Operands: its own, then constants.

    Attributes:
        bodies: The bodies.
        constants: How many of the last operands are constants that bodies know.
        name: What messages call the node.
    """

    bodies: tuple[Body, ...]
    constants: int
    name: str

    moves: ClassVar[bool] = True

    @property
    def pure(self) -> bool:
        """Whether all is that its bodies do."""
        return all(node.op.pure for body in self.bodies for node in body.nodes)

    @abstractmethod
    def play(self, turns: Sequence[Turn], operands: Sequence[Array]) -> list[Array]:
        """The results.

        Args:
            turns: Run the bodies.
            operands: Without the constants.

        Raises:
            LoopError: If it takes more turns than it may.
        """

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The results, with the references of the operators in its bodies."""
        own = len(inputs) - self.constants
        turns = [partial(body.run, inputs[own:]) for body in self.bodies]
        return tuple(self.play(turns, inputs[:own]))

    @property
    def symbols(self) -> frozenset[str]:
        """Names of those whose sizes `bind` needs, in the bodies as well."""
        return super().symbols.union(*(body.symbols for body in self.bodies))

    def bind(self, sizes: Mapping[str, int]) -> Self:
        """See the base class."""
        bodies = tuple(body.bind(sizes) for body in self.bodies)
        return replace(super().bind(sizes), bodies=bodies)

    def graphs(
        self, operands: Sequence[Value], constants: Mapping[Value, Array]
    ) -> tuple[Graph, ...]:
        """The bodies as graphs.

        Args:
            operands: Of the node.
            constants: Of the graph around it.
        """
        last = operands[len(operands) - self.constants :]
        known = [(value.name, constants[value]) for value in last]
        return tuple(body.graph(known) for body in self.bodies)

    def once(self) -> Work:
        """What one turn through the largest of the bodies costs; these have to be bound."""
        found = [_cost(body) for body in self.bodies]
        return Work(max(w.flops for w in found), max(w.bytes for w in found))


def _cost(body: Body) -> Work:
    works = [
        node.op.work([body.types[i] for i in node.inputs], [body.types[i] for i in node.outputs])
        for node in body.nodes
    ]
    return Work(sum(work.flops for work in works), sum(work.bytes for work in works))


def _fresh(name: str, taken: set[str]) -> str:
    """A name that no other value has."""
    fresh, count = name, 0
    while fresh in taken:
        count += 1
        fresh = f"{name}.{count}"
    taken.add(fresh)
    return fresh
