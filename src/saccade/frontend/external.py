"""External data: weights that lie in files beside the model, and never anywhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["Reference", "find", "key", "locations", "map_bytes", "tensors"]


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a tensor's bytes lie: checked to be inside the model's folder and inside the file."""

    path: Path
    offset: int
    length: int


def key(location: object, offset: int | None, length: int) -> tuple[str, int, int]:
    """What tells one place from another, before and after `onnx_ir` has read the model."""
    return str(location), offset or 0, length


def find(tensor: onnx.TensorProto, folder: Path | None, size: int) -> Reference:
    """The checked place of an external tensor of `size` bytes.

    Raises:
        ModelError: If the place is absolute, outside the folder, a link, no regular file, or does
            not hold the tensor.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    name = f"external data {location!r} of {tensor.name!r}"
    if folder is None:
        raise ModelError(f"{name}: give the model as a path, so that its folder is known")
    path = _inside(folder, location, name)
    offset, length = _number(entries, "offset", 0, name), _number(entries, "length", size, name)
    try:
        status = path.stat(follow_symlinks=False)
    except (OSError, ValueError) as error:
        raise ModelError(f"{name}: there is no such file") from error
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{name}: not a regular file")
    if length != size:
        raise ModelError(f"{name}: {length} bytes for a tensor of {size}")
    if offset + length > status.st_size:
        raise ModelError(f"{name}: bytes {offset} to {offset + length} of {status.st_size}")
    return Reference(path, offset, length)


def _inside(folder: Path, location: str, name: str) -> Path:
    parts = Path(location).parts
    if not parts or "\0" in location or Path(location).is_absolute() or ".." in parts:
        raise ModelError(f"{name}: only files in the model's own folder are read")
    root = Path(os.path.realpath(folder))
    path = root / location
    if Path(os.path.realpath(path)) != path:
        raise ModelError(f"{name}: links are not followed")
    return path


def _number(entries: dict[str, str], key: str, default: int, name: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"{name}: {key} {text[:40]!r} is not a number of bytes")
    return int(text)


def map_bytes(reference: Reference) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes, mapped read-only.

    Raises:
        ModelError: If the file is not what it was when it was checked.
    """
    if reference.length == 0:
        return np.empty(0, np.uint8)
    try:
        descriptor = os.open(reference.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb") as file:
            return np.memmap(
                file, np.uint8, mode="r", offset=reference.offset, shape=(reference.length,)
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"{reference.path}: {error}") from error


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All dense tensors: initializers and attributes, also those in subgraphs and functions."""
    waiting: list[Any] = [model.graph]
    nodes: list[Any] = [node for function in model.functions for node in function.node]
    while waiting or nodes:
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


def locations(model: onnx.ModelProto, folder: Path) -> list[Path]:
    """Files that hold external data of a model and lie in its folder, sorted.

    Raises:
        ModelError: If one would lie elsewhere.
    """
    found: set[Path] = set()
    for tensor in tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    found.add(_inside(folder, entry.value, f"external data {entry.value!r}"))
    return sorted(found)
