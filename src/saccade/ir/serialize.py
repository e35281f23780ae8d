"""A graph as one file: a checked JSON header and raw constants that come back memory-mapped.

The file's format is `graphfile`'s. Operators are written as class name and fields, dims and
expressions as their text; nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from saccade.errors import CacheError
from saccade.graphfile import MALFORMED, Seal, aligned, checksum, digest, open_graph, prefix, sound
from saccade.ir import expr
from saccade.ir.body import Body, BodyNode
from saccade.ir.computed import ComputedSize, KnownArray
from saccade.ir.counts import Count
from saccade.ir.dim import Affine, Dim
from saccade.ir.dtype import DType
from saccade.ir.expr import Expr
from saccade.ir.graph import Graph, Node, Value
from saccade.ir.index_map import Factor, IndexMap
from saccade.ir.op import Array, Op, TensorType
from saccade.locks import forkless

__all__ = ["check", "decode_op", "digest", "encode_op", "load", "save"]


def save(graph: Graph, file: int, seal: Seal = digest) -> None:
    """Write a graph; the caller sees to it that nobody reads the file before it is whole.

    Args:
        graph: The graph.
        file: Descriptor of an empty file.
        seal: Of the header, which holds the sums of the constants.

    Raises:
        OSError: If the file cannot be written.
    """
    arrays = {value: np.ascontiguousarray(array) for value, array in graph.constants.items()}
    header, blobs = _header(graph, arrays)
    text = json.dumps(header, separators=(",", ":")).encode()
    head = prefix(text, seal) + text
    start, at = aligned(len(head)), len(head)
    # The descriptor is the caller's to close.
    with os.fdopen(file, "wb", closefd=False) as stream:
        stream.write(head)
        for offset, blob in [*blobs, (header["bytes"], np.empty(0, np.uint8))]:
            stream.write(bytes(start + offset - at))  # no holes: the file will be mapped
            stream.write(blob.data)
            at = start + offset + blob.size


def load(file: int, where: str, seal: Seal = digest) -> Graph:
    """Read a graph back; its constants are read-only and mapped from the file.

    The classes of its operators have to be imported (`saccade.opdefs`).

    Args:
        file: Descriptor of the file.
        where: Its path, for messages.
        seal: As when it was saved.

    Raises:
        CacheError: If the file is damaged, of another version, or sealed by somebody else.
    """
    header, blobs = open_graph(file, where, seal)
    try:
        return _graph(header, blobs, where)
    except MALFORMED as error:
        raise CacheError(f"{where}: not a graph of this version: {error!r}") from error


def check(file: int, where: str, seal: Seal = digest) -> None:
    """See whether a file is exactly what was saved, by whatever version; arguments as of `load`.

    Raises:
        CacheError: If it is not.
    """
    header, blobs = open_graph(file, where, seal)
    try:
        for position, offset, total, size in header["constants"]:
            sound(blobs, offset, total, size, f"{where}: constant {position}")
    except MALFORMED as error:
        raise CacheError(f"{where}: not a graph: {error!r}") from error


# -- writing ------------------------------------------------------------


def _header(
    graph: Graph, arrays: dict[Value, Array]
) -> tuple[dict[str, Any], list[tuple[int, Array]]]:
    # By position: names come from a file, and identity does not survive it.
    index = {value: position for position, value in enumerate(graph.values())}
    placed: dict[tuple[int, int], tuple[int, int]] = {}  # constants may share their bytes
    constants: list[list[int]] = []
    blobs: list[tuple[int, Array]] = []
    end = 0
    for value, array in arrays.items():
        raw = array.reshape(-1).view(np.uint8)
        key = (raw.ctypes.data, raw.size)
        if key not in placed:
            offset = aligned(end)
            placed[key] = (offset, checksum(raw))
            blobs.append((offset, raw))
            end = offset + raw.size
        constants.append([index[value], *placed[key], raw.size])
    header = {
        "name": graph.name,
        "values": [[v.name, v.dtype.value, [_dim(d) for d in v.shape]] for v in index],
        "inputs": [index[v] for v in graph.inputs],
        "outputs": [index[v] for v in graph.outputs],
        "output_names": graph.output_names,
        "nodes": [_node(node, index) for node in graph.nodes],
        "constants": constants,
        "remarks": graph.remarks,
        "counts": [[count.symbol, _dim(count.bound)] for count in graph.counts],
        "computed": [_encode(one) for one in graph.computed],
        "held": dict(graph.held),
        "bytes": end,
    }
    return header, blobs


def _dim(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def _node(node: Node, index: dict[Value, int]) -> list[Any]:
    return [
        *encode_op(node.op),
        [index[value] for value in node.inputs],
        [index[value] for value in node.outputs],
        node.name,
    ]


def encode_op(op: Op) -> list[Any]:
    """An operator as plain data for JSON: class name and fields."""
    return [op.family, {f.name: _encode(getattr(op, f.name)) for f in dataclasses.fields(op)}]


def _encode(value: Any) -> Any:  # noqa: ANN401 - walks attribute trees
    # Before dims: a dim that is known is a plain integer.
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [_encode(v) for v in value]
    if isinstance(value, Affine):
        return {"dim": str(value)}
    if isinstance(value, Expr):
        return {"expr": str(value)}
    if isinstance(value, DType):
        return {"dtype": value.value}
    if isinstance(value, Op):
        return {"op": encode_op(value)}
    # After dims and expressions, which are dataclasses that have a shorter text.
    if dataclasses.is_dataclass(value):
        fields = {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    raise TypeError(f"an operator has an attribute of type {type(value).__name__}")


# -- reading ------------------------------------------------------------


def _graph(header: dict[str, Any], blobs: Array, where: str) -> Graph:
    values = [
        Value(name, DType(dtype), tuple(map(_read_dim, shape)))
        for name, dtype, shape in header["values"]
    ]
    constants: dict[Value, Array] = {}
    for position, offset, total, size in header["constants"]:
        value = values[position]
        raw = sound(blobs, offset, total, size, f"{where}: the constant {value.name!r}")
        constants[value] = raw.view(value.dtype.numpy).reshape(value.shape)
    return Graph(
        inputs=tuple(values[i] for i in header["inputs"]),
        outputs=tuple(values[i] for i in header["outputs"]),
        nodes=tuple(_decode_node(entry, values) for entry in header["nodes"]),
        constants=MappingProxyType(constants),
        output_names=tuple(header["output_names"]),
        name=header["name"],
        remarks=tuple(header["remarks"]),
        counts=tuple(Count(symbol, _read_dim(bound)) for symbol, bound in header["counts"]),
        computed=tuple(_decode(one, ComputedSize, {}) for one in header["computed"]),
        held=MappingProxyType(header["held"]),
    )


def _read_dim(dim: int | str) -> Dim:
    return dim if isinstance(dim, int) else _parse_dim(dim)


def _parse_dim(text: str) -> Dim:
    with forkless:
        from saccade.ir.dim_parser import parse_dims  # noqa: PLC0415 - most graphs have no such dim

    return parse_dims(text)


def _decode_node(entry: list[Any], values: list[Value]) -> Node:
    *plain, inputs, outputs, name = entry
    op = decode_op(plain)
    ins, outs = (tuple(values[i] for i in indices) for indices in (inputs, outputs))
    return Node(op, ins, outs, name)


def decode_op(plain: list[Any], own: Mapping[str, type[Op]] = MappingProxyType({})) -> Op:
    """The operator that `encode_op` wrote; its class has to be imported (`saccade.opdefs`).

    Args:
        plain: Class name and fields.
        own: Operators of a device by class name, which it has beside those of `opdefs`.
    """
    family, fields = plain
    kind = own.get(family) or _families()[family]
    return kind(**{field: _decode(value, kind, own) for field, value in fields.items()})


def _families() -> dict[str, type[Op]]:
    """Every operator class that has been imported, by name."""
    # The count is the key: importing more operators adds classes, and never takes any away.
    return _known(len(Op.__subclasses__()))


@lru_cache(maxsize=1)
def _known(_count: int) -> dict[str, type[Op]]:
    found: dict[str, type[Op]] = {}
    waiting = list(Op.__subclasses__())
    while waiting:
        kind = waiting.pop()
        found[kind.__name__] = kind
        waiting.extend(kind.__subclasses__())
    return found


# Layers of one kind repeat their epilogues, and expressions are frozen.
_parse_expr = lru_cache(maxsize=4096)(expr.parse)


def _decode(value: Any, owner: type[Any], own: Mapping[str, type[Op]]) -> Any:  # noqa: ANN401 - walks attribute trees
    if isinstance(value, list):
        return tuple(_decode(v, owner, own) for v in value)
    if not isinstance(value, dict):
        return value
    if "dim" in value:
        return _parse_dim(value["dim"])
    if "expr" in value:
        return _parse_expr(value["expr"])
    if "dtype" in value:
        return DType(value["dtype"])
    if "op" in value:
        return decode_op(value["op"], own)
    kind = _record(value["class"], owner)
    return kind(**{name: _decode(field, kind, own) for name, field in value["fields"].items()})


_OF_THE_IR: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Body, BodyNode, ComputedSize, Count, Factor, IndexMap, KnownArray, TensorType)
}


def _record(name: str, owner: type[Any]) -> type[Any]:
    """A dataclass that operators hold: of the IR, or defined beside the operator."""
    if name in _OF_THE_IR:
        return _OF_THE_IR[name]
    # Looked up beside the operator and never by a path from the file, which could name anything.
    kind = getattr(sys.modules[owner.__module__], name)
    # A module also holds functions and what it imports.
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise TypeError(f"{name} is not a record")
    return kind
