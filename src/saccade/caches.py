"""Folders of the on-disk caches: the user's own, or not used at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from saccade.options import cache_dir

__all__ = ["choices_file", "trusted_folder"]


def trusted_folder(name: str) -> Path | None:
    """A folder in the cache, made if need be; None if others could have put there what is in it."""
    folder = cache_dir() / name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except OSError:
        return None
    foreign = status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return None if foreign else folder


def choices_file(model: str, machine: Mapping[str, str]) -> Path | None:
    """Where tuned choices of a model (by its digest) for a machine are kept, if anywhere."""
    folder = trusted_folder("algorithms")
    key = "\0".join((model, *(f"{name}={value}" for name, value in sorted(machine.items()))))
    return None if folder is None else folder / f"{sha256(key.encode()).hexdigest()}.json"
