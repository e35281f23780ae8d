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

from saccade.caches import trusted_folder

__all__ = ["noted", "recall", "remember"]

_SETTLED_NS = 2_000_000_000


def recall(path: Path) -> str | None:
    """The digest noted for a file as it is now, or None."""
    note = _note(path)
    if note is None:
        return None
    try:
        text = note.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{64}", text) else None


def noted(path: Path) -> bool:
    """Whether there is a note for a file as it is now, if only an empty one."""
    note = _note(path)
    return note is not None and note.exists()


def remember(path: Path, digest: str) -> None:
    """Note the digest of a file; a disk that cannot be written to is no reason to fail.

    An empty digest is that of a file that is not all there is of its model.
    """
    settled = time.time_ns() - path.stat().st_ctime_ns >= _SETTLED_NS
    note = _note(path)
    if note is None:
        return
    try:
        fresh = note.with_suffix(f".{time.monotonic_ns()}")
        fresh.write_text(digest if settled else "", encoding="ascii")
        fresh.replace(note)
    except OSError:
        return


def _note(path: Path) -> Path | None:
    folder = trusted_folder("digests")
    if folder is None:
        return None
    s = path.stat()
    state = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
    return folder / hashlib.sha256(repr(state).encode()).hexdigest()
