"""One kernel to one object: what the compiler processes run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.compile import assembly, load_llvm, object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.target import Target
from saccade.errors import CompileError
from saccade.kernels.cpu import bring_usual, kernel_named
from saccade.sources import sources_digest

__all__ = [
    "PRELOAD",
    "Task",
    "assembly_of",
    "code_digest",
    "compile_kernel",
    "effort",
    "preload_compiler",
]

PRELOAD = "saccade.backends.cpu.runtime.compiler:preload_compiler"
"""For `Processes.preload`."""


def code_digest() -> str:
    """Digest of the sources that emitted code depends on."""
    return sources_digest("backends/cpu", "ir", "kernels")


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile.

    Attributes:
        symbol: What the function is called in the object.
        kernel: Name of the kernel.
        config: What to specialise it for.
        target: Machine.
        checked: Whether the code checks its bounds.
        sources: `code_digest` of whoever asks.
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


def preload_compiler() -> None:
    """What compiling takes time for but once: run where compilers are forked from."""
    load_llvm()
    llvm.load()
    bring_usual()
    code_digest()


def compile_kernel(task: Task) -> tuple[bytes, Parameters, tuple[str, ...]]:
    """Object code, its parameters, and the names of its checked accesses.

    Raises:
        CompileError: If the emitted code is not valid, or if the sources changed since the process
            that asks imported them: its arguments would not fit this code.
    """
    builder = _emitted(task)
    code = object_code(str(builder.finish()), task.target)
    return code, builder.parameters, tuple(builder.accesses)


def assembly_of(task: Task) -> str:
    """The same code as text.

    Raises:
        CompileError: As of `compile_kernel`.
    """
    return assembly(str(_emitted(task).finish()), task.target)


def _emitted(task: Task) -> KernelBuilder:
    if task.sources != code_digest():
        raise CompileError("Saccade's sources changed while this process was running: restart it")
    builder = KernelBuilder(task.symbol, task.target, checked=task.checked)
    kernel_named(task.kernel).emit(builder, task.config)
    return builder
