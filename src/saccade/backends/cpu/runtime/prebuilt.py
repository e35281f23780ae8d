"""Kernels that came compiled: a file for each processor, in a package of its own.

`saccade-kernels` (`packages/kernels` of the repository) holds what common networks need on the
described machines, so that a first start need not compile it. A kernel is looked up by the very
name that the cache knows it by, a digest of everything that its code depends on: what another
version of Saccade or of LLVM compiled is never found. The files are trusted as Saccade's own
sources are; nothing is written to them.

A file is one line of JSON, which names each kernel's place behind that line, and the kernels,
compressed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["PACKAGE", "Prebuilt", "file_name", "prebuilt_for", "write_prebuilt"]

PACKAGE = "saccade_kernels"
"""A folder of such files on Python's path."""


def file_name(code: str) -> str:
    """Of the file for targets of this `Target.code`."""
    return f"{sha256(code.encode()).hexdigest()[:16]}.kernels"


def write_prebuilt(path: Path, entries: Mapping[str, bytes]) -> None:
    """Write a file.

    Args:
        path: Where.
        entries: Contents by name.

    Raises:
        OSError: If it cannot be written.
    """
    blobs = [zlib.compress(entries[name], 9) for name in sorted(entries)]
    places, end = {}, 0
    for name, blob in zip(sorted(entries), blobs, strict=True):
        places[name] = end, len(blob)
        end += len(blob)
    path.write_bytes(json.dumps(places, separators=(",", ":")).encode() + b"\n" + b"".join(blobs))


class Prebuilt:
    """One file; without a path, or if it cannot be read, there is nothing in it."""

    def __init__(self, path: Path | None) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._file = -1
        try:
            if path is None:
                return
            # Read by place, so that forks share the descriptor; it is open as long as the process.
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            head = b""
            while b"\n" not in head:
                more = os.pread(self._file, 1 << 20, len(head))
                if not more:
                    return
                head += more
            line, _, _ = head.partition(b"\n")
            start = len(line) + 1
            for name, (offset, length) in json.loads(line).items():
                self._places[name] = start + offset, length
        except (OSError, ValueError, TypeError, AttributeError):
            self._places = {}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def read(self, name: str) -> bytes | None:
        """What is there under a name; None if nothing is, or if it is damaged."""
        if name not in self._places:
            return None
        offset, length = self._places[name]
        try:
            return zlib.decompress(os.pread(self._file, length, offset))
        except (OSError, zlib.error):
            return None


@cache
def prebuilt_for(code: str) -> Prebuilt:
    """What came compiled for targets of this `Target.code`."""
    spec = PathFinder.find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Prebuilt(Path(places[0], file_name(code)) if places else None)
