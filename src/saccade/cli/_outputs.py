"""Files that commands write: looked at before any work, and figures as JSON in one way."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile

from saccade.cli._print import standard_output
from saccade.errors import OptionError

__all__ = ["STANDARD_OUTPUT", "check_folder", "check_outputs", "give_json", "give_text"]

STANDARD_OUTPUT = Path("-")
"""Where figures go in place of a file; nothing else is printed there then."""


def check_outputs(
    model: Path | None = None, reads: Iterable[Path | None] = (), /, **paths: Path | None
) -> None:
    """See to it that files can be written, before anything is computed that would be lost.

    Args:
        model: What the command is about.
        reads: Other files that it reads, and of which it may do so; None for none.
        **paths: By the name of the option, with underscores for dashes; None for none.

    Raises:
        OptionError: If there is no such folder, it or the file cannot be written to, or the path is
            a folder; if two options name one file, or one names a file that is read;
            or if standard output, which is asked for, is closed.
    """
    kept = {_place(path) for path in reads if path is not None and path.is_file()}
    seen: dict[object, str] = {}
    for name, path in paths.items():
        if path is None:
            continue
        option = "--" + name.replace("_", "-")
        if path == STANDARD_OUTPUT:
            if sys.__stdout__ is None:
                raise OptionError(f"{option} -: standard output is closed")
            continue
        problem = _problem(path)
        if problem is None and model is not None:
            problem = _part_of(model, path)
        if problem is None and _place(path) in kept:
            problem = "the result would take the place of what is read"
        if problem is not None:
            raise OptionError(f"{option} {path}: {problem}")
        other = seen.setdefault(_place(path), option)
        if other != option:
            raise OptionError(f"{option} {path}: {other} is the same file")


def _place(path: Path) -> object:
    """What is the same for all paths that lead to one file."""
    try:
        found = path.stat()
    except OSError:  # there is none yet
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def _part_of(model: Path, path: Path) -> str | None:
    """What would be wrong with writing there because the model is."""
    if not path.is_file():
        return None
    if _place(path) == _place(model):
        return "this is the model itself"
    # A large file is parsed only where weights of it might be.
    if not path.resolve().is_relative_to(model.resolve().parent):
        return None
    from saccade.cli._signature import weight_files  # noqa: PLC0415 - it needs NumPy

    if _place(path) in map(_place, weight_files(model)):
        return "this file holds the model's weights"
    return None


def _problem(path: Path) -> str | None:
    try:
        # Links are followed when files are written.
        real = Path(os.path.realpath(path))
        if real.is_dir():
            return "this is a folder, not a file"
        if not real.parent.is_dir():
            return f"there is no such folder as {real.parent}"
        there = real.exists()
    except (OSError, ValueError) as error:  # too long a name, or one with a NUL
        return str(error)
    if there and not real.is_file():
        return None  # a device or a pipe
    # Files are written beside their places and moved there, whole.
    problem = _closed(real.parent)
    if problem is None and there and not os.access(real, os.W_OK):
        problem = "this file cannot be written to"
    return problem


def _closed(folder: Path) -> str | None:
    """What keeps files from a folder that is there."""
    try:
        # Tried, as permissions say little: to root, and of file systems that are read-only.
        with TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"the folder {folder} cannot be written to: {error.strerror}"


def check_folder(option: str, folder: Path) -> None:
    """See to it that files can be written into a folder, which may have to be made.

    Args:
        option: Its name, for the message.
        folder: The folder.

    Raises:
        OptionError: If it is none, or cannot be made or written to.
    """
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    problem = _closed(there) if there.is_dir() else f"{there} is no folder"
    if problem is not None:
        raise OptionError(f"{option} {folder}: {problem}")


def give_json(path: Path | None, document: object) -> None:
    """Write figures as JSON, to standard output for `-`; nothing where no file was asked for.

    Args:
        path: What `--json` says.
        document: Plain data, or the text that a `to_json` gave.
    """
    if path is not None:
        text = document if isinstance(document, str) else json.dumps(document, indent=1)
        give_text(path, text + "\n")


def give_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all; to standard output for `-`."""
    from saccade.files import write_text  # noqa: PLC0415 - for who writes any

    if path == STANDARD_OUTPUT:
        stream = standard_output()
        stream.write(text)
        stream.flush()
    else:
        write_text(path, text)
