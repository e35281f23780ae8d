"""Compiled objects to callable addresses, all in one LLVM engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saccade.locks import forkless

__all__ = ["Linked", "link"]


class Linked:
    """Objects linked into this process; the code lives as long as this value.

    Attributes:
        addresses: Address of each function.
    """

    def __init__(self, engine: Any, addresses: dict[str, int]) -> None:  # noqa: ANN401
        self._engine = engine
        self.addresses = addresses


def link(objects: Iterable[bytes], symbols: Iterable[str]) -> Linked:
    """Link relocatable objects and look the symbols up."""
    import llvmlite.binding as llvm  # noqa: PLC0415 - 40 ms; needed only to run

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with forkless:
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for code in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return Linked(engine, {name: engine.get_function_address(name) for name in symbols})
