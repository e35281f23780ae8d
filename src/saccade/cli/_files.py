"""Tensors from and to the files of the command line."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.cli._images import (
    WRITTEN_SUFFIXES,
    ImageInput,
    Preparation,
    read_image,
    reads_image,
    write_image,
)
from saccade.cli._shapes import check_names
from saccade.cli._signature import FILE_WAYS, IMAGE_WAYS, check_fits
from saccade.cli._types import Arrays, TensorInfoLike
from saccade.errors import InputError, meant
from saccade.files import whole_file

__all__ = ["WRITTEN", "array_files", "read_files", "write_outputs"]

WRITTEN = ".npy, .npz, .png, .jpg or .webp"
"""Files that results become, for messages."""


def read_files(
    texts: Sequence[str],
    inputs: Sequence[TensorInfoLike],
    preparation: Preparation | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> tuple[Arrays, dict[str, ImageInput]]:
    """The arrays of `[NAME=]FILE` texts, by input name and in each input's dtype; and the images.

    Files without a name go to the inputs that no other file names, in order; an .npz without a name
    holds arrays under the inputs' names.

    Args:
        texts: What the user gave.
        inputs: Of the model.
        preparation: What is done with images.
        shapes: Of inputs, which the user said.

    Raises:
        InputError: A file is missing or unreadable, or does not fit the model.
    """
    images: dict[str, ImageInput] = {}

    def read(path: Path, info: TensorInfoLike) -> NDArray[Any]:
        found = _read(path, info, preparation, shapes.get(info.name))
        if not isinstance(found, ImageInput):
            return found
        images[info.name] = found
        return found.values

    known = {info.name: info for info in inputs}
    named: Arrays = {}
    nameless: list[Path] = []
    for text in texts:
        name, path = _split(text, known)
        if name is not None:
            _add(named, known[name], read(path, known[name]), path)
        elif path.suffix.lower() == ".npz":
            for key, array in _read_npz(path).items():
                if key not in known:
                    near = meant(key, known)
                    raise InputError(
                        f"{path}: {key!r} is no input{near}; the model has {', '.join(known)}"
                    )
                _add(named, known[key], array, path)
        else:
            nameless.append(path)
    free = [info for info in inputs if info.name not in named]
    if len(nameless) > len(free):
        raise InputError(f"{nameless[len(free)]}: the model has {len(inputs)} input(s) only")
    for path, info in zip(nameless, free, strict=False):
        _add(named, info, read(path, info), path)
    return named, images


def _split(text: str, known: Mapping[str, TensorInfoLike]) -> tuple[str | None, Path]:
    """Name and path; an equals sign may also be part of a file's name."""
    name, sign, rest = text.partition("=")
    whole = Path(text)
    if sign and name in known:
        result: tuple[str | None, Path] = (name, Path(rest))
    elif sign and not whole.exists():
        check_names([name], list(known.values()))
    else:
        result = (None, whole)
    if not result[1].is_file():
        raise InputError(f"{result[1]}: no such file")
    return result


def _read(
    path: Path,
    info: TensorInfoLike,
    preparation: Preparation | None,
    shape: tuple[int, ...] | None,
) -> NDArray[Any] | ImageInput:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays = _read_npz(path)
        if info.name not in arrays and len(arrays) != 1:
            raise InputError(f"{path} holds {', '.join(arrays)}, but no {info.name!r}")
        return arrays[info.name] if info.name in arrays else next(iter(arrays.values()))
    if suffix != ".npy":
        if reads_image(path):
            return read_image(path, info, preparation, shape)
        raise InputError(f"{path}: an input is a .npy or .npz file, or an image")
    try:
        # A pickle could run anything.
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} is not a NumPy array: {error}") from None
    return array


def _read_npz(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a NumPy archive: {error}") from None


def _add(arrays: Arrays, info: TensorInfoLike, array: NDArray[Any], path: Path) -> None:
    if info.name in arrays:
        raise InputError(f"{path}: input {info.name!r} is given twice")
    array_file = path.suffix.lower() in (".npy", ".npz")
    check_fits(info, array.shape, FILE_WAYS if array_file else IMAGE_WAYS)
    dtype = np.dtype(info.dtype)
    # Rounding floats to the model's width is meant; anything else that loses values is not.
    both_float = array.dtype.kind == "f" and dtype.kind == "f"
    if not both_float and not np.can_cast(array.dtype, dtype, "safe"):
        raise InputError(f"{path}: input {info.name!r} takes {dtype}, not {array.dtype}")
    arrays[info.name] = np.ascontiguousarray(array, dtype=dtype)


def write_outputs(target: Path, outputs: Arrays) -> list[Path]:
    """Write to an .npz, .npy or image, or one .npy each into a folder; returns the files written.

    Raises:
        InputError: The file's kind is unknown, or does not take these outputs.
    """
    suffix = target.suffix.lower()
    if target.is_dir() or (not suffix and not target.is_file()):
        target.mkdir(parents=True, exist_ok=True)
        files = array_files(target, outputs)
        for file, array in zip(files, outputs.values(), strict=True):
            _save(file, array)
        return files
    if suffix == ".npz":
        with whole_file(target) as stream:
            np.savez(stream, allow_pickle=False, **outputs)
    elif suffix != ".npy" and suffix not in WRITTEN_SUFFIXES:
        raise InputError(f"{target}: an output is a {WRITTEN} file or a folder")
    elif len(outputs) != 1:
        raise InputError(f"{target} takes one output of {len(outputs)}; use an .npz or a folder")
    else:
        name, array = next(iter(outputs.items()))
        if suffix == ".npy":
            _save(target, array)
        else:
            write_image(target, name, array)
    return [target]


def _save(path: Path, array: NDArray[Any]) -> None:
    with whole_file(path) as stream:
        np.save(stream, array)


def array_files(folder: Path, outputs: Iterable[str]) -> list[Path]:
    """A file for each output: its name without what file systems refuse (a slash, mostly)."""
    return [folder / (re.sub(r"[^\w.+-]", "_", name) + ".npy") for name in outputs]
