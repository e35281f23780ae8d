"""Graphs as text, one line a node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from saccade.errors import printable
from saccade.ir.body import BodyOp
from saccade.ir.dim import Dim
from saccade.ir.expr import Expr
from saccade.ir.graph import Graph, Node, Value
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.op import Op

__all__ = ["format_graph", "format_map", "format_op"]

_LONGEST_LINE = 100_000  # characters


def format_graph(graph: Graph) -> str:
    """The graph as text: inputs, constants, nodes with shapes and attributes, outputs.

    Attributes at their defaults are left out; elements of constants are not shown. Names come
    from a file and are escaped (`printable`).
    """
    return "\n".join(printable(line, _LONGEST_LINE) for line in _lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    yield f"graph {printable(graph.name)}".rstrip()
    for value in graph.inputs:
        yield f"  input {value!r}"
    for value in graph.constants:
        yield f"  const {value!r}"
    for node in graph.nodes:
        yield f"  {_format_node(node)}"
        if isinstance(node.op, BodyOp):
            for body in node.op.graphs(node.inputs, graph.constants):
                yield from (f"    {line}" for line in _lines(body))
    names = graph.output_names or tuple(value.name for value in graph.outputs)
    for name, value in zip(names, graph.outputs, strict=True):
        yield f"  output {printable(name)} = {_name(value)}"
    for one in graph.computed:
        yield f"  computed: {one.symbol}, in {len(one.body.nodes)} steps"
    for count in graph.counts:
        yield f"  found while running: {count.symbol} <= {count.bound}"


def _format_node(node: Node) -> str:
    """A node: results with types, operator, operands, and what it was in the model."""
    results = ", ".join(map(repr, node.outputs))
    operands = ", ".join(map(_name, node.inputs))
    comment = f"  # {printable(node.name)}" if node.name else ""
    return f"{results} = {format_op(node.op)}({operands}){comment}"


def format_op(op: Op) -> str:
    """The operator and those of its attributes that differ from their defaults."""
    shown = []
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            shown.append(f"{field.name}={_format(value)}")
    return op.family + (f"<{', '.join(shown)}>" if shown else "")


def format_map(index_map: IndexMap) -> str:
    """An index map such as `[a=2, (b=3 c=4)] -> [(c b), a]`: a letter for every input factor.

    After a letter, `1:3` starts at 1 and has 3 elements, `7:8:-1` also steps; `*4` repeats 4 times.
    """
    sizes = [size for group in index_map.in_factors for size in group]
    letters = iter(range(len(sizes)))
    sources = [
        # Groups first: `zip` would take a letter for nothing at the end of each group otherwise.
        [f"{_letter(i)}={size}" for size, i in zip(group, letters, strict=False)]
        for group in index_map.in_factors
    ]
    results = [[_factor(f, sizes) for f in axis] for axis in index_map.out_axes]
    return f"{_axes(sources)} -> {_axes(results)}"


def _factor(factor: Factor, sizes: list[Dim]) -> str:
    if factor.source is None:
        return f"*{factor.size}"
    letter = _letter(factor.source)
    if factor.step != 1:
        return f"{letter}{factor.start}:{factor.size}:{factor.step}"
    whole = factor.start == 0 and factor.size == sizes[factor.source]
    return letter if whole else f"{letter}{factor.start}:{factor.size}"


def _axes(groups: list[list[str]]) -> str:
    axes = [group[0] if len(group) == 1 else f"({' '.join(group)})" for group in groups]
    return f"[{', '.join(axes)}]"


def _letter(index: int) -> str:
    return chr(ord("a") + index) if index < 26 else f"f{index}"


def _name(value: Value) -> str:
    return f"%{printable(value.name)}"


def _format(value: Any) -> str:  # noqa: ANN401 - walks attribute trees
    if isinstance(value, IndexMap):
        return format_map(value)
    # Before what looks like an enumeration: expressions have a `value`, too.
    if isinstance(value, Expr):
        return str(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_format, value))})"
    if hasattr(value, "value"):  # an enumeration
        return str(value.value)
    return str(value)
