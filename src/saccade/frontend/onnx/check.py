"""Refuses broken and hostile files before anything is allocated for what they claim to hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import ModelError
from saccade.frontend.onnx import external
from saccade.frontend.onnx.check_counts import check_counts, graphs_of
from saccade.frontend.onnx.check_tensor import check_size, check_tensor
from saccade.limits import Limits

if TYPE_CHECKING:
    from mmap import mmap

    import onnx

__all__ = ["UNKNOWN", "References", "check"]

References = dict[external.Place, external.Bytes]
"""The bytes of external tensors by their place."""

# NumPy's most; the references could not compute with more axes.
_RANK = 64
UNKNOWN = -1
"""What some exporters write for an axis of any size."""


def check(
    model: onnx.ModelProto,
    folder: Path | None,
    own: mmap | None = None,
    limits: Limits | None = None,
) -> References:
    """Check a parsed file.

    Args:
        model: Anything that protobuf could parse.
        folder: Where external data may lie; None forbids it.
        own: The file that all external data lies in, if it was read without its weights.
        limits: How many nodes there may be, and how long attributes; the default ones if None.

    Returns:
        The checked and mapped external tensors.

    Raises:
        ModelError: If the file is broken or hostile; names the first thing that is wrong.
    """
    if not model.HasField("graph"):
        raise ModelError("not an ONNX model: there is no graph in it")
    if not model.opset_import:
        raise ModelError("not an ONNX model: it names no operator set")
    _check_text(model.graph.name, *(entry.domain for entry in model.opset_import))
    _check_functions(model)
    limits = limits or Limits()
    check_counts(model, limits)
    references: References = {}
    # One for all tensors: each file is opened and mapped once.
    store = external.ExternalData(folder)
    inside = None if own is None else np.frombuffer(own, np.uint8)
    unpacked = 0
    for tensor in external.tensors(model):
        # Before the place is looked at: without a sound shape there is no size to hold it against.
        size = check_tensor(tensor)
        # Elements of less than a byte take one each once they are read.
        unpacked += max(0, math.prod(tensor.dims) - size) if size else 0
        if unpacked > limits.folded_bytes:
            raise ModelError(
                f"tensor {tensor.name!r} and those before it unpack to more than "
                f"{limits.folded_bytes} bytes beyond the file's (Limits.folded_bytes)"
            )
        if tensor.data_location == tensor.EXTERNAL:
            found = store.find(tensor, size) if inside is None else _in(inside, tensor, size)
            references[found[0]] = found[1]
    # Behind `check_counts`: it recurses, and that bounds the depth.
    _check_graph(model.graph, frozenset())
    if not model.graph.output:
        raise ModelError("the graph has no outputs")
    return references


def _in(
    own: external.Bytes, tensor: onnx.TensorProto, size: int
) -> tuple[external.Place, external.Bytes]:
    """The place that `skeleton` noted."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    # The place is Saccade's own, but shape and element type beside it are the file's.
    check_size(tensor, size, int(entries["length"]))
    offset = int(entries["offset"])
    return external.key(entries["location"], offset, size), own[offset : offset + size]


def _check_graph(graph: onnx.GraphProto, outer: frozenset[str]) -> None:
    """Names, order and interface of a graph and of the graphs in its nodes."""
    if graph.sparse_initializer:
        raise ModelError("sparse initializers are not supported")
    _check_interface(graph)
    initializers = [tensor.name for tensor in graph.initializer]
    _check_unique(initializers, "initializer")
    _check_unique([value.name for value in graph.input], "input")
    # Initializers may be listed as inputs too, as older files do.
    known = set(initializers) | {value.name for value in graph.input}
    produced = _produced(graph, known, "")
    _check_order(graph, known | outer, produced)
    for value in graph.output:
        # A branch of an `If` may return a value from outside of it.
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


def _check_interface(graph: onnx.GraphProto) -> None:
    for value in [*graph.input, *graph.output]:
        _check_text(value.name)
        shape = value.type.tensor_type.shape
        if len(shape.dim) > _RANK:
            raise ModelError(f"{value.name!r} has {len(shape.dim)} axes")
        for dim in shape.dim:
            _check_text(dim.dim_param)
            # -1 stands for any size in files of some exporters; less stands for nothing.
            if dim.HasField("dim_value") and dim.dim_value < UNKNOWN:
                raise ModelError(f"{value.name!r} has an axis of {dim.dim_value}")


def _produced(
    graph: onnx.GraphProto | onnx.FunctionProto, known: set[str], where: str
) -> dict[str, int]:
    """Which node produces each name."""
    produced: dict[str, int] = {}
    for position, node in enumerate(graph.node):
        for name in node.output:
            # An empty name stands for a result that is not wanted, and may come often.
            if name and (name in produced or name in known):
                raise ModelError(f"{name!r} is produced twice{where}")
            if name:
                produced[name] = position
    return produced


def _check_order(graph: onnx.GraphProto, known: set[str], produced: dict[str, int]) -> None:
    """Every name that is read exists, and no node waits for itself."""
    edges: list[set[int]] = []
    for node in graph.node:
        _check_text(node.op_type, node.domain, node.name, *node.input, *node.output)
        before: set[int] = set()
        for name in _reads(node):
            if name in produced:
                before.add(produced[name])
            # What only subgraphs read may be their own; they are checked by themselves.
            elif name not in known and name in node.input:
                raise ModelError(
                    f"{node.op_type} {node.name!r} reads {name!r}, which nothing produces"
                )
        edges.append(before)
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                # Names that are made behind this node, too: the order is for the edges.
                _check_graph(inner, frozenset(known | produced.keys()))
    _check_acyclic(edges, graph)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, itself or somewhere in its subgraphs."""
    # A stack, not recursion: subgraphs may be nested deeper than Python goes.
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield from (name for name in current.input if name)
        for attribute in current.attribute:
            for graph in graphs_of(attribute):
                waiting.extend(graph.node)
                yield from (value.name for value in graph.output)


def _check_acyclic(edges: list[set[int]], graph: onnx.GraphProto) -> None:
    # The usual case: files are sorted, and nothing has to be counted.
    if all(not before or max(before) < position for position, before in enumerate(edges)):
        return
    # Kahn's algorithm: what never becomes ready waits for itself.
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


def _check_functions(model: onnx.ModelProto) -> None:
    """Functions make every name once, and none is there twice."""
    for function in model.functions:
        _check_text(function.domain, function.name, *function.input, *function.output)
        for node in function.node:
            _check_text(node.op_type, node.domain, node.name, *node.input, *node.output)
        _produced(function, set(function.input), f" in function {function.name!r}")
    # `check_counts` keeps them by this name, and would count but one.
    if len({(f.domain, f.name) for f in model.functions}) != len(model.functions):
        raise ModelError("a function is defined twice")
