"""The key that seals what is in the cache: 32 random bytes, in a file that only its user can read.

Whoever cannot read the key cannot make an entry that is believed, wherever it is put. It is made
with the first entry; where it was lost, another one is made, and old entries count as damaged.

Of a cache that is shared the key is for all to read and for nobody to write, which no key is by
mistake. What it seals is whole and in its place; who wrote it, only owners and modes tell.
"""

from __future__ import annotations

import errno
import hmac
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from saccade.caches.trust import UnusableError, open_file
from saccade.locks import forkless

__all__ = [
    "NAME",
    "SEAL_BYTES",
    "SHARED_FILE",
    "SHARED_FOLDER",
    "SHARED_KEY",
    "Key",
    "Seal",
    "read_key",
    "seal_of",
    "write_all",
]

Seal = Callable[[bytes], bytes]
"""32 bytes that only who has the key can tell of some contents and the place they are for."""

NAME = "key"
SHARED_KEY, SHARED_FILE, SHARED_FOLDER = 0o444, 0o644, 0o755
"""Modes of a shared cache's key, entries and folders."""
SEAL_BYTES = 32
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Key:
    """What seals entries.

    Attributes:
        secret: 32 bytes.
        shared: Whether everybody may read the cache.
    """

    secret: bytes
    shared: bool


def seal_of(key: bytes, place: str) -> Seal:
    """HMAC-SHA256 over a place in the cache and contents: worth nothing in another place."""
    return partial(_seal, key, place.encode() + b"\0")


def _seal(key: bytes, place: bytes, content: bytes) -> bytes:
    digest = hmac.new(key, place, "sha256")
    digest.update(content)
    return digest.digest()


def read_key(root: int, place: str, *, make: bool = False) -> Key:
    """The key of a cache.

    Args:
        root: Descriptor of the cache's directory.
        place: Its path.
        make: Whether to make one if there is none.

    Raises:
        FileNotFoundError: If there is none and none is to be made.
        UnusableError: If it is no key that only the user can read, nor that of a shared cache, or
            none can be made.
    """
    try:
        file = open_file(root, place, NAME)
    except FileNotFoundError:
        if not make:
            raise
        _make(root, place)
        file = open_file(root, place, NAME)
    try:
        # One byte more, so that a longer file is no key.
        key = os.read(file, _KEY_BYTES + 1)
        # Whoever reads it can seal; `open_file` asks for its owner and for writers alone.
        mode = stat.S_IMODE(os.fstat(file).st_mode)
        private = not mode & (stat.S_IRWXG | stat.S_IRWXO)
    except OSError as error:
        raise UnusableError(place, f"{place}/{NAME} cannot be read ({error.strerror})") from error
    finally:
        os.close(file)
    if len(key) != _KEY_BYTES or not (private or mode == SHARED_KEY):
        reason = "can be read by others" if len(key) == _KEY_BYTES else "is damaged"
        raise UnusableError(
            place, f"{place}/{NAME} {reason}", "delete it: another one will be made"
        )
    return Key(key, mode == SHARED_KEY)


def _make(root: int, place: str) -> None:
    """Of processes that make one at once, the first wins: a link replaces nothing."""
    with forkless:
        from saccade.files import fresh_file  # noqa: PLC0415 - a warm start writes nothing

    try:
        with fresh_file(root) as (file, name):
            write_all(file, os.urandom(_KEY_BYTES))
            os.fsync(file)  # a key without its bytes would have to be deleted by hand
            with suppress(FileExistsError):
                os.link(name, NAME, src_dir_fd=root, dst_dir_fd=root, follow_symlinks=False)
    except OSError as error:
        raise UnusableError(place, f"{place}/{NAME} cannot be made ({error.strerror})") from error


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of it at a descriptor's position.

    Raises:
        OSError: If not all could be written.
    """
    rest = memoryview(data)
    while rest:
        done = os.write(file, rest)
        if not done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[done:]
