"""Files that are there whole or not at all, and files that are opened without a wait.

Entries of the cache, and what users have written, are written under another name in the same folder
and renamed once they are whole, so that no reader ever sees half of one, and whoever fails leaves
what was there before, and nothing else. What users name to be read is opened if it is a regular
file: a pipe would wait for whoever writes to it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "READ",
    "fresh_file",
    "open_regular",
    "regular",
    "renamed_file",
    "whole_file",
    "write_text",
]

READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening whatever has a name without waiting for it."""

# A name that is taken, if only by a link, is an error: what is there is never written to.
_FRESH = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Where the system has it, a folder to write to need not be one that can be listed.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_PRIVATE, _SHARED = 0o600, 0o666  # of the cache; of users, less their umask
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BufferedReader:
    """A regular file, for reading; links are followed.

    Raises:
        OSError: If there is none, or it is no regular file.
    """
    return regular(os.open(path, READ))


def regular(descriptor: int) -> BufferedReader:
    """The regular file of a descriptor, which is closed if it is none.

    Raises:
        OSError: Naming what it is.
    """
    # Of what was opened: the name may lead elsewhere by now.
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = next((kind for test, kind in _KINDS if test(mode)), "something else")
        raise OSError(errno.EINVAL, f"{kind}, not a regular file")
    return os.fdopen(descriptor, "rb")


@contextmanager
def fresh_file(folder: int, mode: int = _PRIVATE) -> Iterator[tuple[int, str]]:
    """An empty file in a directory, to be renamed or linked once it is whole; gone otherwise.

    Args:
        folder: Descriptor of the directory.
        mode: Its permissions, less the umask.

    Yields:
        Its descriptor, which is closed afterwards, and its name.

    Raises:
        OSError: If it cannot be made.
    """
    # At random, as several processes may write the same entry at once.
    name, file = f".new-{os.urandom(8).hex()}", -1
    try:
        file = os.open(name, _FRESH, mode, dir_fd=folder)
        yield file, name
    finally:
        if file >= 0:
            os.close(file)
        with suppress(OSError):  # most often it has its own name by now
            os.unlink(name, dir_fd=folder)


@contextmanager
def renamed_file(folder: int, name: str, mode: int = _PRIVATE) -> Iterator[int]:
    """An empty file's descriptor; it gets its name at the end, unless there is an error.

    Args:
        folder: Descriptor of the directory.
        name: In there; what has it is replaced, whatever it is.
        mode: Its permissions, less the umask.

    Raises:
        OSError: If it cannot be made or renamed.
    """
    with fresh_file(folder, mode) as (file, fresh):
        yield file
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A user's file to write: replaced at the end, on the disk, unless there is an error.

    Links are followed, and a file that is replaced leaves its permissions to the new one. What is
    no file (a pipe, a terminal, `/dev/null`) is written to as it is.

    Raises:
        OSError: If it cannot be written, with `path` as its `filename`.
    """
    try:
        mode = _mode(path)
        if mode is not None and not stat.S_ISREG(mode):
            with path.open("wb") as stream:
                yield stream
            return
        # A link stays one: what it leads to is replaced, within its own folder.
        parent, name = os.path.split(os.path.realpath(path))
        folder = os.open(parent, _FOLDER)
        try:
            with renamed_file(folder, name, _SHARED) as file:
                # What was chosen stays: the umask took its part when the file was made.
                if mode is not None:
                    os.fchmod(file, stat.S_IMODE(mode))
                with open(file, "wb", closefd=False) as stream:
                    yield stream
                os.fsync(file)  # some disks say only now that they are full
        finally:
            os.close(folder)
    except OSError as error:
        # Not the system's: whoever fills the file raised it.
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a user's file in UTF-8; see `whole_file`."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def _mode(path: Path) -> int | None:
    """Kind and permissions of what is there; None if nothing is."""
    with suppress(FileNotFoundError):
        return path.stat().st_mode
    return None
