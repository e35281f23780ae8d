"""`saccade cache`: what the caches on disk hold, whether it is sound, and how to get rid of it."""

# ruff: noqa: PLC0415 - the caches and the engine are imported when a command runs, not for --help

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import JsonOption
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say, say_fitted
from saccade.cli._quiet import quietly
from saccade.errors import OptionError
from saccade.memory import size_text

if TYPE_CHECKING:
    from saccade.caches import CacheFolder, Item
    from saccade.caches.audit import Format

__all__ = ["cache"]

cache = typer.Typer(help="List, verify, share or prune the caches on disk.", no_args_is_help=True)

RemoveOption = Annotated[bool, typer.Option("--remove", help="Delete what is listed.")]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="SIZE", help="Such as 500M; default: the limit.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Delete every entry.")]


@cache.command()
@quietly
def ls(*, json: JsonOption = None) -> None:
    """List kinds of entries and models, with their sizes and when they were last used."""
    check_outputs(json=json)
    from saccade.caches.audit import existing_cache
    from saccade.caches.limit import KINDS, walk
    from saccade.options import cache_bytes, cache_dir

    top = existing_cache()
    items = [] if top is None else list(walk(top))
    rows: list[_CacheRow] = []
    for name, kind in KINDS.items():
        mine = [item for item in items if item.folder.partition("/")[0] == name]
        rows.append(_CacheRow.of(name, mine, kind.what))
        if top is not None and kind.nested:
            for folder in sorted({item.folder for item in mine if "/" in item.folder}):
                inside = [item for item in mine if item.folder == folder]
                what = _inputs(top.folder(folder), inside)
                rows.append(_CacheRow.of(f"  {folder.partition('/')[2][:12]}", inside, what))
    total, most = sum(item.size for item in items), cache_bytes()
    where = cache_dir() if top is None else top.path
    say_fitted(row.text for row in rows)
    say(f"{size_text(total)} of at most {size_text(most)} in {where}")
    entries = [asdict(row) | {"name": row.name.strip()} for row in rows]
    give_json(json, {"folder": str(where), "bytes": total, "most": most, "entries": entries})


@cache.command()
@quietly
def verify(*, remove: RemoveOption = False, json: JsonOption = None) -> None:
    """Check seal, owner, mode and contents of every entry.

    The exit status is 1 if any of them is not sound.
    """
    check_outputs(json=json)
    from saccade.caches.audit import audit, existing_cache
    from saccade.devices import DEVICES, device_named
    from saccade.ir import serialize
    from saccade.tuning.store import check

    top = existing_cache()
    formats: dict[str, Format] = {
        ".graph": lambda entry: serialize.check(entry.file, entry.where, entry.seal),
        ".jsonl": check,
    }
    for name in DEVICES:
        formats |= device_named(name).entry_formats
    found = [] if top is None else list(audit(top, formats))
    for finding in found:
        say(finding.problem)
        if remove:
            finding.folder.remove(finding.name)
    say(f"{len(found)} not sound{', removed' if remove and found else ''}")
    problems = [finding.problem for finding in found]
    give_json(json, {"problems": problems, "removed": remove})
    if found:
        raise typer.Exit(1)


@cache.command()
@quietly
def prune(*, to: ToOption = None, everything: AllOption = False, json: JsonOption = None) -> None:
    """Delete the entries that were used least recently, until the rest fits."""
    from saccade.caches.audit import existing_cache
    from saccade.caches.limit import KINDS, prune_to, walk
    from saccade.options import cache_bytes, parse_bytes

    if everything and to is not None:
        raise OptionError("choose one of --to and --all")
    check_outputs(json=json)
    most = cache_bytes() if to is None else parse_bytes(to)
    top = existing_cache()
    if top is None:
        say("there is no cache yet")
        give_json(json, {"deleted": 0, "left": 0})
        return
    before = sum(item.size for item in walk(top))
    if everything:
        for name in KINDS:
            top.remove(name)
    else:
        prune_to(top, most)
    after = sum(item.size for item in walk(top))
    say(f"{size_text(before - after)} deleted, {size_text(after)} left")
    give_json(json, {"deleted": before - after, "left": after})


@cache.command()
@quietly
def share(*, json: JsonOption = None) -> None:
    """Let other users read the cache, weights included, and those entries that will be added.

    They use it if it belongs to root, and add nothing to it.
    """
    check_outputs(json=json)
    from saccade.caches.audit import existing_cache
    from saccade.caches.share import share

    top = existing_cache()
    if top is None:
        raise OptionError("there is no cache yet: `saccade warm` makes one")
    files = share(top)
    say(f"{files} files in {top.path} can be read by all")
    give_json(json, {"folder": str(top.path), "files": files})


@dataclass(frozen=True, slots=True)
class _CacheRow:
    """What is there of a kind, or of a model: files, bytes, when it was used, and what it is."""

    name: str
    files: int
    bytes: int
    used: float | None
    what: str

    @classmethod
    def of(cls, name: str, items: Sequence[Item], what: str) -> _CacheRow:
        files = sum(item.kind == stat.S_IFREG for item in items)
        used = max((item.used for item in items), default=None)
        return cls(name, files, sum(item.size for item in items), used, what)

    @property
    def text(self) -> str:
        used = self.used
        when = "" if used is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(used))
        size = size_text(self.bytes)
        return f"{self.name:<14} {self.files:>6} files {size:>10}  {when:<16}  {self.what}".rstrip()


def _inputs(model: CacheFolder, items: Sequence[Item]) -> str:
    """What a model takes, as its signature says."""
    from saccade.signature import Signature, shape_text

    for item in items:
        # Listing is no use: entries must not look younger by it.
        found = model.read(item.name, use=False) if item.name.endswith(".signature") else None
        try:
            infos = () if found is None else Signature.from_json(found).inputs
        except ValueError:
            continue
        if infos:
            return ", ".join(
                f"{info.name}: {info.dtype} {shape_text(info.shape)}" for info in infos
            )
    return ""
