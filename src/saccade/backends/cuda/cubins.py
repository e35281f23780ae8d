"""Machine code by (kernel, config, alignment): from memory, from disk, or compiled by Triton.

Code depends on which of a launch's pointers and integers are multiples of 16, and for pointers that
are not, of 8 or 4. An entry on disk is named by a digest of everything that the code depends on,
and sealed (`caches`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from math import gcd
from typing import NamedTuple

from saccade.backends.cuda.codegen.compile import Cubin, compile_entry, decode_cubin, encode_cubin
from saccade.caches import cache_folder
from saccade.errors import CompileError
from saccade.kernels.bind import Phase
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.base import Entry
from saccade.locks import Lock, cached_property
from saccade.processes import Processes
from saccade.sources import sources_digest

__all__ = ["CodeKey", "Cubins", "code_key", "common_alignment", "triton_version"]

_COMPILER = "triton.compiler"
_GRAIN = 16
"""Bytes of the widest access, and Triton's unit of alignment."""
_LEAST_GRAIN = 4
"""Bytes of the narrowest access that goes past registers (`cp.async`)."""


class CodeKey(NamedTuple):
    """What code is asked for by.

    Attributes:
        kernel: Its name.
        config: What it is specialised for.
        aligned: Names of pointers and integers that are multiples of 16, in order; `name:8` and
            `name:4` of pointers that are of less.
        rows: Whether its grid has rows, of launches that are alike (`batches`).
    """

    kernel: str
    config: Hashable
    aligned: tuple[str, ...]
    rows: bool = False


def code_key(kernel: str, phase: Phase) -> CodeKey:
    """The code of a phase; bases are multiples of 16 (`runtime` sees to it)."""
    described, multiples = _alignment_of(kernel, phase.config)
    aligned = []
    for name, _, ref in phase.arguments:
        if name not in described:
            grain = gcd(_GRAIN, ref.offset)
            if grain == _GRAIN:
                aligned.append(name)
            elif grain >= _LEAST_GRAIN:
                aligned.append(f"{name}:{grain}")
    for name in multiples:
        value = phase.integers[name]
        if isinstance(value, int) and value % _GRAIN == 0:
            aligned.append(name)
    aligned.sort()
    return CodeKey(kernel, phase.config, tuple(aligned))


