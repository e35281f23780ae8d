"""Packed constants on disk: a file that every process maps, and that is checked before it is used.

    magic (16)  index bytes (8)  seal of what follows, up to the constants, and of the sums (32)
    index  pad  constants

The index is JSON: name, offset and size of each constant. The sums are of the 64-bit words of each
page of constants. Adding up words takes as long as reading them, which the first run does anyway;
so every opening checks every byte for damage. The seal over the sums notices pages in the wrong
order, and files that are somebody else's or of another place. Who meant to could change words and
keep their sums: that only the user can write the file is what `caches.trust` sees to.
"""

from __future__ import annotations

import errno
import hmac
import json
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import CacheError

if TYPE_CHECKING:
    from saccade.caches import OpenEntry
    from saccade.ir import Array

__all__ = ["Placed", "Put", "index_of", "map_weights", "place", "size_of", "write_weights"]

Placed = tuple[str, int, int]
"""A constant's name, its offset among the constants, and its bytes."""

Put = Callable[[int, "Array"], None]
"""Writes an array at an offset among the constants; may be called from any thread."""

_MAGIC = b"saccade weights2"
_PREFIX = struct.Struct("<16sQ32s")
_PAGE = 4096  # bytes, what files are mapped by
_ALIGN = 64  # bytes, what kernels expect of constants: a line of cache
_LARGEST_INDEX = 1 << 26  # bytes; a longer one is damage
_BLOCK = 1 << 20  # bytes that are written at a time


def place(sizes: Iterable[tuple[str, int]]) -> list[Placed]:
    """Offsets for constants of these names and sizes."""
    placed, at = [], 0
    for name, nbytes in sizes:
        placed.append((name, at, nbytes))
        at = _up(at + nbytes, _ALIGN)
    return placed


def size_of(placed: Sequence[Placed]) -> int:
    """Bytes of the file that holds these."""
    return _size(_start(len(_index(placed))), placed)


def write_weights(entry: OpenEntry, placed: Sequence[Placed], fill: Callable[[Put], None]) -> None:
    """Write all into an empty file, open for reading and writing; `fill` puts the constants.

    Raises:
        OSError: If it cannot be written.
    """
    index = _index(placed)
    start = _start(len(index))
    size = _size(start, placed)
    _reserve(entry.file, size)

    def put(offset: int, array: Array) -> None:
        _write_at(entry.file, array.reshape(-1).view(np.uint8).data, start + offset)

    fill(put)
    _write_at(entry.file, index, _PREFIX.size)
    content = mmap.mmap(entry.file, size, access=mmap.ACCESS_READ)
    head = _PREFIX.pack(_MAGIC, len(index), _seal(entry, content, start))
    _write_at(entry.file, head, 0)


def index_of(entry: OpenEntry) -> list[Placed]:
    """What a file says that it holds; not checked yet.

    Raises:
        CacheError: If it does not look like one of these files.
        OSError: If it cannot be read.
    """
    return _parse(entry, _read_index(entry)[0])


def map_weights(entry: OpenEntry) -> dict[str, Array]:
    """The constants of a file by name, read-only, as bytes.

    Raises:
        CacheError: If the file is not exactly what was written.
        OSError: If it cannot be read.
    """
    index, seal = _read_index(entry)
    placed = _parse(entry, index)
    start = _start(len(index))
    size = _size(start, placed)
    if os.fstat(entry.file).st_size != size:
        raise CacheError(f"{entry.where}: of another size than its index says")
    # All page tables at once where the system can: one by one they take longer than checking.
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    content = mmap.mmap(entry.file, size, flags=flags, prot=mmap.PROT_READ)
    if not hmac.compare_digest(_seal(entry, content, start), seal):
        raise CacheError(f"{entry.where}: damaged")
    data = np.frombuffer(content, np.uint8, offset=start)
    return {name: data[at : at + nbytes] for name, at, nbytes in placed}


def _reserve(file: int, size: int) -> None:
    """Have the disk give all space before anything is mapped.

    A page for which a full tmpfs has no space is a fault (SIGBUS) when it is looked at.
    """
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        block = bytes(_BLOCK)
        for at in range(0, size, len(block)):
            _write_at(file, memoryview(block)[: size - at], at)


def _write_at(file: int, data: bytes | memoryview, at: int) -> None:
    rest = memoryview(data)
    while rest:
        done = os.pwrite(file, rest, at)
        if not done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest, at = rest[done:], at + done


def _index(placed: Sequence[Placed]) -> bytes:
    return json.dumps(placed, separators=(",", ":")).encode()


def _read_index(entry: OpenEntry) -> tuple[bytes, bytes]:
    head = os.pread(entry.file, _PREFIX.size, 0)
    if len(head) != _PREFIX.size:
        raise CacheError(f"{entry.where}: cut short")
    magic, length, seal = _PREFIX.unpack(head)
    if magic != _MAGIC or length > _LARGEST_INDEX:
        raise CacheError(f"{entry.where}: no weights of this version")
    index = os.pread(entry.file, length, _PREFIX.size)
    if len(index) != length:
        raise CacheError(f"{entry.where}: cut short")
    return index, seal


def _parse(entry: OpenEntry, index: bytes) -> list[Placed]:
    try:
        placed = [(str(name), int(at), int(nbytes)) for name, at, nbytes in json.loads(index)]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CacheError(f"{entry.where}: the index is damaged") from error
    if any(at < 0 or nbytes < 0 for _, at, nbytes in placed):
        raise CacheError(f"{entry.where}: the index is damaged")
    return placed


def _seal(entry: OpenEntry, content: mmap.mmap, start: int) -> bytes:
    words = np.frombuffer(content, np.uint64, offset=start).reshape(-1, _PAGE // 8)
    sums = np.add.reduce(words, axis=1)
    return entry.seal(content[_PREFIX.size : start] + sums.tobytes())


def _start(index: int) -> int:
    return _up(_PREFIX.size + index, _PAGE)


def _size(start: int, placed: Sequence[Placed]) -> int:
    return _up(start + max((at + nbytes for _, at, nbytes in placed), default=0), _PAGE)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
