"""Source -> ONNX protobuf, and the folder that its external data may lie in."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.errors import ModelError
from saccade.frontend.onnx.files import map_file, model_path, open_model, why
from saccade.frontend.onnx.remembered import noted, recall, remember
from saccade.frontend.onnx.skeleton import skeleton
from saccade.frontend.onnx.wire import mentions_external_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx
    import onnx_ir

__all__ = ["Source", "digest", "read", "seen"]

_LARGEST_FILE = 1 << 31
"""Protobuf cannot hold more; larger models keep their weights in external files."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model as it was given.

    Attributes:
        proto: The parsed file; nothing in it is checked yet.
        folder: Folder of the file; None if the model did not come from one.
        where: What messages call it.
        own: The file itself, mapped, if large initializers of `proto` only name their place in
            there (`skeleton.OWN_FILE`).
    """

    proto: onnx.ModelProto
    folder: Path | None
    where: str
    own: mmap | None = None


def read(source: object, *, mapped: bool = False) -> Source:
    """Parse a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.

    Args:
        source: The model.
        mapped: Whether the weights of a file may stay in there.

    Raises:
        ModelError: If there is no such file, it is not ONNX, or the source is none of these.
    """
    if isinstance(source, (str, os.PathLike)):
        return _read_path(model_path(source), mapped)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source(_parse(bytes(source), "the given bytes"), None, "the given bytes")
    import onnx  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    if isinstance(source, onnx.ModelProto):
        return Source(source, None, "the given ModelProto")
    import onnx_ir  # noqa: PLC0415

    if isinstance(source, onnx_ir.Model):
        return _of_ir(source)
    kind = type(source).__name__
    raise ModelError(f"a model must be a path, bytes, ModelProto or onnx_ir.Model, not {kind}")


def _read_path(path: Path, mapped: bool) -> Source:
    where = str(path)
    with open_model(path) as file:
        try:
            # An empty file cannot be mapped; parsing it says that it is empty.
            view = map_file(file) if _size_of(file, where) and mapped else None
            short = None
            # `check` takes external data to lie in the file itself or beside it, not in both.
            if view is not None and not mentions_external_data(view):
                short = skeleton(view)  # None for what has to be read whole
            data = file.read() if short is None else short
        except OSError as error:
            raise ModelError(f"{where}: {why(error)}") from error
    return Source(_parse(data, where), path.parent, where, None if short is None else view)


def _size_of(file: BufferedReader, where: str) -> int:
    """Bytes of the file."""
    size = os.fstat(file.fileno()).st_size
    if size >= _LARGEST_FILE:
        raise ModelError(f"{where}: larger than 2 GiB, which no ONNX file can be")
    return size


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    if not data:
        raise ModelError(f"{where}: empty")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{where}: not an ONNX file, or cut short") from error
    return model


def _of_ir(model: onnx_ir.Model) -> Source:
    """Its external data stays where it is, to be checked as that of a file."""
    import onnx_ir  # noqa: PLC0415

    where = "the given onnx_ir.Model"
    folders = {os.fspath(tensor.base_dir) for tensor in _external(model)}
    # A `Source` has one folder, and nothing outside of it is read.
    if len(folders) > 1:
        raise ModelError(f"{where}: external data in {len(folders)} folders; it must be in one")
    try:
        proto = onnx_ir.to_proto(model)
    except (onnx_ir.serde.SerdeError, ValueError, OSError) as error:
        raise ModelError(f"{where}: {error}") from None
    folder = next(iter(folders), "")
    return Source(proto, model_path(folder) if folder else None, where)


def _external(model: onnx_ir.Model) -> Iterator[onnx_ir.ExternalTensor]:
    """The tensors whose elements lie in files."""
    import onnx_ir  # noqa: PLC0415

    for graph in model.graphs():
        found = [value.const_value for value in graph.initializers.values()]
        yield from (tensor for tensor in found if isinstance(tensor, onnx_ir.ExternalTensor))
    for part in (*model.graphs(), *model.functions.values()):
        for attribute in (one for node in part for one in node.attributes.values()):
            held = attribute.value
            values = held if isinstance(held, (tuple, list)) else (held,)
            yield from (one for one in values if isinstance(one, onnx_ir.ExternalTensor))


def seen(source: object) -> bool:
    """Whether a file was digested before as it is now; also for whatever is no file."""
    if not isinstance(source, (str, os.PathLike)):
        return True
    with suppress(OSError):  # which `digest` will have more to say about
        return noted(model_path(source))
    return True


def digest(source: object) -> str | None:
    """SHA-256 of a file (with its external data) or of bytes; None for models in memory.

    Raises:
        ModelError: If the file cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return hashlib.sha256(source).hexdigest()
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = model_path(source)
    try:
        known = recall(path)
        if known is not None:
            return known
        with open_model(path) as file:
            parts = [hashlib.file_digest(file, "sha256").digest()]
            parts += _external_digests(file, path)
        found = hashlib.sha256(b"".join(parts)).hexdigest()
        # What the file system says of this file says nothing of the others.
        remember(path, "" if len(parts) > 1 else found)
    except OSError as error:
        raise ModelError(f"{path}: {why(error)}") from error
    return found


def _external_digests(file: BufferedReader, path: Path) -> list[bytes]:
    """Of the files that the model refers to; it is only parsed if there are any."""
    if _size_of(file, str(path)) == 0:
        return []
    with map_file(file) as view:
        if not mentions_external_data(view):
            return []
    from saccade.frontend.onnx.external import files  # noqa: PLC0415 - most models have none

    # `file_digest` has left it at its end.
    file.seek(0)
    model = _parse(file.read(), str(path))
    return [hashlib.file_digest(part, "sha256").digest() for part in files(model, path.parent)]
