"""Refuses broken and hostile files before anything is allocated for what they claim to hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.errors import ModelError
from saccade.frontend import external
from saccade.frontend.check_tensor import check_size, check_tensor

if TYPE_CHECKING:
    import onnx

__all__ = ["References", "check"]

References = dict[tuple[str, int, int], external.Reference]

_DEPTH = 16
_NODES = 1_000_000
_RANK = 64


def check(model: onnx.ModelProto, folder: Path | None, own: Path | None = None) -> References:
    """Check a parsed file.

    Args:
        model: Anything that protobuf could parse.
        folder: Where external data may lie; None forbids it.
        own: The file that all external data lies in, if it was read without its weights.

    Returns:
        The checked places of external tensors.

    Raises:
        ModelError: If the file is broken or hostile; names the first thing that is wrong.
    """
    if not model.HasField("graph"):
        raise ModelError("not an ONNX model: there is no graph in it")
    if not model.opset_import:
        raise ModelError("not an ONNX model: it names no operator set")
    _check_text(model.graph.name, *(entry.domain for entry in model.opset_import))
    _check_functions(model)
    references: References = {}
    for tensor in external.tensors(model):
        size = check_tensor(tensor)
        if tensor.data_location == tensor.EXTERNAL:
            found = external.find(tensor, folder, size) if own is None else _in(own, tensor, size)
            references[_place(tensor), found.offset, found.length] = found
    _check_graph(model.graph, frozenset(), 0)
    if not model.graph.output:
        raise ModelError("the graph has no outputs")
    return references


def _place(tensor: Any) -> str:  # noqa: ANN401 - protobuf classes are made at run time
    return str(next(e.value for e in tensor.external_data if e.key == "location"))


def _in(own: Path, tensor: Any, size: int) -> external.Reference:  # noqa: ANN401
    """The place that `skeleton` noted."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    check_size(tensor, size, int(entries["length"]))
    return external.Reference(own, int(entries["offset"]), size)


def _check_graph(graph: Any, outer: frozenset[str], depth: int) -> None:  # noqa: ANN401
    """Names, order and interface of a graph and of the graphs in its nodes."""
    if depth > _DEPTH:
        raise ModelError(f"subgraphs are nested deeper than {_DEPTH}")
    if graph.sparse_initializer:
        raise ModelError("sparse initializers are not supported")
    _check_interface(graph)
    initializers = [tensor.name for tensor in graph.initializer]
    _check_unique(initializers, "initializer")
    _check_unique([value.name for value in graph.input], "input")
    known = set(initializers) | {value.name for value in graph.input}
    produced = _produced(graph, known, "")
    _check_order(graph, known | outer, produced, depth)
    for value in graph.output:
        if value.name not in known and value.name not in produced and value.name not in outer:
            raise ModelError(f"graph output {value.name!r} is produced by no node")


def _check_text(*names: object) -> None:
    """Protobuf hands over names that are not UTF-8 as bytes."""
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the name {name!r} is not UTF-8")


def _check_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        _check_text(name)
        if not name:
            raise ModelError(f"an {what} has no name")
        if name in seen:
            raise ModelError(f"{what} {name!r} is there twice")
        seen.add(name)


def _check_interface(graph: Any) -> None:  # noqa: ANN401
    for value in [*graph.input, *graph.output]:
        _check_text(value.name)
        shape = value.type.tensor_type.shape
        if len(shape.dim) > _RANK:
            raise ModelError(f"{value.name!r} has {len(shape.dim)} axes")
        for dim in shape.dim:
            _check_text(dim.dim_param)
            if dim.HasField("dim_value") and dim.dim_value < 0:
                raise ModelError(f"{value.name!r} has an axis of {dim.dim_value}")


def _produced(graph: Any, known: set[str], where: str) -> dict[str, int]:  # noqa: ANN401
    """Which node produces each name."""
    produced: dict[str, int] = {}
    for position, node in enumerate(graph.node):
        for name in node.output:
            if name and (name in produced or name in known):
                raise ModelError(f"{name!r} is produced twice{where}")
            if name:
                produced[name] = position
    return produced


def _check_order(graph: Any, known: set[str], produced: dict[str, int], depth: int) -> None:  # noqa: ANN401
    """Every name that is read exists, and no node waits for itself."""
    edges: list[set[int]] = []
    for node in graph.node:
        _check_text(node.op_type, node.domain, node.name, *node.input, *node.output)
        before: set[int] = set()
        for name in _reads(node):
            if name in produced:
                before.add(produced[name])
            elif name not in known and name in node.input:
                raise ModelError(
                    f"{node.op_type} {node.name!r} reads {name!r}, which nothing produces"
                )
        edges.append(before)
        for attribute in node.attribute:
            for inner in _graphs(attribute):
                _check_graph(inner, frozenset(known | produced.keys()), depth + 1)
    _check_acyclic(edges, graph)


def _graphs(attribute: Any) -> Iterator[Any]:  # noqa: ANN401
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _reads(node: Any) -> Iterator[str]:  # noqa: ANN401
    """Names that a node reads, itself or somewhere in its subgraphs."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield from (name for name in current.input if name)
        for attribute in current.attribute:
            for graph in _graphs(attribute):
                waiting.extend(graph.node)
                yield from (value.name for value in graph.output)


def _check_acyclic(edges: list[set[int]], graph: Any) -> None:  # noqa: ANN401
    if all(not before or max(before) < position for position, before in enumerate(edges)):
        return
    waiting = [len(before) for before in edges]
    users: dict[int, list[int]] = {}
    for position, before in enumerate(edges):
        for producer in before:
            users.setdefault(producer, []).append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    done = 0
    while ready:
        done += 1
        for user in users.get(ready.pop(), []):
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    if done < len(edges):
        stuck = next(position for position, count in enumerate(waiting) if count)
        node = graph.node[stuck]
        raise ModelError(f"{node.op_type} {node.name!r} is part of a cycle")


def _check_functions(model: Any) -> None:  # noqa: ANN401
    """Functions may call each other, but neither themselves nor more nodes than can be inlined."""
    for function in model.functions:
        _check_text(function.domain, function.name, *function.input, *function.output)
        for node in function.node:
            _check_text(node.op_type, node.domain, node.name, *node.input, *node.output)
    functions = {(f.domain, f.name): f for f in model.functions}
    if len(functions) != len(model.functions):
        raise ModelError("a function is defined twice")
    sizes: dict[tuple[str, str], int] = {}
    open_calls: set[tuple[str, str]] = set()

    def expanded(nodes: Iterable[Any]) -> int:
        total = 0
        for node in nodes:
            target = (node.domain, node.op_type)
            total += size_of(target) if target in functions else 1
            for attribute in node.attribute:
                total += sum(expanded(graph.node) for graph in _graphs(attribute))
            if total > _NODES:
                raise ModelError(f"functions expand to more than {_NODES} nodes")
        return total

    def size_of(target: tuple[str, str]) -> int:
        if target in open_calls or len(open_calls) > _DEPTH * 4:
            raise ModelError(f"function {target[1]!r} calls itself, or is nested too deeply")
        if target not in sizes:
            open_calls.add(target)
            sizes[target] = expanded(functions[target].node)
            open_calls.remove(target)
        return sizes[target]

    for function in model.functions:
        _produced(function, set(function.input), f" in function {function.name!r}")
    expanded(model.graph.node)
