"""How many nodes a file comes to once functions are expanded, and how long its attributes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from saccade.errors import ModelError
from saccade.limits import Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["check_counts", "graphs_of"]

_Name = tuple[str, str]


def graphs_of(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in an attribute."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def check_counts(model: onnx.ModelProto, limits: Limits) -> None:
    """Functions may call each other, but neither themselves nor more nodes than can be inlined.

    Raises:
        ModelError: If they do, or the file exceeds `limits.nodes`, `.depth` or `.attribute`.
    """
    count = _FunctionSizes({(f.domain, f.name): f for f in model.functions}, limits)
    count.expanded(model.graph.node)
    for function in model.functions:  # also those that nobody calls
        count.size_of((function.domain, function.name))


class _FunctionSizes:
    """Sizes of functions, each counted once."""

    def __init__(self, functions: dict[_Name, onnx.FunctionProto], limits: Limits) -> None:
        self._functions = functions
        self._limits = limits
        self._sizes: dict[_Name, tuple[int, int]] = {}
        self._open: set[_Name] = set()

    def expanded(self, nodes: Iterable[onnx.NodeProto], above: int = 0) -> tuple[int, int]:
        """Nodes after every call was expanded, with those of subgraphs; how deep these go.

        Args:
            nodes: Of a graph or a function.
            above: How many of those it lies in.
        """
        total = deepest = 0
        for node in nodes:
            target = (node.domain, node.op_type)
            inside = [self.size_of(target, above)] if target in self._functions else []
            total += not inside
            for attribute in node.attribute:
                self._check_length(node, attribute)
                for graph in graphs_of(attribute):
                    self._check_depth(above + 1)
                    inside.append(self.expanded(graph.node, above + 1))
            total += sum(count for count, _ in inside)
            deepest = max([deepest, *(depth + 1 for _, depth in inside)])
            if total > self._limits.nodes:
                most = self._limits.nodes
                raise ModelError(
                    f"graph and functions expand to more than {most} nodes (Limits.nodes)"
                )
        # `deepest` may come from a function counted elsewhere, at a smaller depth than here.
        self._check_depth(above + deepest)
        return total, deepest

    def size_of(self, target: _Name, above: int = 0) -> tuple[int, int]:
        """Nodes of a function, and how deep they go."""
        # Such a body would be expanded without end.
        if target in self._open:
            raise ModelError(f"function {target[1]!r} calls itself")
        if target not in self._sizes:
            # Before the recursion goes deeper: the stack must not end first.
            self._check_depth(above + 1)
            self._open.add(target)
            self._sizes[target] = self.expanded(self._functions[target].node, above + 1)
            self._open.remove(target)
        return self._sizes[target]

    def _check_depth(self, depth: int) -> None:
        if depth > self._limits.depth:
            raise ModelError(
                f"functions and subgraphs are nested deeper than {self._limits.depth} "
                "(Limits.depth)"
            )

    def _check_length(self, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
        length = max(len(attribute.floats), len(attribute.ints), len(attribute.strings))
        if length > self._limits.attribute:
            raise ModelError(
                f"attribute {attribute.name!r} of {node.op_type} {node.name!r} holds {length} "
                f"elements, more than {self._limits.attribute} (Limits.attribute); large "
                "constants are tensors"
            )
