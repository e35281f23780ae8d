"""One kernel to one object: what the compiler processes run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.codegen.compile import object_code
from saccade.codegen.language import Kernel
from saccade.codegen.target import Target
from saccade.kernels import CPU_KERNELS

__all__ = ["Task", "compile_kernel"]


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel to compile.

    Attributes:
        symbol: What the function is called in the object.
        kernel: Name of the kernel.
        config: What to specialise it for.
        target: Machine.
        checked: Whether the code checks its bounds.
    """

    symbol: str
    kernel: str
    config: Any
    target: Target
    checked: bool


def compile_kernel(task: Task) -> tuple[bytes, tuple[str, ...]]:
    """Object code, and the names of its checked accesses.

    Raises:
        CompileError: If the emitted code is not valid.
    """
    kernel = next(k for k in CPU_KERNELS if k.name == task.kernel)
    builder = Kernel(task.symbol, task.target, checked=task.checked)
    kernel.emit(builder, task.config)
    return object_code(str(builder.finish()), task.target), tuple(builder.accesses)
