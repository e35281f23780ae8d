"""Object code by (kernel, config): from memory, from disk, or from the compiler's processes.

An entry on disk is named by a digest of everything that the code depends on: sources of the
language and of the kernels, kernel, config, LLVM version, target, checked mode. It is sealed with a
key of the user's own (`caches`), and one that is not is never linked. Writes are atomic, so
processes can share the folder. What a package brought along compiled is looked for first
(`prebuilt`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from saccade import collector
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.runtime.compiler import (
    PRELOAD,
    Task,
    code_digest,
    compile_kernel,
    effort,
)
from saccade.backends.cpu.runtime.prebuilt import prebuilt_for
from saccade.backends.cpu.target import Target
from saccade.caches import cache_folder
from saccade.kernels.base import Key
from saccade.locks import Lock, cached_property, forkless
from saccade.logs import debug
from saccade.processes import Processes

__all__ = [
    "Key",
    "ObjectFile",
    "Objects",
    "came_compiled",
    "encode_object",
    "keep_text",
    "kept_text",
    "llvm_version",
    "mark_of",
    "text_object",
]


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """Relocatable code that defines `symbol`, its parameters, and the names of checked accesses."""

    symbol: str
    code: bytes
    parameters: Parameters
    accesses: tuple[str, ...]


@cache
def llvm_version() -> str:
    """Version of llvmlite, whose LLVM is one of its own; empty if there is none."""
    # Read, not imported, which takes 40 ms and 40 MB: there may be nothing to compile.
    found = find_spec("llvmlite")
    if found is None or found.origin is None:
        return ""
    with suppress(OSError):
        text = Path(found.origin).with_name("_version.py").read_text(encoding="utf-8")
        told = re.search(r"version_version = '([^']+)'", text)
        if told is not None:
            return told.group(1)
    return _imported_version()


def _imported_version() -> str:
    with forkless:
        import llvmlite  # noqa: PLC0415 - see above; of versions that are written otherwise

    return str(llvmlite.__version__)


class Objects:
    """The process's objects for one target.

    Args:
        target: Machine.
        checked: Whether the code checks its bounds.
        disk: Whether the folder on disk may be used.
    """

    def __init__(self, target: Target, *, checked: bool = False, disk: bool = True) -> None:
        self.target, self.checked = target, checked
        self._folder = _Folder(target, use=disk)
        self._known: dict[Key, ObjectFile] = {}
        self._absent: set[Key] = set()  # on disk, when they were asked for
        self._lock = Lock()
        self.compiled = 0
        """How many kernels this process had compiled (tests count)."""

    def has(self, kernel: str, config: object) -> bool:
        """Whether the code is in memory."""
        return (kernel, config) in self._known

    def exists(self, key: Key) -> bool:
        """Whether the code is in memory, or on disk, from where it then is taken.

        What others left on disk since this was first asked does not count.
        """
        if key in self._known:
            return True
        if key in self._absent:
            return False
        if self._folder.listed(self._symbol(key)):
            self.recall([key])
        if key not in self._known:
            self._absent.add(key)
        return key in self._known

    @property
    def empty(self) -> bool:
        """Whether nothing is in memory yet."""
        return not self._known

    def recall(self, keys: Iterable[Key]) -> None:
        """Take into memory what is on disk of these."""
        with self._lock:
            for key in dict.fromkeys(keys):
                found = self._folder.read(self._symbol(key)) if key not in self._known else None
                if found is not None:
                    self._known[key] = found

    def get(
        self, keys: Iterable[Key], pool: Processes, *, here: float = 0.0
    ) -> dict[Key, ObjectFile]:
        """Code for all keys; what is missing is compiled side by side.

        Args:
            keys: What is wanted.
            pool: Where to compile.
            here: What may be compiled in this process instead, in units of `CpuKernel.effort`:
                starting others takes half a second.

        Raises:
            CompileError: If a kernel cannot be compiled.
        """
        wanted = list(dict.fromkeys(keys))
        with self._lock:
            missing = [key for key in wanted if key not in self._known]
            missing.sort(key=lambda key: -effort(*key))
            tasks = []
            for key in missing:
                symbol = self._symbol(key)
                found = self._folder.read(symbol)
                if found is None:
                    tasks.append(
                        (key, Task(symbol, *key, self.target, self.checked, code_digest()))
                    )
                else:
                    self._known[key] = found
            begun = perf_counter()
            if sum(effort(*key) for key, _ in tasks) <= here:
                made = _compiled_here([t for _, t in tasks])
            else:
                pool.preload(PRELOAD)
                made = pool.map(compile_kernel, [t for _, t in tasks])
            for (key, task), (code, parameters, accesses) in zip(tasks, made, strict=True):
                self._known[key] = ObjectFile(task.symbol, code, parameters, accesses)
                self.compiled += 1
                self._folder.write(self._known[key])
            if missing:
                read, took = len(missing) - len(tasks), 1e3 * (perf_counter() - begun)
                debug("code: %d read from disk, %d compiled in %.0f ms", read, len(tasks), took)
            return {key: self._known[key] for key in wanted}

    def _symbol(self, key: Key) -> str:
        name, config = key
        digest = _digest(*self._code, name, repr(config), str(self.checked))
        return f"{name.replace('.', '_')}_{digest}"

    @cached_property
    def _code(self) -> tuple[str, str, str]:
        return _code_of(self.target)


def _code_of(target: Target) -> tuple[str, str, str]:
    """What code depends on besides its config."""
    return code_digest(), llvm_version(), target.code


def mark_of(target: Target) -> str:
    """Name of the entry that tells for which version kernels came compiled."""
    return f"for_{_digest(*_code_of(target))}"


def came_compiled(target: Target, *, checked: bool = False) -> bool:
    """Whether kernels of this version came compiled for a target, whichever they are."""
    return not checked and mark_of(target) in prebuilt_for(target.code)


def _compiled_here(tasks: Sequence[Task]) -> list[tuple[bytes, Parameters, tuple[str, ...]]]:
    with forkless, collector.put_off():  # emitting makes garbage, but little of it in cycles
        return [compile_kernel(task) for task in tasks]


class _Folder:
    """Entries on disk: in the cache, where it is used, and of what came compiled."""

    def __init__(self, target: Target, *, use: bool) -> None:
        self._folder = cache_folder("objects") if use else None
        self._came = prebuilt_for(target.code)

    @cached_property
    def _names(self) -> frozenset[str]:
        """Of the entries that were there when this was first asked."""
        items = () if self._folder is None else self._folder.items()
        return frozenset(item.name for item in items)

    def listed(self, symbol: str) -> bool:
        """Whether an entry of this name was there; reading it may still show that it is broken."""
        return symbol in self._came or f"{symbol}.bin" in self._names

    def read(self, symbol: str) -> ObjectFile | None:
        """The entry of this name, or None."""
        payload = self._came.read(symbol)
        if payload is None and self._folder is not None:
            payload = self._folder.read(f"{symbol}.bin")
        return None if payload is None else _decode(symbol, payload)

    def write(self, entry: ObjectFile) -> None:
        """Keep an entry, as far as the disk allows."""
        if self._folder is not None:
            self._folder.write(f"{entry.symbol}.bin", encode_object(entry))


def kept_text(text: str, target: Target) -> bytes | None:
    """Object code of a piece of LLVM IR text, if the folder has it."""
    found = _Folder(target, use=True).read(_text_symbol(text, target))
    return None if found is None else found.code


def keep_text(text: str, target: Target, code: bytes) -> None:
    """Leave it there."""
    _Folder(target, use=True).write(text_object(text, target, code))


def text_object(text: str, target: Target, code: bytes) -> ObjectFile:
    """Object code of a piece of LLVM IR text, which has no parameters."""
    return ObjectFile(_text_symbol(text, target), code, Parameters(), ())


def _text_symbol(text: str, target: Target) -> str:
    return "text_" + _digest(text, target.code, llvm_version())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def encode_object(entry: ObjectFile) -> bytes:
    """An object as it is kept: a line of JSON, then the code."""
    known = entry.parameters
    head = [entry.symbol, known.pointers, known.integers, entry.accesses]
    return json.dumps(head).encode() + b"\n" + entry.code


def _decode(symbol: str, payload: bytes) -> ObjectFile | None:
    """The entry, or None if the payload is not what `encode_object` wrote for this symbol."""
    line, _, code = payload.partition(b"\n")
    try:
        name, pointers, integers, accesses = json.loads(line)
        parameters = Parameters(tuple(pointers), tuple((n, count) for n, count in integers))
    except (TypeError, ValueError):
        return None
    return ObjectFile(symbol, code, parameters, tuple(accesses)) if name == symbol else None
