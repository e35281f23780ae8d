"""The file of a graph, as far as it can be read without the classes that graphs are made of.

    magic (8)  version (4)  header bytes (8)  seal of the header (32)  header  constants, each
    64-byte aligned

The header is JSON. It holds a checksum of each constant, so that a damaged file is an error and
never a wrong graph. What it says of operators is for `ir.serialize`; a program whose constants are
made from those of the graph needs their bytes alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.errors import CacheError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MALFORMED",
    "RawConstant",
    "Seal",
    "aligned",
    "checksum",
    "digest",
    "let_go",
    "open_graph",
    "prefix",
    "raw_constants",
    "sound",
]

MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)
"""What reading a header raises that somebody else wrote."""

_MAGIC = b"SACCADE\0"
_VERSION = 4
_PREFIX = struct.Struct("<8sIQ32s")
_ALIGN = 64
_LARGEST_HEADER = 1 << 28

Seal = Callable[[bytes], bytes]
"""32 bytes that stand for some contents: a digest, or what only the owner of a key can tell."""

RawConstant = Callable[[], "NDArray[Any]"]
"""Gives a constant's bytes, once they are checked; raises `CacheError` if they are damaged."""


def digest(content: bytes) -> bytes:
    """The seal that anybody can make: it shows damage, and not who wrote."""
    return hashlib.sha256(content).digest()


def prefix(header: bytes, seal: Seal) -> bytes:
    """What comes before a header."""
    return _PREFIX.pack(_MAGIC, _VERSION, len(header), seal(header))


def open_graph(file: int, where: str, seal: Seal) -> tuple[dict[str, Any], NDArray[Any]]:
    """The header, and the constants' bytes, mapped, which are not checked yet.

    Args:
        file: Descriptor of the file.
        where: Its path, for messages.
        seal: As when it was saved.

    Raises:
        CacheError: If the header is damaged, of another version, or sealed by somebody else.
    """
    try:
        data = np.frombuffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:
        raise CacheError(f"{where}: {error}") from error
    if data.size < _PREFIX.size:
        raise CacheError(f"{where}: cut short")
    magic, version, size, expected = _PREFIX.unpack(data[: _PREFIX.size].tobytes())
    if magic != _MAGIC or version != _VERSION:
        raise CacheError(f"{where}: not a graph of this version")
    # However much the prefix claims: it is sealed by nothing.
    text = data[_PREFIX.size : _PREFIX.size + min(size, data.size, _LARGEST_HEADER)].tobytes()
    if len(text) != size or not hmac.compare_digest(seal(text), expected):
        raise CacheError(f"{where}: the header is damaged")
    try:
        header = json.loads(text)
        blobs = data[aligned(_PREFIX.size + size) :]
        if blobs.size != header["bytes"]:
            raise CacheError(f"{where}: {blobs.size} bytes of constants, not {header['bytes']}")
    except MALFORMED as error:
        raise CacheError(f"{where}: not a graph of this version: {error!r}") from error
    return header, blobs


def let_go(array: NDArray[Any]) -> None:
    """Give back the memory of a constant that is mapped from a file; whoever reads it maps it anew.

    Nothing happens to arrays that are not.
    """
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    mapped = getattr(whole.base, "obj", None)  # of the view that NumPy has of it
    if not isinstance(mapped, mmap.mmap) or not array.size:
        return
    page = mmap.PAGESIZE
    start = array.ctypes.data - whole.ctypes.data
    first, last = -(-start // page) * page, (start + array.nbytes) // page * page
    if first < last:
        with suppress(OSError):
            mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def raw_constants(
    file: int, where: str, seal: Seal, names: Collection[str]
) -> dict[str, RawConstant]:
    """Those of the constants with these names that are there; arguments as of `open_graph`.

    Raises:
        CacheError: As `open_graph`.
    """
    header, blobs = open_graph(file, where, seal)

    def reader(name: str, offset: int, total: int, size: int) -> RawConstant:
        return lambda: sound(blobs, offset, total, size, f"{where}: the constant {name!r}")

    try:
        values = header["values"]
        named = ((values[position][0], rest) for position, *rest in header["constants"])
        return {name: reader(name, *rest) for name, rest in named if name in names}
    except MALFORMED as error:
        raise CacheError(f"{where}: not a graph of this version: {error!r}") from error


def sound(blobs: NDArray[Any], offset: int, total: int, size: int, what: str) -> NDArray[Any]:
    """The bytes of a constant, checked against its checksum.

    Raises:
        CacheError: If they are damaged.
    """
    raw = blobs[offset : offset + size]
    if raw.size != size or checksum(raw) != total:
        raise CacheError(f"{what} is damaged")
    return raw


def aligned(offset: int) -> int:
    """Where the next constant may begin."""
    return -(-offset // _ALIGN) * _ALIGN


def checksum(raw: NDArray[Any]) -> int:
    """Sum of the 64-bit words and the trailing bytes: as fast as memory, unlike a digest."""
    whole = raw.size // 8 * 8
    total = int(np.add.reduce(raw[:whole].view(np.uint64), dtype=np.uint64)) if whole else 0
    return total ^ int.from_bytes(raw[whole:].tobytes(), "little")
