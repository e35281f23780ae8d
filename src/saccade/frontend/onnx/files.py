"""Opening files that a model consists of: regular ones only, and nothing that could block.

Whatever is learned of a file is learned from its descriptor, and what is mapped is that same file,
whatever happens to its name meanwhile.
"""

from __future__ import annotations

import mmap
import os
import stat
from io import BufferedReader
from pathlib import Path

from saccade.errors import ModelError
from saccade.files import READ, open_regular, regular
from saccade.options import usable_path

__all__ = ["map_file", "model_path", "open_inside", "open_model", "why"]

_NO_LINK = READ | getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)


def model_path(source: str | os.PathLike[str]) -> Path:
    """The path of a model.

    Raises:
        ModelError: If no file can be called that.
    """
    path = usable_path(source)
    if path is None:
        raise ModelError(f"{source!r} cannot be the path of a file")
    return path


def open_model(path: Path) -> BufferedReader:
    """The file of a model, for reading; links are followed.

    Raises:
        ModelError: If there is none, or it is no regular file.
    """
    try:
        return open_regular(path)
    except OSError as error:
        raise ModelError(f"{path}: {why(error)}") from None


def open_inside(folder: Path, location: str, name: str) -> BufferedReader:
    """A file of external data, opened part by part so that no link on the way is followed.

    Args:
        folder: Of the model.
        location: Relative to it.
        name: What messages call it.

    Raises:
        ModelError: If it would lie elsewhere, is reached through a link, has another name as well
            (a hard link), is no regular file, or cannot be read.
    """
    parts = _parts(location, name)
    try:
        at = os.open(folder, READ | _FOLDER)
    except (OSError, ValueError) as error:
        raise ModelError(f"{name}: {folder}: {error}") from None
    try:
        for part in parts[:-1]:
            # `O_NOFOLLOW` looks at the last part only, hence one part at a time.
            inner = _step(at, part, _NO_LINK | _FOLDER, name)
            # One folder is open at a time, and `finally` closes the last.
            os.close(at)
            at = inner
        file = regular(_step(at, parts[-1], _NO_LINK, name))
    except OSError as error:
        raise ModelError(f"{name}: {why(error)}") from None
    finally:
        os.close(at)
    # A hard link looks like a plain file; the count of names is all that shows it.
    if os.fstat(file.fileno()).st_nlink > 1:
        file.close()
        raise ModelError(
            f"{name}: the file has other names as well (hard links), which may lie anywhere; "
            "put a copy of it beside the model"
        )
    return file


def map_file(file: BufferedReader) -> mmap.mmap:
    """All of a file that is not empty, mapped read-only."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _parts(location: str, name: str) -> tuple[str, ...]:
    path = usable_path(location)
    parts = () if path is None else path.parts
    if path is None or not parts or path.is_absolute() or ".." in parts:
        raise ModelError(f"{name}: only files in the model's own folder are read")
    return parts


def _step(folder: int, part: str, flags: int, name: str) -> int:
    """The descriptor of an entry of an open folder."""
    try:
        return os.open(part, flags, dir_fd=folder)
    except OSError as error:
        problem = error
    # Only for the message: the error for a link differs between systems and flags.
    try:
        link = stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        link = False
    if link:
        raise ModelError(f"{name}: links are not followed; put a copy of the file there")
    raise ModelError(f"{name}: {why(problem)}")


def why(error: OSError) -> str:
    """What messages say of a file that cannot be read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "there is no such file"
    return error.strerror or "cannot be opened"
