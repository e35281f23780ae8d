"""How many nodes a file comes to once functions are expanded, and how long its attributes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from saccade.errors import ModelError
from saccade.limits import Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["check_counts", "graphs_of"]

_DEPTH = 64
"""Calls and subgraphs inside each other; Python's stack holds a few times as many."""
_Name = tuple[str, str]


def graphs_of(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in an attribute."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def check_counts(model: onnx.ModelProto, limits: Limits) -> None:
    """Functions may call each other, but neither themselves nor more nodes than can be inlined.

    Raises:
        ModelError: If they do, or the file exceeds `limits.nodes` or `limits.attribute`.
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
        self._sizes: dict[_Name, int] = {}
        self._open: set[_Name] = set()
        self._depth = 0

    def expanded(self, nodes: Iterable[onnx.NodeProto]) -> int:
        """Nodes after every call was expanded, with those of subgraphs."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise ModelError(f"functions and subgraphs are nested deeper than {_DEPTH}")
        total = 0
        for node in nodes:
            target = (node.domain, node.op_type)
            total += self.size_of(target) if target in self._functions else 1
            for attribute in node.attribute:
                self._check_length(node, attribute)
                total += sum(self.expanded(graph.node) for graph in graphs_of(attribute))
            if total > self._limits.nodes:
                most = self._limits.nodes
                raise ModelError(f"graph and functions expand to more than {most} nodes")
        self._depth -= 1
        return total

    def size_of(self, target: _Name) -> int:
        """Nodes of a function."""
        if target in self._open:
            raise ModelError(f"function {target[1]!r} calls itself")
        if target not in self._sizes:
            self._open.add(target)
            self._sizes[target] = self.expanded(self._functions[target].node)
            self._open.remove(target)
        return self._sizes[target]

    def _check_length(self, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
        length = max(len(attribute.floats), len(attribute.ints), len(attribute.strings))
        if length > self._limits.attribute:
            raise ModelError(
                f"attribute {attribute.name!r} of {node.op_type} {node.name!r} holds {length} "
                f"elements, more than {self._limits.attribute}; large constants are tensors"
            )
