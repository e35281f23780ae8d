"""Digests of files seen before, by what the file system says of them: hashing 100 MB takes 80 ms.

A note is believed only for the same device, inode, size, time of modification and time of change,
and an empty one is taken of a file that changed within the last seconds, when a second change could
leave all of these as they are.
"""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

from saccade.caches import CacheFolder, cache_folder

__all__ = ["noted", "recall", "remember"]

_SETTLED_NS = 2_000_000_000


def recall(path: Path) -> str | None:
    """The digest noted for a file as it is now, or None."""
    note = _notes().read(_note(path))
    if note is None:
        return None
    text = note.decode("ascii", "replace")
    # Notes that are empty or damaged count as none.
    return text if re.fullmatch(r"[0-9a-f]{64}", text) else None


def noted(path: Path) -> bool:
    """Whether there is a note for a file as it is now, if only an empty one."""
    return _notes().exists(_note(path))


def remember(path: Path, digest: str) -> None:
    """Note the digest of a file; a disk that cannot be written to is no reason to fail or to warn.

    An empty digest is that of a file that is not all there is of its model.
    """
    settled = time.time_ns() - path.stat().st_ctime_ns >= _SETTLED_NS
    _notes().write(_note(path), (digest if settled else "").encode("ascii"), quiet=True)


def _notes() -> CacheFolder:
    return cache_folder("digests")


def _note(path: Path) -> str:
    s = path.stat()
    # The time of change, too: programs may set that of modification back.
    state = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
    return f"{hashlib.sha256(repr(state).encode()).hexdigest()}.digest"
