"""One kernel to one object: what the compiler processes run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from saccade.codegen.compile import load_llvm, object_code
from saccade.codegen.language import Kernel
from saccade.codegen.target import Target
from saccade.errors import CompileError
from saccade.kernels import bring_usual, kernel_named

__all__ = ["GET_READY", "Task", "compile_kernel", "effort", "get_ready", "sources_digest"]

GET_READY = "saccade.runtime.cpu.compiler:get_ready"
"""For `Processes.warm`."""


@cache
def sources_digest() -> str:
    """Digest of the sources that emitted code depends on."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for folder in ("codegen", "ir", "kernels"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile.

    Attributes:
        symbol: What the function is called in the object.
        kernel: Name of the kernel.
        config: What to specialise it for.
        target: Machine.
        checked: Whether the code checks its bounds.
        sources: `sources_digest` of whoever asks.
    """

    symbol: str
    kernel: str
    config: Any
    target: Target
    checked: bool
    sources: str


def effort(kernel: str, config: Any) -> float:  # noqa: ANN401 - any kernel's config
    """How long this takes to compile, compared with others."""
    return kernel_named(kernel).effort(config)


def get_ready() -> None:
    """What compiling takes time for but once: run where compilers are forked from."""
    load_llvm()
    bring_usual()
    sources_digest()


def compile_kernel(task: Task) -> tuple[bytes, tuple[str, ...]]:
    """Object code, and the names of its checked accesses.

    Raises:
        CompileError: If the emitted code is not valid, or if the sources changed since the process
            that asks imported them: its arguments would not fit this code.
    """
    if task.sources != sources_digest():
        raise CompileError("Saccade's sources changed while this process was running: restart it")
    kernel = kernel_named(task.kernel)
    builder = Kernel(task.symbol, task.target, checked=task.checked)
    kernel.emit(builder, task.config)
    return object_code(str(builder.finish()), task.target), tuple(builder.accesses)
