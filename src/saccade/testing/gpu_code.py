"""Compiled kernels for tests on GPUs, plain and checked, and a file of them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saccade.backends.cuda.codegen.checked import CheckedCubin, compile_both
from saccade.backends.cuda.codegen.compile import Cubin, decode_cubin, encode_cubin
from saccade.backends.cuda.codegen.entry import Entry
from saccade.backends.cuda.cubins import CodeKey
from saccade.errors import OptionError
from saccade.sources import sources_digest

__all__ = ["CheckTask", "CodeFile", "GpuCode", "compile_task", "write_code"]

_HEAD = "head.json"


@dataclass(frozen=True, slots=True)
class GpuCode:
    """A kernel's machine code.

    Attributes:
        plain: As it is in programs.
        checked: With every access held against its buffers.
    """

    plain: Cubin
    checked: CheckedCubin


@dataclass(frozen=True, slots=True)
class CheckTask:
    """A kernel to compile in a child, plain and checked."""

    entry: Entry
    arch: int
    aligned: tuple[str, ...]


def compile_task(task: CheckTask) -> GpuCode:
    """What children run."""
    return GpuCode(*compile_both(task.entry, task.arch, task.aligned))


def write_code(path: Path, machine: str, codes: Mapping[CodeKey, GpuCode]) -> None:
    """Write code that was compiled for a described GPU."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_HEAD, json.dumps({"machine": machine, "sources": _sources()}))
        for key, code in codes.items():
            name = _name(key)
            file.writestr(f"{name}/plain", encode_cubin(code.plain))
            file.writestr(f"{name}/checked", encode_cubin(code.checked.cubin))
            file.writestr(f"{name}/accesses", json.dumps(code.checked.accesses))


class CodeFile:
    """A file that `write_code` wrote.

    Args:
        path: The file.

    Attributes:
        machine: The described GPU that its kernels were planned for.

    Raises:
        OptionError: If it was made from other sources than these.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = zipfile.ZipFile(path)
        head = json.loads(self._file.read(_HEAD))
        self.machine = str(head["machine"])
        if head["sources"] != _sources():
            raise OptionError(
                f"{path} was built from other sources: "
                f"python -m saccade.testing.gpu_cases build {path} --machine {self.machine}"
            )

    def __getitem__(self, key: CodeKey) -> GpuCode:
        name = _name(key)
        try:
            plain, checked = (
                decode_cubin(self._file.read(f"{name}/{which}")) for which in ("plain", "checked")
            )
        except KeyError:
            raise OptionError(
                f"{self._path} has no code of {key.kernel} for {key.config}: build it with as many "
                "--variants as are run"
            ) from None
        assert plain is not None and checked is not None
        accesses = json.loads(self._file.read(f"{name}/accesses"))
        return GpuCode(plain, CheckedCubin(checked, tuple(map(str, accesses))))


def _name(key: CodeKey) -> str:
    parts = (key.kernel, repr(key.config), *key.aligned)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _sources() -> str:
    return sources_digest("backends/cuda/codegen", "kernels", "ir", "opdefs")
