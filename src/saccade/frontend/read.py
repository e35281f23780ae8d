"""Source -> ONNX protobuf, and the folder that its external data may lie in."""

from __future__ import annotations

import hashlib
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.errors import ModelError
from saccade.frontend.remembered import noted, recall, remember
from saccade.frontend.skeleton import skeleton
from saccade.frontend.wire import mentions_external_data

if TYPE_CHECKING:
    import onnx

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
        own: The file itself, if large initializers of `proto` only name their place in there
            (`skeleton.OWN_FILE`).
    """

    proto: onnx.ModelProto
    folder: Path | None
    where: str
    own: Path | None = None


def read(source: object, *, mapped: bool = False) -> Source:
    """Parse a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.

    Args:
        source: The model.
        mapped: Whether the weights of a file may stay in there.

    Raises:
        ModelError: If there is no such file or it is not ONNX.
        TypeError: If the source is none of these.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        short = _skeleton_of(path) if mapped else None
        if short is not None:
            return Source(_parse(short, str(path)), path.parent, str(path), path)
        return Source(_parse(_read_file(path), str(path)), path.parent, str(path))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source(_parse(bytes(source), "the given bytes"), None, "the given bytes")
    import onnx  # noqa: PLC0415 - warm starts need neither onnx nor onnx_ir

    if isinstance(source, onnx.ModelProto):
        return Source(source, None, "the given ModelProto")
    import onnx_ir  # noqa: PLC0415

    if isinstance(source, onnx_ir.Model):
        return Source(_to_proto(source), None, "the given onnx_ir.Model")
    raise TypeError(
        f"a model must be a path, bytes, ModelProto or onnx_ir.Model, not {type(source)}"
    )


def _read_file(path: Path) -> bytes:
    try:
        _check_size(path)
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error


def _skeleton_of(path: Path) -> bytes | None:
    """The file without its weights; None if it has to be read whole."""
    try:
        if not _check_size(path):
            return None
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return None if mentions_external_data(view) else skeleton(view)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error


def _check_size(path: Path) -> int:
    """Bytes of the file."""
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file")
    size = path.stat().st_size
    if size >= _LARGEST_FILE:
        raise ModelError(f"{path}: larger than 2 GiB, which no ONNX file can be")
    return size


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    import onnx  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # noqa: PLC0415

    if not data:
        raise ModelError(f"{where}: empty")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{where}: not an ONNX file, or cut short") from error
    return model


def _to_proto(model: Any) -> onnx.ModelProto:  # noqa: ANN401 - onnx_ir has no stubs
    import onnx_ir  # noqa: PLC0415

    try:
        inside = onnx_ir.external_data.load_to_model(model.clone())
        return onnx_ir.to_proto(inside)
    except (onnx_ir.serde.SerdeError, ValueError, OSError) as error:
        raise ModelError(f"the given onnx_ir.Model: {error}") from error


def seen(source: object) -> bool:
    """Whether a file was digested before as it is now; also for whatever is no file."""
    if not isinstance(source, (str, os.PathLike)):
        return True
    try:
        return noted(Path(source))
    except OSError:
        return True  # which `digest` will have more to say about


def digest(source: object) -> str | None:
    """SHA-256 of a file (with its external data) or of bytes; None for models in memory.

    Raises:
        ModelError: If the file cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return hashlib.sha256(source).hexdigest()
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = Path(source)
    try:
        known = recall(path)
        if known is not None:
            return known
        total = hashlib.sha256()
        external = _external_files(path)
        for part in [path, *external]:
            with part.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        remember(path, "" if external else total.hexdigest())
    except OSError as error:
        raise ModelError(f"{path}: {error}") from error
    return total.hexdigest()


def _external_files(path: Path) -> list[Path]:
    """Files that the model refers to; it is only parsed if there are any."""
    from saccade.frontend.external import locations  # noqa: PLC0415 - most models have none

    if path.stat().st_size == 0:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if not mentions_external_data(view):
            return []
    return locations(_parse(_read_file(path), str(path)), path.parent)
