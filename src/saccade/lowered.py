"""The optimised graph of a source: from the cache on disk, or through frontend and passes.

A warm start reads one file and imports neither `onnx` nor `onnxscript`. The constants of a cached
graph are mapped from the file, so that every process of a machine shares them.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade import frontend
from saccade.caches import trusted_folder
from saccade.errors import CacheError
from saccade.ir import Graph, serialize
from saccade.ir.printer import format_graph
from saccade.options import Options, Precision
from saccade.processes import Processes

if TYPE_CHECKING:
    from saccade.passes import Pass

__all__ = ["Lowered", "begin"]

_CACHE_BYTES = 8 << 30
_fresh = itertools.count()


@dataclass(frozen=True)
class Lowered:
    """A graph after every pass.

    Attributes:
        graph: The graph.
        identity: Equal for equal contents; distinguishes the constants of different models.
        trace: Gives the text of the graph after the frontend and after each pass.
    """

    graph: Graph
    identity: str
    trace: Callable[[], Mapping[str, str]]


def begin(
    source: Any,  # noqa: ANN401
    options: Options,
    processes: Processes,
    identity: str | None,
    ahead: str,
) -> Callable[[], Lowered]:
    """Start lowering a source; gives the function to ask for the optimised graph.

    On a miss, a file is lowered in a child process. What parsing and folding need never counts
    against the memory of the user's process, and the caller has its hands free meanwhile.

    Args:
        source: As the user gave it.
        options: The user's.
        processes: Where to lower.
        identity: Digest of the source and the precision; without one nothing is kept on disk.
        ahead: What later calls will need, if anything (`Processes.warm`).
    """
    path = _path(identity) if identity else None
    lowering: Callable[[], None] | None = None
    if path is not None and isinstance(source, (str, Path)) and not path.exists():
        processes.warm("saccade.opdefs")  # which those that follow need as well
        lowering = processes.start(_lower_file, (source, options, path))
        if ahead:
            processes.warm(ahead)

    def finish() -> Lowered:
        if lowering is not None:
            lowering()
        graph = _read(path)
        if graph is None:
            graph = _keep(_lower(source, options), path)
        name = identity or f"model-{next(_fresh)}"
        return Lowered(graph, name, lru_cache(maxsize=1)(lambda: _stages(source, options)))

    return finish


def _lower(source: Any, options: Options, *, mapped: bool = False) -> Graph:  # noqa: ANN401
    from saccade import passes  # noqa: PLC0415 - a warm start needs none of them

    return passes.run(frontend.load(source, options, mapped=mapped), _passes(options))


def _passes(options: Options) -> tuple[Pass, ...]:
    from saccade import passes  # noqa: PLC0415 - a warm start needs none of them

    return passes.BFLOAT16 if options.precision is Precision.BF16 else passes.STANDARD


def _lower_file(task: tuple[str | Path, Options, Path]) -> None:
    """Lower a file into the cache (runs in a child process)."""
    from saccade.frontend.late import put_off_sympy  # noqa: PLC0415 - for a process of its own

    source, options, path = task
    put_off_sympy()
    _write(_lower(source, options, mapped=True), path)


def _stages(source: Any, options: Options) -> dict[str, str]:  # noqa: ANN401
    from saccade import passes  # noqa: PLC0415 - a warm start needs none of them

    graph = frontend.load(source, options)
    found = {"frontend": format_graph(graph)}

    def note(name: str, after: Graph, notes: Any) -> None:  # noqa: ANN401
        text = format_graph(after)
        found[name] = "\n".join([text, *(f"; {n}" for n in notes)])

    passes.run(graph, _passes(options), note)
    return found


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Digest of the sources that decide what a lowered graph is."""
    package = Path(__file__).parent
    digest = sha256()
    for folder in ("frontend", "ir", "opdefs", "passes"):
        for file in sorted((package / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _path(identity: str) -> Path | None:
    folder = trusted_folder("graphs")
    if folder is None:
        return None
    key = sha256(f"{identity}/{_code_digest()}".encode()).hexdigest()
    return folder / f"{key}.graph"


def _read(path: Path | None) -> Graph | None:
    if path is None or not path.exists():
        return None
    try:
        graph = serialize.load(path)
        os.utime(path)
    except (CacheError, OSError):
        return None
    return graph


def _keep(graph: Graph, path: Path | None) -> Graph:
    """Write the graph to the cache and map it from there, so that memory is held once."""
    if path is None:
        return graph
    _write(graph, path)
    return _read(path) or graph


def _write(graph: Graph, path: Path) -> None:
    """Add a graph to the cache; a full or read-only disk leaves the cache as it is."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        os.close(handle)
        serialize.save(graph, Path(name))
        Path(name).replace(path)
        _trim(path.parent)
    except OSError:
        return


def _trim(folder: Path) -> None:
    """Forget the least recently used graphs beyond the cache's size."""
    files = sorted(folder.glob("*.graph"), key=lambda f: f.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > _CACHE_BYTES:
            file.unlink(missing_ok=True)
