"""A graph while one pass rewrites it: who produces and who reads each value, kept up to date."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from types import MappingProxyType

from saccade.ir import Array, Dim, DType, Graph, Node, Op, Value, storage
from saccade.limits import Limits

__all__ = ["Editor"]


class Editor:
    """A working copy of a graph.

    A rewrite puts new nodes where an old one stood, and the new nodes produce the old results, so
    that readers stay as they are. A fused node therefore stands where the last of its parts
    stood, which is where all its operands are known. Nodes whose results nobody reads disappear
    at once.

    Args:
        graph: Left as it is.
        limits: What rewrites may come to.
    """

    def __init__(self, graph: Graph, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._graph = graph
        self._outputs = list(graph.outputs)
        self._constants = dict(graph.constants)
        self._slots: list[list[Node]] = [[node] for node in graph.nodes]
        self._slot = {node: index for index, node in enumerate(graph.nodes)}
        self._producers = graph.producers()
        self._readers = graph.uses()
        self._names = {value.name for value in graph.values()}
        self._output_set = set(graph.outputs)
        self.touched: list[Node] = []
        self.known_bytes = sum(array.nbytes for array in graph.constants.values())
        self.added_bytes = 0  # of all constants that were added, also those that went again
        # Readers stand behind what they read: backwards, one walk removes whole chains.
        for node in reversed(graph.nodes):
            self._sweep(node)

    def graph(self) -> Graph:
        """The frozen result."""
        nodes = tuple(node for slot in self._slots for node in slot)
        return self._graph.with_nodes(
            nodes, MappingProxyType(self._constants), tuple(self._outputs)
        )

    def nodes(self) -> list[Node]:
        """All nodes, in an order in which values are produced before they are read."""
        return [node for slot in self._slots for node in slot]

    def alive(self, node: Node) -> bool:
        """Whether the node is still part of the graph."""
        return node in self._slot

    def producer(self, value: Value) -> Node | None:
        """The node behind a value; None for inputs and constants."""
        return self._producers.get(value)

    def readers(self, value: Value) -> list[Node]:
        """Nodes that read the value, one twice if it reads it twice."""
        return self._readers[value]

    def is_output(self, value: Value) -> bool:
        """Whether the graph hands the value to the caller."""
        return value in self._output_set

    def single_use(self, value: Value) -> bool:
        """Whether one node alone reads the value, and the caller does not get it."""
        readers = self._readers[value]
        return (
            bool(readers)
            and all(node is readers[0] for node in readers)
            and not self.is_output(value)
        )

    def constant(self, value: Value) -> Array | None:
        """The array of a constant, else None."""
        return self._constants.get(value)

    def before(self, one: Node, other: Node) -> bool:
        """Whether `one` stands before `other`."""
        first, second = self._slot[one], self._slot[other]
        # Nodes that one rewrite put in place of another share its slot.
        if first == second:
            return self._slots[first].index(one) < self._slots[first].index(other)
        return first < second

    def add_constant(self, array: Array, near: str) -> Value:
        """A new constant, named after the value `near`."""
        array.flags.writeable = False
        self.added_bytes += array.nbytes
        value = self.new_value(near, DType.of(array.dtype), array.shape)
        self._constants[value] = array
        self._readers[value] = []
        return value

    def new_value(self, near: str, dtype: DType, shape: tuple[Dim, ...]) -> Value:
        """A value that has no producer yet, named after the value `near`."""
        number = 1
        while (name := f"{near}.{number}") in self._names:
            number += 1
        self._names.add(name)
        return Value(name, dtype, shape)

    def emit(
        self,
        old: Node,
        op: Op,
        inputs: Iterable[Value],
        near: str = "",
        dtype: DType | None = None,
    ) -> Value:
        """A new node in front of `old`; its one result, whose type the operator infers.

        The result is stored as `dtype` where it is given.
        """
        operands = tuple(inputs)
        (kind,) = storage.infer(op, [value.type for value in operands])
        name = near or old.outputs[0].name
        result = self.new_value(name, dtype or kind.dtype, kind.shape)
        self._insert(old, Node(op, operands, (result,), old.name))
        return result

    def replace(self, old: Node, op: Op, inputs: Iterable[Value]) -> Node:
        """Compute the results of `old` with another operator, in its place."""
        node = Node(op, tuple(inputs), old.outputs, old.name)
        self._insert(old, node)
        self._detach(old)
        return node

    def retype(
        self, old: Node, inputs: Iterable[Value], dtype: DType, keep: Container[Value] = ()
    ) -> None:
        """Compute `old` from other operands, and store its float32 results as `dtype`.

        The results keep their names, those in `keep` their type.
        """
        outputs = tuple(
            Value(v.name, dtype, v.shape) if v.dtype is DType.F32 and v not in keep else v
            for v in old.outputs
        )
        self._insert(old, Node(old.op, tuple(inputs), outputs, old.name))
        for before, after in zip(old.outputs, outputs, strict=True):
            if before is not after:
                self.alias(before, after)
        # Nobody reads the old results any more, so the last `alias` may have removed it.
        if self.alive(old):
            self._detach(old)

    def alias(self, old: Value, new: Value) -> None:
        """Let everyone who reads `old` read `new` instead."""
        # A copy without repeats: the list changes while readers are replaced.
        for reader in dict.fromkeys(self._readers[old]):
            inputs = tuple(new if value is old else value for value in reader.inputs)
            self._insert(reader, replace(reader, inputs=inputs))
            self._detach(reader)
        if old in self._output_set:
            self._outputs = [new if value is old else value for value in self._outputs]
            self._output_set = set(self._outputs)
        producer = self._producers.get(old)
        if producer is not None:
            self._sweep(producer)

    def _insert(self, at: Node, node: Node) -> None:
        slot = self._slot[at]
        self._slots[slot].insert(self._slots[slot].index(at), node)
        self._slot[node] = slot
        for value in node.inputs:
            self._readers[value].append(node)
        for value in node.outputs:
            self._producers[value] = node
            self._readers.setdefault(value, [])
        self.touched.append(node)

    def _detach(self, node: Node) -> None:
        self._slots[self._slot.pop(node)].remove(node)
        for value in node.outputs:
            # A replacement has announced itself as the producer before its predecessor goes.
            if self._producers.get(value) is node:
                del self._producers[value]
        for value in node.inputs:
            self._readers[value].remove(node)
        for value in node.inputs:
            producer = self._producers.get(value)
            if producer is not None:
                self._sweep(producer)

    def _sweep(self, node: Node) -> None:
        """Remove the node if nobody wants its results, and then what only it read."""
        if node in self._slot and not any(
            self._readers[value] or value in self._output_set for value in node.outputs
        ):
            self._detach(node)
