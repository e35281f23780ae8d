"""The caches on disk: entries that only their user or root can have written, or that are not used.

`trust` opens directories and files so that nobody else can have put there what is in them, `key`
seals contents with a key of the user's own, `folder` is how every store reads and writes, `limit`
keeps the whole within its size.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

from saccade.caches.entry import Item, OpenEntry
from saccade.caches.folder import CacheFolder
from saccade.caches.key import Seal, write_all
from saccade.options import cache_dir

__all__ = [
    "GRAPHS",
    "CacheFolder",
    "Item",
    "OpenEntry",
    "Seal",
    "cache_folder",
    "choices_entry",
    "write_all",
]


GRAPHS = "graphs"
"""The folder of lowered graphs: two rooms read it."""


def cache_folder(name: str) -> CacheFolder:
    """A folder of the cache, by its path within the cache; nothing is opened or made yet."""
    return CacheFolder(os.path.abspath(cache_dir()), name)  # noqa: PTH100 - resolve follows links


def choices_entry(model: str, machine: Mapping[str, str]) -> str:
    """Which entry of `algorithms` is for a model (by its digest) and a machine."""
    # Names of machines have no NUL: no two lists give the same text.
    key = "\0".join((model, *(f"{name}={value}" for name, value in sorted(machine.items()))))
    return f"{sha256(key.encode()).hexdigest()}.json"
