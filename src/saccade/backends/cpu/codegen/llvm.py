"""LLVM's types as the kernel language uses them, imported when the first code is emitted.

Kernels plan without a compiler: of their files, only functions that emit ask for anything here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.llvm_types import (
        BFLOAT,
        ELEMENTS,
        I1,
        I8,
        I16,
        I32,
        I64,
        POINTER,
        Splat,
        ir,
    )

__all__ = ["BFLOAT", "ELEMENTS", "I1", "I8", "I16", "I32", "I64", "POINTER", "Splat", "ir"]


def load() -> None:
    """Import them: for processes that are going to emit code."""
    with forkless:
        types = import_module("saccade.backends.cpu.codegen.llvm_types")
    globals().update((name, getattr(types, name)) for name in __all__)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(name)
    load()
    return globals()[name]
