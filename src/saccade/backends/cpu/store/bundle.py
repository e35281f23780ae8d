"""What a model needs to run, ready on disk: a warm start maps it, checks it and calls it.

One folder per model (the file's digest, device, precision, Saccade's code) with

- `*.signature`: for each set of options, the inputs and outputs: with it the model is known to
  compile;
- `*.program`: for each set of input shapes and options, the tables, the machine code as one flat
  image, and the plan (read only by who asks for it);
- `*.weights`: packed constants, shared by all programs of the model and by all processes.

What has no space there (`keeping`) a start packs from the graph's file, with code in the program's
image (`derived`). Neither the graph's nodes nor LLVM is needed to run what is there. Every entry is
checked in full before it is used; one that is damaged, or that others could have written, counts as
absent (`caches`). Those that cannot be written are left out, and nothing fails for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.backends.cpu.processor import this_machine
from saccade.backends.cpu.store.identity import llvm_identity, machine_identity
from saccade.backends.cpu.store.weights import (
    Placed,
    Put,
    index_of,
    map_weights,
    size_of,
    write_weights,
)
from saccade.caches import GRAPHS, CacheFolder, Item, cache_folder, choices_entry
from saccade.errors import CacheError
from saccade.locks import preload
from saccade.options import cache_bytes
from saccade.signature import Signature
from saccade.sources import sources_digest

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.program import CpuProgram
    from saccade.graphfile import RawConstant
    from saccade.ir import Array
    from saccade.options import Options

__all__ = ["Bundles", "bundles_of"]

_PROGRAMS = 64  # of a model, one for each of so many sizes; the others go


def bundles_of(identity: str, options: Options) -> Bundles | None:
    """The folder of a model, or None where there can be none.

    Args:
        identity: Of the model as it is lowered: the file's digest, the device and the precision.
        options: What it is compiled with.
    """
    machine, llvm = machine_identity(), llvm_identity()
    if machine is None or llvm is None:
        return None
    top = cache_folder("bundles")
    if not top.usable():
        return None
    folder = top.folder(_short(identity, sources_digest()))
    how = repr((options.resolved_threads, options.exact, options.checked, options.isa))
    return Bundles(folder, identity, _short(how, machine, llvm, _choices(identity, options)))


def _choices(identity: str, options: Options) -> str:
    """Names the tuned choices that plans are made with: by the contents of their file."""
    given = options.algorithms
    if given is None:
        content = cache_folder("algorithms").read(choices_entry(identity, this_machine()))
    else:
        try:
            content = Path(given).read_bytes()
        except OSError:  # the engine will say what is wrong with it
            content = None
    return f"{given is None} {sha256(content or b'').hexdigest()}"


class Bundles:
    """The entries of one model for one set of options.

    Args:
        folder: The model's.
        identity: Distinguishes its constants in memory from those of other models.
        variant: Names what programs depend on besides shapes.

    Attributes:
        graph: Name of the entry that holds the model's graph, where that is known.
    """

    def __init__(self, folder: CacheFolder, identity: str, variant: str) -> None:
        self.folder = folder
        self.identity = identity
        self.graph: str | None = None
        self._variant = variant
        self._held: dict[tuple[str, int], set[str]] = {}  # by file and size: what it says it holds

    def graph_is_at(self, entry: str | None) -> None:
        """Told where the model's graph lies."""
        self.graph = entry

    def signature(self) -> Signature | None:
        """What the model takes and gives, if that is known."""
        found = self.read(f"{self._variant}.signature")
        try:
            return None if found is None else Signature.from_json(found)
        except ValueError:
            return None

    def keep_signature(self, signature: Signature) -> None:
        """Write it."""
        self.write(f"{self._variant}.signature", signature.to_json().encode())

    def program(self, shapes: Sequence[Sequence[int]]) -> CpuProgram | None:
        """The program for these input shapes, if it is there."""
        preload("saccade.backends.cpu.store.saved")
        from saccade.backends.cpu.store.saved import load_program  # noqa: PLC0415 - it reads through this

        return load_program(self, shapes)

    def program_name(self, shapes: Sequence[Sequence[int]]) -> str:
        """The name of the entry for these input shapes."""
        return _short(self._variant, repr([tuple(shape) for shape in shapes])) + ".program"

    def read(self, name: str) -> bytes | None:
        """The contents of an entry, or None if it is absent, damaged, or another one."""
        return self.folder.read(name)

    def write(self, name: str, payload: bytes) -> bool:
        """Add an entry; whether that was possible."""
        written = self.folder.write(name, payload)
        for item in self._files(".program")[_PROGRAMS:] if written else ():
            self.folder.remove(item.name)
        return written

    def graph_bytes(self) -> int | None:
        """Size of the graph's entry; None if it is not there."""
        if self.graph is None:
            return None
        with self._graphs.opened(self.graph, use=False) as entry:
            return None if entry is None else os.fstat(entry.file).st_size

    def sources(self, graph: str, names: Collection[str]) -> dict[str, RawConstant] | None:
        """Constants of a graph's entry, mapped as long as one of them is held.

        Returns:
            None if the entry is not there or damaged; each constant is checked when it is read.
        """
        from saccade.graphfile import raw_constants  # noqa: PLC0415 - few programs derive any

        with self._graphs.opened(graph) as entry, suppress(CacheError, OSError):
            if entry is not None:
                return raw_constants(entry.file, entry.where, entry.seal, names)
        return None

    @property
    def _graphs(self) -> CacheFolder:
        return CacheFolder(self.folder.root, GRAPHS)

    def held(self) -> set[str]:
        """Names of all constants that files say they hold."""
        return set().union(*(names for _, names in self.weights()))

    def weights(self) -> list[tuple[str, set[str]]]:
        """The files of constants, each with the names that it says it holds.

        What a file says is read once; what it holds is checked when it is mapped.
        """
        files = {(item.name, item.size): item.name for item in self._files(".weights")}
        for key, name in files.items():
            if key in self._held:
                continue
            with self.folder.opened(name, use=False) as entry, suppress(CacheError, OSError):
                if entry is not None:
                    self._held[key] = {name for name, _, _ in index_of(entry)}
        return [(name, self._held[key]) for key, name in files.items() if key in self._held]

    def map(self, file: str) -> dict[str, Array]:
        """The constants of a file; none, and the file is deleted, if it is damaged."""
        with self.folder.opened(file) as entry:
            try:
                return {} if entry is None else map_weights(entry)
            except CacheError:
                self.folder.tell_damaged(file)
                self.folder.remove(file)
            except OSError:
                pass
        return {}

    def keep_weights(
        self, placed: Sequence[Placed], fill: Callable[[Put], None], most: int | None = None
    ) -> bool:
        """Write a file of constants; whether that was possible.

        Args:
            placed: What will be in there.
            fill: Puts it there.
            most: Bytes that all files of the model's constants may take; without it there is no
                limit but that of the cache. Files that hold nothing but what others hold go first.
        """
        size = size_of(placed)
        name = _short(*(name for name, _, _ in placed)) + ".weights"
        if size > cache_bytes():
            self.folder.tell_too_large(name, size)
            return False
        if most is not None and self.weights_bytes() + size > most:
            return False
        added = self.folder.add(name, lambda entry: write_weights(entry, placed, fill))
        if added and most is not None and self.weights_bytes() > most:  # others wrote meanwhile
            self.folder.remove(name)
            return False
        return added

    def weights_bytes(self) -> int:
        """Bytes of the files of constants, once those that others make superfluous are gone."""
        files = dict(sorted(self.weights(), key=lambda file: len(file[1])))
        for name in [*files]:
            others = [held for other, held in files.items() if other != name]
            if files[name] <= set().union(*others):
                self.folder.remove(name)
                del files[name]
        return sum(item.size for item in self._files(".weights"))

    def _files(self, suffix: str) -> list[Item]:
        """Those of a kind, the last to have been used first."""
        return [item for item in self.folder.items() if item.name.endswith(suffix)]


def _short(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:40]
