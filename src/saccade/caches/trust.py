"""Directories and files of the cache, opened so that nobody else can have chosen what is in them.

As sshd does for a user's keys: from the root of the file system down, each directory is opened
relative to the descriptor of its parent and never through a symbolic link, and what the system
says of the descriptor decides. Directories above the cache must belong to root or to the user, and
others may write to none of them unless it is sticky (as /tmp is, where they cannot rename what is
not theirs). The cache's own directories and files must be the user's or root's, and only the owner
may write: a cache of root's is read by everybody whom root lets (`saccade cache share`). What was
opened stays what it was, wherever names lead later.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import PurePath

from saccade.locks import preload
from saccade.logs import logger

__all__ = ["ReadOnlyError", "UnusableError", "enter", "may_write", "open_file", "open_root", "warn"]

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Homes often lie in directories that may be walked through and not be listed.
_WALK = _DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_LIST = _DIRECTORY | os.O_RDONLY
# Opening a FIFO must not wait for its other end.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_MOVE = "set SACCADE_CACHE_DIR to a folder of your own"
_warned: set[str] = set()


class UnusableError(OSError):
    """A place that is there and may not be used, or cannot be.

    Args:
        place: The directory, or that of the file: what is warned of once.
        reason: What is wrong, beginning with the path.
        remedy: What to do.
        effect: What comes of it.
    """

    def __init__(
        self, place: str, reason: str, remedy: str = _MOVE,
        effect: str = "so Saccade does not use it as a cache",
    ) -> None:  # fmt: skip
        super().__init__(f"{reason}, {effect}; {remedy}")
        self.place = place


class ReadOnlyError(UnusableError):
    """A cache that can be read and not be added to.

    Args:
        place: The cache's directory.
        why: What the system says.
    """

    def __init__(self, place: str, why: str) -> None:
        effect = "so what is compiled now will be compiled again by the next process"
        super().__init__(place, f"{place} cannot be added to ({why})", effect=effect)


class DeniedError(UnusableError):
    """A place that belongs to somebody whom the user may trust, and is closed to the user."""


def warn(error: UnusableError, root: str) -> None:
    """Say why a place is not used, by the logger `saccade`: once for each and process.

    A whole cache (at `root`) that is closed, or cannot be added to, is one place.
    """
    place = root if isinstance(error, (DeniedError, ReadOnlyError)) else error.place
    if place not in _warned:
        _warned.add(place)
        preload("logging")
        logger().warning("%s", error)


def may_write(folder: int, root: str) -> None:
    """See whether entries can be added to an open directory of a cache.

    Raises:
        ReadOnlyError: If they cannot.
    """
    try:
        # As the user who opens files; not who started the process.
        if not os.access(".", os.W_OK, dir_fd=folder, effective_ids=True):
            readonly = os.fstatvfs(folder).f_flag & os.ST_RDONLY
            raise ReadOnlyError(root, os.strerror(errno.EROFS if readonly else errno.EACCES))
    except NotImplementedError:  # a system that cannot tell will refuse the file
        pass


def open_root(path: str, *, make: bool = False) -> int:
    """A descriptor of the user's or root's directory at an absolute path without symbolic links.

    Raises:
        FileNotFoundError: If it is not there and not to be made.
        UnusableError: If others could have put there what is in it, or it cannot be opened or made.
    """
    first, *names = PurePath(path).parts
    folder, here = _checked(_open(None, first, first, _WALK), first, own=not names), first
    for depth, name in enumerate(names, 1):
        parent, here = folder, os.path.join(here, name)  # noqa: PTH118 - a few microseconds each
        try:
            folder = enter(parent, here, own=depth == len(names), make=make)
        finally:
            os.close(parent)
    return folder


def enter(parent: int, place: str, *, own: bool = True, make: bool = False) -> int:
    """A descriptor of a directory below its parent's; `own` if it belongs to the cache.

    Raises:
        FileNotFoundError: If it is not there and not to be made.
        UnusableError: As `open_root`.
    """
    # The cache's own are listed, those above are only walked through.
    name, flags = PurePath(place).name, _LIST if own else _WALK
    try:
        folder = _open(parent, name, place, flags)
    except FileNotFoundError:
        if not make:
            raise
        _make(parent, name, place)
        # Checked like any other: somebody else may have made it.
        folder = _open(parent, name, place, flags)
    return _checked(folder, place, own=own)


def open_file(parent: int, place: str, name: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file of the user's or root's in a directory.

    Args:
        parent: Descriptor of the directory.
        place: Its path.
        name: Of the file.
        flags: How to open it; what `os.O_CREAT` makes is private.

    Raises:
        FileNotFoundError: If there is none.
        UnusableError: If it is anything else, or others could have written it.
    """
    path = f"{place}/{name}"
    file = _open(parent, name, place, flags | _FILE, path)
    try:
        # Of what was opened: the name may lead elsewhere by now.
        status = _status(file)
        remedy = "delete it (`saccade cache verify --remove` does)"
        if not stat.S_ISREG(status.st_mode):
            raise UnusableError(place, f"{path} is no regular file", remedy)
        if not _trusted(status):
            raise UnusableError(place, f"{path} belongs to {_user(status)}, not to you", remedy)
        if status.st_mode & _OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            raise UnusableError(
                place, f"{path} can be written to by others (mode {mode:04o})", remedy
            )
    except BaseException:
        os.close(file)
        raise
    return file


def _open(parent: int | None, name: str, place: str, flags: int, path: str = "") -> int:
    try:
        return os.open(name, flags, 0o600, dir_fd=parent)
    except FileNotFoundError:
        raise
    except PermissionError as error:
        reason = f"{path or place} cannot be opened by you ({error.strerror})"
        share = f"let its owner run `saccade cache share`, or {_MOVE}"
        raise DeniedError(place, reason, share) from error
    except OSError as error:
        # ENOTDIR, ELOOP: a symbolic link has come to stand where none was when names were resolved.
        reason = f"{path or place} cannot be opened without following links ({error.strerror})"
        raise UnusableError(place, reason) from error


def _make(parent: int, name: str, place: str) -> None:
    try:
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(name, 0o700, dir_fd=parent)
    except OSError as error:
        raise UnusableError(place, f"{place} cannot be made ({error.strerror})") from error


def _checked(folder: int, place: str, *, own: bool) -> int:
    """The descriptor of a directory, which is closed if others could have chosen what is in it."""
    try:
        status = _status(folder)
        if not _trusted(status):
            raise UnusableError(place, f"{place} belongs to {_user(status)}, not to you or root")
        if status.st_mode & _OTHERS and (own or not status.st_mode & stat.S_ISVTX):
            mode = stat.S_IMODE(status.st_mode)
            reason = f"{place} can be written to by others (mode {mode:04o})"
            raise UnusableError(place, reason, f"run `chmod go-w {place}`, or {_MOVE}")
    except BaseException:
        os.close(folder)
        raise
    return folder


def _status(file: int) -> os.stat_result:
    """What the system says of a descriptor (tests act out other users here)."""
    return os.fstat(file)


def _trusted(status: os.stat_result) -> bool:
    """Whether it belongs to the user, or to root, who could do anything anyway."""
    return status.st_uid in (os.geteuid(), 0)


def _user(status: os.stat_result) -> str:
    return f"user {status.st_uid}"
