"""External data: weights that lie in files beside the model, and never anywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import ModelError
from saccade.frontend.onnx.files import map_file, open_inside

if TYPE_CHECKING:
    import onnx

__all__ = ["Bytes", "ExternalData", "Place", "files", "key", "tensors"]

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
"""A part of a file, mapped read-only."""
Place = tuple[str, int, int]
"""Location, offset and length, as a file has them."""


def key(location: object, offset: int | None, length: int) -> Place:
    """What tells one place from another, before and after `onnx_ir` has read the model."""
    # `onnx_ir` has a path and None where protobuf has text and nothing.
    return str(location), offset or 0, length


class ExternalData:
    """The external data of one model: each of its files is opened, checked and mapped once.

    Args:
        folder: Where it may lie; None where the model did not come from a file.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._mapped: dict[str, Bytes] = {}

    def find(self, tensor: onnx.TensorProto, size: int) -> tuple[Place, Bytes]:
        """Where a tensor of `size` bytes lies, and its bytes.

        Raises:
            ModelError: If the place is absolute, outside the folder, a link of either kind, no
                regular file, or does not hold the tensor.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        name = f"external data {location!r} of {tensor.name!r}"
        offset, length = _number(entries, "offset", 0, name), _number(entries, "length", size, name)
        data = self._map(location, name)
        # A file may say no length; one that it says must be right.
        if length != size:
            raise ModelError(f"{name}: {length} bytes for a tensor of {size}")
        if offset + length > data.size:
            raise ModelError(f"{name}: bytes {offset} to {offset + length} of {data.size}")
        return key(location, offset, length), data[offset : offset + length]

    def _map(self, location: str, name: str) -> Bytes:
        # Without a path, the working directory would decide what is read.
        if self._folder is None:
            raise ModelError(f"{name}: give the model as a path, so that its folder is known")
        # Opened and checked once: between two looks it could be replaced.
        if location not in self._mapped:
            with open_inside(self._folder, location, name) as file:
                self._mapped[location] = _mapped(file, name)
        return self._mapped[location]


def _mapped(file: BufferedReader, name: str) -> Bytes:
    # An empty file cannot be mapped.
    if os.fstat(file.fileno()).st_size == 0:
        return np.empty(0, np.uint8)
    try:
        return np.frombuffer(map_file(file), np.uint8)
    except (OSError, ValueError) as error:
        raise ModelError(f"{name}: {error}") from error


def _number(entries: dict[str, str], key: str, default: int, name: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    # Eighteen digits fit 63 bits, so that sums of an offset and a length do not overflow either.
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"{name}: {key} {text[:40]!r} is not a number of bytes")
    return int(text)


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All dense tensors: initializers and attributes, also those in subgraphs and functions."""
    waiting: list[onnx.GraphProto] = [model.graph]
    nodes: list[onnx.NodeProto] = [n for function in model.functions for n in function.node]
    while waiting or nodes:
        # A stack for each kind, not recursion: `digest` walks files that nothing has checked.
        if waiting:
            graph = waiting.pop()
            yield from graph.initializer
            nodes.extend(graph.node)
            continue
        for attribute in nodes.pop().attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                waiting.append(attribute.g)
            waiting.extend(attribute.graphs)


def files(model: onnx.ModelProto, folder: Path) -> Iterator[BufferedReader]:
    """The files that hold external data of a model, opened one after the other, in order of name.

    Raises:
        ModelError: If one lies elsewhere or is none that is read.
    """
    found = {
        entry.value
        for tensor in tensors(model)
        if tensor.data_location == tensor.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    # The digest must not depend on the order of a set.
    for location in sorted(found):
        with open_inside(folder, location, f"external data {location!r}") as file:
            yield file
