"""How much the cache may take on disk, over all that is in it: the least recently used goes first.

A process walks the cache when it first writes, and again when what it wrote since then may have
made it too large, or is a lot: others write too.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.locks import Lock
from saccade.options import cache_bytes

if TYPE_CHECKING:
    from saccade.caches.entry import Item
    from saccade.caches.folder import CacheFolder

__all__ = ["KINDS", "STALE_SECONDS", "Kind", "note", "prune_to", "too_large", "walk"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A folder of the cache.

    Attributes:
        what: What is in it, for people.
        suffixes: How its entries' names end.
        nested: Whether they lie in folders, one for each model.
    """

    what: str
    suffixes: tuple[str, ...]
    nested: bool = False


KINDS: Mapping[str, Kind] = {
    "objects": Kind("compiled kernels", (".bin",)),
    "cubins": Kind("compiled kernels of GPUs", (".bin",)),
    "graphs": Kind("lowered graphs", (".graph",)),
    "bundles": Kind("models ready to run", (".signature", ".program", ".weights"), nested=True),
    "algorithms": Kind("tuned choices", (".json",)),
    "timings": Kind("measured times", (".jsonl", ".jsonl.lock")),
    "digests": Kind("digests of files", (".digest",)),
}
"""Whatever else lies in the cache's directory is none of ours, and is left alone."""

_STEP = 64 << 20  # bytes that a process writes before it looks what others wrote
STALE_SECONDS = 3600.0  # seconds after which whoever wrote a fresh file must have died
_lock = Lock()


@dataclass(slots=True)
class _CachedBytes:
    total: int
    written: int = 0


_counts: dict[str, _CachedBytes] = {}
"""By cache: its bytes when it was last walked, and what this process wrote since."""


def too_large(nbytes: int) -> bool:
    """Whether one entry would not fit even if there were no other."""
    return nbytes > cache_bytes()


def note(folder: CacheFolder, name: str, nbytes: int) -> None:
    """An entry was written: forget others if there are too many by now."""
    most = cache_bytes()
    with _lock:
        count = _counts.get(folder.root)
        if count is not None:
            count.written += nbytes
            if count.total + count.written <= most and count.written <= _STEP:
                return
        # Where some must go, an eighth more does, so that the next entries find space.
        total = _trim(folder.top, most, most - most // 8, (folder.name, name))
        _counts[folder.root] = _CachedBytes(total)


def walk(top: CacheFolder) -> Iterator[Item]:
    """Everything in the cache that lies where entries may lie."""
    for name, kind in KINDS.items():
        folder = top.folder(name)
        for item in folder.items():
            # Not through links: what they lead to is none of ours.
            if kind.nested and item.kind == stat.S_IFDIR:
                yield from folder.folder(item.name).items()
            else:
                yield item


def prune_to(top: CacheFolder, most: int) -> None:
    """Forget the cache's least recently used entries until the rest takes at most so many bytes."""
    _trim(top, most, most)


def _trim(top: CacheFolder, most: int, aim: int, kept: tuple[str, str] | None = None) -> int:
    """If there are more bytes than `most`, forget entries until `aim` are left, but for `kept`.

    Returns:
        How many are left.
    """
    items = sorted(_swept(top, walk(top)), key=lambda item: item.used)
    total = sum(item.size for item in items)
    if total <= most:
        return total
    gone = set()
    for item in items:
        # A lock is nothing: whoever waits for it must find the one that others hold.
        if item.size and item.kind == stat.S_IFREG and (item.folder, item.name) != kept:
            top.folder(item.folder).remove(item.name)
            total -= item.size
            gone.add(item.folder)
        if total <= aim:
            break
    _close_up(top, gone)
    return total


def _swept(top: CacheFolder, found: Iterable[Item]) -> list[Item]:
    """What is left once that is deleted which writers left that died."""
    left = []
    for item in found:
        if _is_stale(item):
            top.folder(item.folder).remove(item.name)
        else:
            left.append(item)
    for item in filter(_is_stale, top.items()):
        top.folder(item.folder).remove(item.name)
    return left


def _is_stale(item: Item) -> bool:
    return item.fresh and time.time() - item.used > STALE_SECONDS


def _close_up(top: CacheFolder, folders: set[str]) -> None:
    """Delete models' folders that are empty by now."""
    for folder in folders:
        kind, _, model = folder.partition("/")
        if model:
            top.folder(kind).remove_empty(model)
