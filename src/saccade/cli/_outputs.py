"""Files that commands write: looked at before any work, and figures as JSON in one way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryFile

from saccade.cli._print import standard_output
from saccade.errors import OptionError

__all__ = ["STANDARD_OUTPUT", "check_outputs", "give_json", "give_text"]

STANDARD_OUTPUT = Path("-")
"""Where figures go in place of a file; nothing else is printed there then."""


def check_outputs(**paths: Path | None) -> None:
    """See to it that files can be written, before anything is computed that would be lost.

    Args:
        **paths: By the name of the option, with underscores for dashes; None for none.

    Raises:
        OptionError: If there is no such folder, it or the file cannot be written to, or the path is
            a folder; or if two options name one file.
    """
    seen: dict[Path, str] = {}
    for name, path in paths.items():
        if path is None or path == STANDARD_OUTPUT:
            continue
        option = "--" + name.replace("_", "-")
        problem = _problem(path)
        if problem is not None:
            raise OptionError(f"{option} {path}: {problem}")
        other = seen.setdefault(path.absolute(), option)
        if other != option:
            raise OptionError(f"{option} {path}: {other} is the same file")


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
    try:
        # Files are written beside their places and moved there, whole. Tried, as permissions say
        # little: to root, and of file systems that are read-only.
        with TemporaryFile(dir=real.parent):
            pass
    except OSError as error:
        return f"the folder {real.parent} cannot be written to: {error.strerror}"
    return "this file cannot be written to" if there and not os.access(real, os.W_OK) else None


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
