"""Machine code as flat bytes, and how it becomes callable: no LLVM needed."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from saccade.errors import CacheError

__all__ = ["Image", "Linked", "map_image"]


@dataclass(frozen=True, slots=True)
class Image:
    """Position-independent code, the same wherever it lies.

    Attributes:
        code: The bytes.
        symbols: Offset of each function.
        slots: Offset of the table of addresses of the C library's functions, eight bytes each.
        imports: Which functions, in the table's order.
    """

    code: bytes
    symbols: Mapping[str, int]
    slots: int
    imports: tuple[str, ...]


class Linked:
    """Code in this process; it lives as long as this value.

    Attributes:
        addresses: Address of each function.
    """

    def __init__(self, keep: object, addresses: Mapping[str, int]) -> None:
        self._keep = keep
        self.addresses = addresses


class _Memory:
    """Private memory of our own.

    It goes back with this value, but not when the interpreter ends: workers still wait in there.
    """

    def __init__(self, size: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.c_long,
        )
        self._libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
        self._libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        self.address = self._libc.mmap(None, size, writable, flags, -1, 0)
        if self.address == ctypes.c_void_p(-1).value:
            raise self._error("no memory for code")
        self._size = size
        weakref.finalize(self, self._libc.munmap, self.address, size).atexit = False

    def function(self, name: str) -> int:
        """Address of a function of the C library."""
        try:
            return ctypes.cast(getattr(self._libc, name), ctypes.c_void_p).value or 0
        except AttributeError as error:
            raise CacheError(f"the C library has no function {name}") from error

    def make_executable(self) -> None:
        """End writing."""
        if self._libc.mprotect(self.address, self._size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise self._error("memory cannot be made executable")

    def _error(self, message: str) -> OSError:
        code = ctypes.get_errno()
        return OSError(code, f"{message}: {os.strerror(code)}")


def map_image(image: Image) -> Linked:
    """Copy an image into memory of its own, read-only and executable once it is complete.

    Raises:
        CacheError: If it wants a function that the C library does not have.
        OSError: If the system allows no such memory.
    """
    if not image.code:
        return Linked(None, {})
    # Memory without a file: what happens to the file later does not matter, and the cache may lie
    # on a file system that allows no code.
    memory = _Memory(len(image.code))
    base = memory.address
    ctypes.memmove(base, image.code, len(image.code))
    table = (ctypes.c_uint64 * len(image.imports)).from_address(base + image.slots)
    table[:] = [memory.function(name) for name in image.imports]
    memory.make_executable()
    addresses = {name: base + offset for name, offset in image.symbols.items()}
    return Linked(memory, addresses)