def common_alignment(each: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What holds of all that are aligned like these; see `CodeKey.aligned`."""
    first, *others = [
        {name: int(grain or _GRAIN) for name, _, grain in (one.partition(":") for one in aligned)}
        for aligned in each
    ]
    known = {
        name: min([grain, *(other.get(name, 0) for other in others)])
        for name, grain in first.items()
    }
    named = ((name, grain) for name, grain in known.items() if grain)
    return tuple(sorted(name if grain == _GRAIN else f"{name}:{grain}" for name, grain in named))


# An entry has the text of the generated functions, which other sizes would have made again.
@lru_cache(maxsize=4096)
def _alignment_of(kernel: str, config: Hashable) -> tuple[frozenset[str], tuple[str, ...]]:
    """Which arguments' alignment does not count, which integers' does."""
    entry = kernel_named(kernel).entry(config)
    # A tensor map is a parameter itself, whose alignment says nothing of the operand's.
    return frozenset(one.name for one in entry.descriptors), tuple(entry.multiples)


@cache
def triton_version() -> str:
    """Of the Triton that there is; empty without."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return ""


def compilable(entry: Entry) -> bool:
    """Whether there is a Triton, and one that compiles this."""
    found = triton_version()
    return bool(found) and tuple(map(int, found.split(".")[:2])) >= entry.triton


@dataclass(frozen=True, slots=True)
class CubinTask:
    """A kernel to compile in a child."""

    entry: Entry
    arch: int
    aligned: tuple[str, ...]
    rows: bool


def compile_task(task: CubinTask) -> Cubin | str:
    """What children run: the code, or why there is none."""
    try:
        return compile_entry(task.entry, task.arch, task.aligned, rows=task.rows)
    except CompileError as error:
        return str(error)


class Cubins:
    """The process's code for one architecture.

    Args:
        arch: Compute capability times ten.
        disk: Whether the folder on disk may be used.
    """

    def __init__(self, arch: int, *, disk: bool = True) -> None:
        self.arch = arch
        self._folder = cache_folder("cubins") if disk else None
        self._known: dict[CodeKey, Cubin] = {}
        self._configs: set[tuple[str, Hashable]] = set()
        self._carried: dict[str, Cubin] = {}
        self._lock = Lock()
        self.compiled = 0
        """How many kernels were compiled."""

    @property
    def empty(self) -> bool:
        """Whether nothing is in memory yet."""
        return not self._known

    @property
    def known(self) -> Mapping[CodeKey, Cubin]:
        """What is in memory."""
        return dict(self._known)

    def has(self, kernel: str, config: Hashable) -> bool:
        """Whether there is code for a config, whatever its operands' alignment."""
        return (kernel, config) in self._configs

    def reachable(self, keys: Iterable[CodeKey]) -> bool:
        """Whether there is code for all keys, or can be."""
        with self._lock:
            return all(
                compilable(kernel_named(key.kernel).entry(key.config)) or self._recalled(key)
                for key in keys
            )

    def each(self, keys: Sequence[CodeKey], processes: Processes) -> list[Cubin]:
        """The code of each of the keys; see `get`."""
        found = [self._known.get(key) for key in keys]
        there = [one for one in found if one is not None]
        # Most new sizes lack nothing, and to hash a key is to hash all of its config.
        if len(there) == len(keys):
            return there
        made = self.get(keys, processes)
        return [made[key] for key in keys]

    def get(self, keys: Iterable[CodeKey], processes: Processes) -> Mapping[CodeKey, Cubin]:
        """Code for all keys; what is missing is compiled side by side.

        Raises:
            CompileError: If there is no Triton, or if it cannot compile a kernel.
        """
        found = {}
        for key, one in self.attempt(keys, processes).items():
            if isinstance(one, str):
                raise CompileError(one)
            found[key] = one
        return found

    def attempt(
        self, keys: Iterable[CodeKey], processes: Processes
    ) -> Mapping[CodeKey, Cubin | str]:
        """The same; of kernels that cannot be compiled, why not.

        Raises:
            CompileError: If there is no Triton.
        """
        wanted = list(dict.fromkeys(keys))
        with self._lock:
            # Locked to the end: who wants the same code waits, and does not compile it again.
            missing = [key for key in wanted if not self._recalled(key)]
            if missing and not triton_version():
                raise CompileError(
                    f"{len(missing)} kernels have to be compiled for sm_{self.arch}, which needs "
                    "Triton: pip install 'saccade[cuda-compile]', or run a bundle that "
                    "`saccade build` made where it is"
                )
            reasons: dict[CodeKey, str] = {}
            for key, cubin in zip(missing, self._compiled(missing, processes), strict=True):
                if isinstance(cubin, str):
                    reasons[key] = cubin
                    continue
                self._keep(key, cubin)
                self.compiled += 1
                if self._folder is not None:
                    self._folder.write(self._name(key), encode_cubin(cubin))
            return {key: reasons.get(key) or self._known[key] for key in wanted}

    def _compiled(self, keys: Sequence[CodeKey], processes: Processes) -> list[Cubin | str]:
        """The code of each, or why there is none."""
        tasks = [
            CubinTask(kernel_named(key.kernel).entry(key.config), self.arch, key.aligned, key.rows)
            for key in keys
        ]
        if tasks:
            processes.preload(_COMPILER)  # once, not in every child
        try:
            return processes.map(compile_task, tasks)
        except CompileError as error:  # a child died
            if len(keys) == 1:
                return [str(error)]
            # One by one, so that only what takes its child down goes without code.
            return [one for key in keys for one in self._compiled([key], processes)]

    @property
    def code(self) -> str:
        """Names everything that the speed of code depends on, besides the GPU."""
        sources, triton, arch = self._code
        return f"{sources[:16]} Triton {triton} sm_{arch}"

    @property
    def sources(self) -> str:
        """Digest of what made the code: it is right for a key of the same sources only."""
        return self._code[0]

    @staticmethod
    def portable_name(key: CodeKey) -> str:
        """What a key's code is called where it is carried from one machine to another."""
        return f"{key.kernel} {_digest(*_parts(key))}"

    def carry(self, codes: Mapping[str, Cubin]) -> None:
        """Take code by its portable names; that of the same sources."""
        with self._lock:
            self._carried |= codes

    def _recalled(self, key: CodeKey) -> bool:
        if key not in self._known and self._carried:
            carried = self._carried.get(self.portable_name(key))
            if carried is not None:
                self._keep(key, carried)
        if key not in self._known and self._folder is not None:
            payload = self._folder.read(self._name(key))
            found = None if payload is None else decode_cubin(payload)
            if found is not None:
                self._keep(key, found)
        return key in self._known

    def _keep(self, key: CodeKey, cubin: Cubin) -> None:
        self._known[key] = cubin
        self._configs.add((key.kernel, key.config))

    def _name(self, key: CodeKey) -> str:
        # Configs are frozen dataclasses of plain values: their text is the same in every process.
        digest = _digest(*self._code, *_parts(key))
        return f"{key.kernel.replace('.', '_')}_{digest}.bin"

    @cached_property
    def _code(self) -> tuple[str, ...]:
        """What code depends on besides its config."""
        sources = sources_digest("backends/cuda/codegen", "kernels/cuda", "ir")
        return sources, triton_version(), str(self.arch)


def _parts(key: CodeKey) -> tuple[str, ...]:
    """What names a key, as text."""
    return (key.kernel, repr(key.config), *key.aligned, *(["rows"] if key.rows else []))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
