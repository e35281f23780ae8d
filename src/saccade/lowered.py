"""The optimised graph of a source: from the cache on disk, or through frontend and passes.

A warm start reads one file and imports neither `onnx` nor `onnx_ir`. The constants of a cached
graph are mapped from the file, so that every process of a machine shares them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

from saccade.caches import GRAPHS, CacheFolder, cache_folder
from saccade.devices import device_named
from saccade.errors import CacheError, printable
from saccade.frontend import onnx as frontend
from saccade.ir import Array, Graph, serialize
from saccade.ir.printer import format_graph
from saccade.locks import preload
from saccade.logs import debug
from saccade.options import Options
from saccade.processes import Processes
from saccade.sources import sources_digest

__all__ = ["Lowered", "begin"]

_READERS = (
    *("onnx", "onnx.defs", "google.protobuf.message", "onnx_ir", "onnx_ir.passes.common"),
    *(
        f"saccade.frontend.onnx.{name}"
        for name in ("check", "external", "lower", "normalise", "read")
    ),
    "saccade.passes",
)
"""Modules that reading a source and its passes need."""
_Known: TypeAlias = "Mapping[str, Array | tuple[int | None, ...]] | None"
_fresh = itertools.count()


@dataclass(frozen=True)
class Lowered:
    """A graph after every pass.

    Attributes:
        graph: The graph.
        identity: Equal for equal contents; distinguishes the constants of different models.
        trace: Gives the text of the graph after the frontend and after each pass.
        imported: Gives the graph as the frontend made it, before any pass.
        entry: Name of the graph's entry in its folder of the cache, if it has a place there.
        source: Name of the file; empty if it came from none.
    """

    graph: Graph
    identity: str
    trace: Callable[[], Mapping[str, str]]
    imported: Callable[[], Graph]
    entry: str | None = None
    source: str = ""


def begin(
    source: object,
    options: Options,
    processes: Processes,
    identity: str | None,
    ahead: Callable[[], str],
    known: Mapping[str, Array | tuple[int | None, ...]] | None = None,
) -> Callable[[], Lowered]:
    """Start lowering a source; gives the function to ask for the optimised graph.

    On a miss, a file is lowered in a child process. What parsing and folding need never counts
    against the memory of the user's process, and the caller has its hands free meanwhile.

    Args:
        source: As the user gave it.
        options: The user's.
        processes: Where to lower.
        identity: Digest of the source, the device and the precision; without one nothing is kept
            on disk.
        ahead: Says what later calls will need, if anything (`Processes.preload`).
        known: Of inputs: values, which are constants then, or shapes; `identity` depends on them.
    """
    begun = perf_counter()
    place = _place(identity, options) if identity else None
    there = place is not None and place.exists()
    lowering: Callable[[], None] | None = None
    # A path means the same in a child; anything else would have to be sent there.
    # Where nothing can be left, a child would work in vain.
    if (
        place is not None
        and isinstance(source, (str, Path))
        and not there
        and place.folder.writable()
    ):
        processes.preload("saccade.opdefs")  # which those that follow need as well
        lowering = processes.start(_lower_file, (source, options, place, known))
        # After the call, which would otherwise wait for these imports.
        if modules := ahead():
            processes.preload(modules)

    def finish() -> Lowered:
        since = perf_counter() if there else begun
        if lowering is not None:
            lowering()
        graph = _read(place)
        # There is no cache, the child could not write to it, or the source is no file.
        if graph is None:
            graph = _keep(_lower(source, options, known), place)
        how = "read from the cache" if there else "imported, and rewritten by the passes"
        debug(
            "graph of %d nodes: %s, %.0f ms", len(graph.nodes), how, 1e3 * (perf_counter() - since)
        )
        # Of models without a digest each counts as another one.
        name = identity or f"model-{next(_fresh)}"
        # Seldom asked for, so the source is lowered once more instead of keeping every stage.
        trace = lru_cache(maxsize=1)(lambda: _stages(source, options, known))
        entry = None if place is None else place.name
        file = printable(Path(source).name) if isinstance(source, (str, Path)) else ""
        return Lowered(graph, name, trace, lambda: _imported(source, options, known), entry, file)

    return finish


def _lower(source: object, options: Options, known: _Known, *, mapped: bool = False) -> Graph:
    preload(*_READERS)
    from saccade import passes  # noqa: PLC0415 - a warm start needs none of them

    steps = device_named(options.device).passes(options)
    return passes.run(frontend.load(source, options, mapped=mapped, known=known), steps)


def _lower_file(
    task: tuple[str | Path, Options, _Place, _Known],
) -> None:
    """Lower a file into the cache (runs in a child process)."""
    from saccade.frontend.onnx.late import put_off_sympy  # noqa: PLC0415 - for a process of its own

    source, options, place, known = task
    put_off_sympy()
    # Mapped, as the weights are copied from the file to the cache right here. Where they cannot be,
    # the process that asked for them lowers the file itself, and warns.
    _write(_lower(source, options, known, mapped=True), place, quiet=True)


def _imported(source: object, options: Options, known: _Known) -> Graph:
    preload(*_READERS)
    return frontend.load(source, options, known=known)


def _stages(source: object, options: Options, known: _Known) -> dict[str, str]:
    preload(*_READERS)
    from saccade import passes  # noqa: PLC0415 - a warm start needs none of them

    graph = _imported(source, options, known)
    found = {"frontend": format_graph(graph)}

    def note(name: str, after: Graph, notes: Sequence[object]) -> None:
        text = format_graph(after)
        found[name] = "\n".join([text, *(f"; {n}" for n in notes)])

    passes.run(graph, device_named(options.device).passes(options), note)
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a graph is kept."""

    folder: CacheFolder
    name: str

    def exists(self) -> bool:
        return self.folder.exists(self.name)


def _place(identity: str, options: Options) -> _Place | None:
    folder = cache_folder(GRAPHS)
    if not folder.usable():
        return None
    # The device's own passes make the graph as well.
    own = f"backends/{device_named(options.device).plans_for}/passes"
    code = sources_digest("frontend", "ir", "opdefs", "passes", own)
    key = sha256(f"{identity}/{code}".encode()).hexdigest()
    return _Place(folder, f"{key}.graph")


def _read(place: _Place | None) -> Graph | None:
    if place is None:
        return None
    with place.folder.opened(place.name) as entry:
        try:
            return None if entry is None else serialize.load(entry.file, entry.where, entry.seal)
        except CacheError:  # it is lowered again
            place.folder.tell_damaged(place.name)
            return None


def _keep(graph: Graph, place: _Place | None) -> Graph:
    """Write the graph to the cache and map it from there, so that memory is held once."""
    if place is None:
        return graph
    _write(graph, place)
    return _read(place) or graph


def _write(graph: Graph, place: _Place, *, quiet: bool = False) -> None:
    """Add a graph to the cache; a full or read-only disk leaves the cache as it is."""
    place.folder.add(
        place.name, lambda entry: serialize.save(graph, entry.file, entry.seal), quiet=quiet
    )
