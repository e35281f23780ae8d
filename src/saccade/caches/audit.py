"""The cache as a whole, for people: where it is, and what in it is damaged or not the user's."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from saccade.caches.entry import Item, OpenEntry
from saccade.caches.folder import CacheFolder
from saccade.caches.limit import KINDS, STALE_SECONDS
from saccade.errors import CacheError
from saccade.options import cache_dir

__all__ = ["Finding", "Format", "audit", "existing_cache"]

Format = Callable[[OpenEntry], object]
"""Reads an entry that has a format of its own; raises `CacheError` if it is damaged."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the cache that is not used.

    Attributes:
        folder: Where it lies.
        name: What it is called there.
        problem: What is wrong with it, beginning with its path.
    """

    folder: CacheFolder
    name: str
    problem: str


def existing_cache() -> CacheFolder | None:
    """The cache's directory; None if there is none yet.

    Raises:
        CacheError: If it may not be used as it is.
    """
    top = CacheFolder(os.path.abspath(cache_dir()), "")  # noqa: PTH100 - resolve follows links
    try:
        top.check()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CacheError(str(error)) from error
    return top


def audit(top: CacheFolder, formats: Mapping[str, Format]) -> Iterator[Finding]:
    """Everything in the cache that is damaged, or that somebody else may have written.

    Args:
        top: The cache's directory.
        formats: By suffix of names; all other entries are sealed as a whole.
    """
    for name, kind in KINDS.items():
        yield from _in_folder(top, name, formats, () if kind.nested else kind.suffixes)


def _in_folder(
    parent: CacheFolder, name: str, formats: Mapping[str, Format], suffixes: tuple[str, ...]
) -> Iterator[Finding]:
    """Without suffixes it holds folders, one for each model."""
    folder = parent.folder(name)
    try:
        folder.check()
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding(parent, name, str(error))
        return
    for item in folder.items():
        if item.fresh:
            # A younger one may still be in the making.
            if time.time() - item.used > STALE_SECONDS:
                yield _finding(folder, item, "was left by a run that was cut off")
        elif not suffixes and item.kind == stat.S_IFDIR:
            yield from _in_folder(folder, item.name, formats, KINDS[name].suffixes)
        # No name ends with a slash: among folders there are no entries.
        elif not item.name.endswith(suffixes or "/"):
            yield _finding(folder, item, "is no entry of the cache")
        else:
            problem = _problem(folder, item, formats)
            if problem is not None:
                yield Finding(folder, item.name, problem)


def _problem(folder: CacheFolder, item: Item, formats: Mapping[str, Format]) -> str | None:
    suffix = PurePath(item.name).suffix
    try:
        with folder.checked(item.name) as entry:
            if suffix in formats:
                formats[suffix](entry)
                return None
    except FileNotFoundError:  # forgotten meanwhile
        return None
    except (CacheError, OSError) as error:
        return str(error)
    # A lock has nothing to seal; and looking at an entry is no use of it.
    if suffix == ".lock" or folder.read(item.name, use=False) is not None:
        return None
    return f"{folder.path / item.name} is damaged, or sealed with another key"


def _finding(folder: CacheFolder, item: Item, problem: str) -> Finding:
    return Finding(folder, item.name, f"{folder.path / item.name} {problem}")
