"""What a model needs to run, ready on disk: a warm start maps it, checks it and calls it.

One folder per model (the file's digest, the precision, Saccade's code) with

- `*.signature`: for each set of options, the inputs and outputs: with it the model is known to
  compile;
- `*.program`: for each set of input shapes and options, the tables, the machine code as one flat
  image, and the plan (read only by who asks for it);
- `*.weights`: packed constants, shared by all programs of the model and by all processes.

Neither the graph nor LLVM is needed to run what is there. Every entry is checked in full before it
is used; one that is damaged, or a folder that others may write to, counts as absent. Files are
written under another name first, so that processes can share the folder; those that cannot be
written are left out, and nothing fails for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.caches import choices_file, trusted_folder
from saccade.errors import CacheError
from saccade.processor import this_machine
from saccade.runtime.identity import code_digest, llvm_identity, machine_identity
from saccade.runtime.weights import Placed, Put, index_of, map_weights, write_weights
from saccade.signature import Signature, TensorInfo

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.options import Options
    from saccade.runtime.cpu.program import CpuProgram

__all__ = ["Bundles", "bundles_of"]

_CACHE_BYTES = 8 << 30
_PROGRAMS = 64
_MAGIC = b"saccade bundle 1"


def bundles_of(identity: str, options: Options) -> Bundles | None:
    """The folder of a model, or None where there can be none.

    Args:
        identity: Of the model as it is lowered: the file's digest, and the precision.
        options: What it is compiled with.
    """
    machine, llvm = machine_identity(), llvm_identity()
    if options.device != "cpu" or machine is None or llvm is None:
        return None
    top = trusted_folder("bundles")
    if top is None:
        return None
    folder = top / _short(identity, code_digest())
    how = repr((options.resolved_threads, options.exact, options.checked, options.isa))
    return Bundles(folder, identity, _short(how, machine, llvm, _choices(identity, options)))


def _choices(identity: str, options: Options) -> str:
    """Names the tuned choices that plans are made with: by the contents of their file."""
    given = options.algorithms
    path = choices_file(identity, this_machine()) if given is None else Path(given)
    try:
        content = b"" if path is None else path.read_bytes()
    except OSError:  # nothing was tuned; or the engine will say what is wrong with a given file
        content = b""
    return f"{given is None} {sha256(content).hexdigest()}"


class Bundles:
    """The entries of one model for one set of options.

    Args:
        folder: The model's.
        identity: Distinguishes its constants in memory from those of other models.
        variant: Names what programs depend on besides shapes.
    """

    def __init__(self, folder: Path, identity: str, variant: str) -> None:
        self.folder = folder
        self.identity = identity
        self._variant = variant

    def signature(self) -> Signature | None:
        """What the model takes and gives, if that is known."""
        found = self.read(f"{self._variant}.signature")
        if found is None:
            return None
        inputs, outputs = (
            tuple(TensorInfo(name, dtype, tuple(shape)) for name, dtype, shape in infos)
            for infos in json.loads(found)
        )
        return Signature(inputs, outputs)

    def keep_signature(self, signature: Signature) -> None:
        """Write it."""
        infos = [[astuple(info) for info in side] for side in (signature.inputs, signature.outputs)]
        self.write(f"{self._variant}.signature", json.dumps(infos).encode())

    def program(self, shapes: Sequence[Sequence[int]]) -> CpuProgram | None:
        """The program for these input shapes, if it is there."""
        from saccade.runtime.cpu.saved import load_program  # noqa: PLC0415 - it reads through this

        return load_program(self, shapes)

    def program_name(self, shapes: Sequence[Sequence[int]]) -> str:
        """The name of the entry for these input shapes."""
        return _short(self._variant, repr([tuple(shape) for shape in shapes])) + ".program"

    def read(self, name: str) -> bytes | None:
        """The contents of an entry, or None if it is absent, damaged, or another one."""
        try:
            content = (self.folder / name).read_bytes()
        except OSError:
            return None
        with suppress(OSError):  # used now: the last to be forgotten
            os.utime(self.folder / name)
            os.utime(self.folder)
        head = len(_MAGIC)
        payload = content[head + 32 :]
        sound = content[:head] == _MAGIC and content[head : head + 32] == _seal(name, payload)
        return payload if sound else None

    def write(self, name: str, payload: bytes) -> bool:
        """Add an entry; whether that was possible."""

        def fill(file: int) -> None:
            with os.fdopen(file, "wb", closefd=False) as stream:
                stream.write(_MAGIC + _seal(name, payload) + payload)

        return self.add(name, fill)

    def weights(self) -> list[tuple[Path, set[str]]]:
        """The files of constants, each with the names that it says it holds."""
        found = []
        for path in self.folder.glob("*.weights"):
            with suppress(CacheError, OSError):
                found.append((path, {name for name, _, _ in index_of(path)}))
        return found

    def map(self, path: Path) -> dict[str, Array]:
        """The constants of a file; none, and the file is deleted, if it is damaged."""
        try:
            return map_weights(path)
        except CacheError:
            path.unlink(missing_ok=True)
        except OSError:
            pass
        return {}

    def keep_weights(self, placed: Sequence[Placed], fill: Callable[[Put], None]) -> bool:
        """Write a file of constants; whether that was possible."""
        name = _short(*(name for name, _, _ in placed)) + ".weights"
        return self.add(name, lambda file: write_weights(file, placed, fill))

    def add(self, name: str, fill: Callable[[int], None]) -> bool:
        """Add a file that `fill` writes into a descriptor; whether that was possible."""
        import tempfile  # noqa: PLC0415 - a warm start writes nothing

        fresh = None
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            handle, fresh = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                fill(handle)
            finally:
                os.close(handle)
            Path(fresh).replace(self.folder / name)
        except OSError:
            if fresh is not None:
                Path(fresh).unlink(missing_ok=True)
            return False
        with suppress(OSError):  # another process may be tidying up too
            _trim(self.folder)
        return True


def _seal(name: str, payload: bytes) -> bytes:
    """An entry is worth nothing under another name."""
    return sha256(name.encode() + b"\0" + payload).digest()


def _short(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:40]


def _trim(kept: Path) -> None:
    """Forget the programs of a model that are one too many, and models beyond the cache's size."""
    import shutil  # noqa: PLC0415 - see `Bundles.add`

    programs = sorted(kept.glob("*.program"), key=_age)
    for path in programs[_PROGRAMS:]:
        path.unlink(missing_ok=True)
    total = 0
    for folder in sorted(kept.parent.iterdir(), key=_age):
        total += sum(path.stat().st_size for path in folder.iterdir())
        if total > _CACHE_BYTES and folder != kept:
            shutil.rmtree(folder, ignore_errors=True)


def _age(path: Path) -> float:
    return -path.stat().st_mtime
