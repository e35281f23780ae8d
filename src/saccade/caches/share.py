"""A cache that everybody may read: what root prepares and services run with."""

from __future__ import annotations

import os
import stat
from pathlib import PurePath

from saccade.caches.folder import CacheFolder
from saccade.caches.key import NAME, SHARED_FILE, SHARED_FOLDER, SHARED_KEY
from saccade.caches.limit import KINDS
from saccade.caches.trust import UnusableError, enter, open_file, open_root
from saccade.errors import CacheError

__all__ = ["share"]


def share(top: CacheFolder) -> int:
    """Let everybody read a cache's entries, and those that its owner will add.

    Others believe it if it belongs to root. The entries hold weights of models.

    Args:
        top: The cache's directory.

    Returns:
        How many entries there are.

    Raises:
        CacheError: If it is not the user's, damaged, or lies where others cannot go.
    """
    place = os.path.realpath(top.root)
    closed = [
        str(parent)
        for parent in PurePath(place).parents
        if not os.stat(parent).st_mode & stat.S_IXOTH  # noqa: PTH116 - a pure path
    ]
    if closed:
        raise CacheError(
            f"{place}: others may not enter {closed[-1]}; set SACCADE_CACHE_DIR to a folder that "
            "they can reach"
        )
    try:
        root = open_root(place)
        try:
            count = sum(_open_up(root, f"{place}/{name}") for name in KINDS)
            os.fchmod(root, SHARED_FOLDER)
            # Last: whoever can read the key finds all that it seals.
            _chmod(root, place, NAME, SHARED_KEY)
        finally:
            os.close(root)
    except UnusableError as error:
        raise CacheError(str(error)) from error
    except OSError as error:  # it is not the user's, but root's
        raise CacheError(f"{place}: {error.strerror}") from error
    return count


def _open_up(parent: int, place: str) -> int:
    """Let others read a folder and what is in there; how many files that are."""
    try:
        folder = enter(parent, place)
    except FileNotFoundError:
        return 0
    try:
        os.fchmod(folder, SHARED_FOLDER)
        count = 0
        with os.scandir(folder) as listing:
            for each in listing:
                if each.is_dir(follow_symlinks=False):
                    count += _open_up(folder, f"{place}/{each.name}")
                else:
                    _chmod(folder, place, each.name, SHARED_FILE)
                    count += 1
    finally:
        os.close(folder)
    return count


def _chmod(folder: int, place: str, name: str, mode: int) -> None:
    file = open_file(folder, place, name)
    try:
        os.fchmod(file, mode)
    finally:
        os.close(file)
