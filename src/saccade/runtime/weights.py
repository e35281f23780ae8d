"""Packed constants on disk: a file that every process maps, and that is checked before it is used.

    magic (16)  index bytes (8)  SHA-256 of what follows, up to the constants, and of the sums (32)
    index  pad  constants

The index is JSON: name, offset and size of each constant. The sums are of the 64-bit words of each
page of constants. Adding up words takes as long as reading them, which the first run does anyway;
so every opening checks every byte. The digest over the sums notices pages in the wrong order.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import CacheError

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["Placed", "Put", "index_of", "map_weights", "place", "write_weights"]

Placed = tuple[str, int, int]
"""A constant's name, its offset among the constants, and its bytes."""

Put = Callable[[int, "Array"], None]
"""Writes an array at an offset among the constants; may be called from any thread."""

_MAGIC = b"saccade weights1"
_PREFIX = struct.Struct("<16sQ32s")
_PAGE = 4096
_ALIGN = 64
_LARGEST_INDEX = 1 << 26


def place(sizes: Iterable[tuple[str, int]]) -> list[Placed]:
    """Offsets for constants of these names and sizes."""
    placed, at = [], 0
    for name, nbytes in sizes:
        placed.append((name, at, nbytes))
        at = _up(at + nbytes, _ALIGN)
    return placed


def write_weights(file: int, placed: Sequence[Placed], fill: Callable[[Put], None]) -> None:
    """Write all into an empty file, open for reading and writing; `fill` puts the constants.

    Raises:
        OSError: If it cannot be written.
    """
    index = json.dumps(placed, separators=(",", ":")).encode()
    start = _start(len(index))

    def put(offset: int, array: Array) -> None:
        rest, at = array.reshape(-1).view(np.uint8).data, start + offset
        while rest:
            done = os.pwrite(file, rest, at)
            rest, at = rest[done:], at + done

    fill(put)
    os.ftruncate(file, _size(start, placed))
    os.pwrite(file, index, _PREFIX.size)
    content = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    os.pwrite(file, _PREFIX.pack(_MAGIC, len(index), _digest(content, start)), 0)


def index_of(path: Path) -> list[Placed]:
    """What a file says that it holds; not checked yet.

    Raises:
        CacheError: If it does not look like one of these files.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        return _parse(path, _read_index(path, file.fileno())[0])


def map_weights(path: Path) -> dict[str, Array]:
    """The constants of a file by name, read-only, as bytes.

    Raises:
        CacheError: If the file is not exactly what was written.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        index, digest = _read_index(path, file.fileno())
        placed = _parse(path, index)
        start = _start(len(index))
        if os.fstat(file.fileno()).st_size != _size(start, placed):
            raise CacheError(f"{path}: of another size than its index says")
        # All page tables at once where the system can: one by one they take longer than checking.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        content = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
    if _digest(content, start) != digest:
        raise CacheError(f"{path}: damaged")
    data = np.frombuffer(content, np.uint8, offset=start)
    return {name: data[at : at + nbytes] for name, at, nbytes in placed}


def _read_index(path: Path, file: int) -> tuple[bytes, bytes]:
    head = os.pread(file, _PREFIX.size, 0)
    if len(head) != _PREFIX.size:
        raise CacheError(f"{path}: cut short")
    magic, length, digest = _PREFIX.unpack(head)
    if magic != _MAGIC or length > _LARGEST_INDEX:
        raise CacheError(f"{path}: no weights of this version")
    return os.pread(file, length, _PREFIX.size), digest


def _parse(path: Path, index: bytes) -> list[Placed]:
    try:
        return [(str(name), int(at), int(nbytes)) for name, at, nbytes in json.loads(index)]
    except (TypeError, ValueError) as error:
        raise CacheError(f"{path}: the index is damaged") from error


def _digest(content: mmap.mmap, start: int) -> bytes:
    words = np.frombuffer(content, np.uint64, offset=start).reshape(-1, _PAGE // 8)
    sums = np.add.reduce(words, axis=1)
    return hashlib.sha256(content[_PREFIX.size : start] + sums.tobytes()).digest()


def _start(index: int) -> int:
    return _up(_PREFIX.size + index, _PAGE)


def _size(start: int, placed: Sequence[Placed]) -> int:
    return _up(start + max((at + nbytes for _, at, nbytes in placed), default=0), _PAGE)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
