"""Parts of a graph under construction that become bodies: nodes apart from those around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from saccade.frontend.onnx.builder import Builder
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Body, BodyOp, Count, Graph, Node, Value, embed
from saccade.ir.counts import depends
from saccade.opdefs import OnnxReference

__all__ = ["Captured", "Part", "captured", "costly"]


class Part:
    """Nodes of their own, which a builder fills as long as it is entered; it may be again.

    What a builder found in a part (sizes as tensors, places of lists) it forgets at the end, as
    nothing outside of the part may read it.

    Args:
        build: The builder.

    Attributes:
        nodes: What was made.
        counts: Sizes that steps of it find out, as of the builder.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._memory = build.memory()
        self.nodes: list[Node] = []
        self.counts: dict[str, tuple[Count, Value]] = {}

    def __enter__(self) -> Self:
        build = self._build
        self._outer, build.nodes = build.nodes, self.nodes
        self._around, self._before = build.recall(self._memory), set(build.counts)
        # Entered again, its sizes are known again.
        build.counts.update(self.counts)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        build = self._build
        build.nodes = self._outer
        self._memory = build.recall(self._around)
        for name in [name for name in build.counts if name not in self._before]:
            self.counts[name] = build.counts.pop(name)

    def merge(self) -> None:
        """Make its nodes part of what is around it after all."""
        self._build.nodes.extend(self.nodes)
        self._build.counts.update(self.counts)

    def hoist(self, varying: Sequence[Value]) -> None:
        """Leave in it what depends on these values, and give the rest to what is around it.

        What is another result each time (random numbers) stays, too.
        """
        inside, left, counts = set(varying), list[Node](), self.counts
        found = {value: name for name, (_, value) in counts.items()}
        sizes: set[str] = set()
        for node in self.nodes:
            # A constant may be repeated as often as a step of the body finds out.
            sized = any(depends(dim, sizes) for value in node.outputs for dim in value.shape)
            if node.op.pure and inside.isdisjoint(node.inputs) and not sized:
                self._build.nodes.append(node)
            else:
                inside.update(node.outputs)
                sizes.update(found[value] for value in node.outputs if value in found)
                left.append(node)
        self.nodes = left
        self.counts = {name: found for name, found in counts.items() if found[1] in inside}
        for name in counts.keys() - self.counts.keys():
            self._build.counts[name] = counts[name]

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        """The nodes that its outputs need.

        Raises:
            Refusal: If the size of an output is one that its own steps find out.
        """
        for value in outputs:
            if any(depends(dim, self.counts) for dim in value.shape):
                raise Refusal("a body gives as many elements as its own steps find out")
        whole = self._build.part(self.nodes, self.counts, outputs)
        return Graph(
            tuple(inputs), whole.outputs, whole.nodes, whole.constants, counts=whole.counts
        )


@dataclass(frozen=True, slots=True)
class Captured:
    """Bodies, and what they read from around them.

    Attributes:
        bodies: Taking their own inputs and then all that any of them reads.
        values: What that is.
        constants: What bodies know.
    """

    bodies: tuple[Body, ...]
    values: tuple[Value, ...]
    constants: tuple[Value, ...]


def captured(graphs: Sequence[Graph]) -> Captured:
    """The bodies of graphs whose nodes read values from around them."""
    outside: dict[Value, None] = {}
    constants: dict[Value, int] = {}
    for graph in graphs:
        made = {*graph.inputs, *(value for node in graph.nodes for value in node.outputs)}
        read = [value for node in graph.nodes for value in node.inputs]
        for value in (*read, *graph.outputs):
            if value in graph.constants:
                constants.setdefault(value, len(constants))
            elif value not in made:
                outside.setdefault(value)
    numbers = {value.name: number for value, number in constants.items()}
    bodies = tuple(
        embed(
            Graph(
                (*graph.inputs, *outside),
                graph.outputs,
                graph.nodes,
                graph.constants,
                counts=graph.counts,
            ),
            numbers,
        )
        for graph in graphs
    )
    return Captured(bodies, tuple(outside), tuple(constants))


def costly(nodes: Sequence[Node]) -> bool:
    """Whether it is worth a program of its own not to compute these in vain."""
    # ONNX's reference implementation is slow, and may fail on what a branch was to guard.
    return any(node.op.contracts or isinstance(node.op, BodyOp | OnnxReference) for node in nodes)
