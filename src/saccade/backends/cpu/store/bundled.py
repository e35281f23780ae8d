"""Models for CPUs in bundles: run where LLVM is not, from a file that nobody need write to.

Entries: `program/N`, tables, code and plan for the N-th set of input shapes; `constant/…`, packed
constants, mapped as they are. The code is for the processor that it was built on, and for those
that have all of its instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.backends.cpu.processor import cpuinfo
from saccade.backends.cpu.store.saved import decode_program, encode_program
from saccade.errors import CompileError, ModelError

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.image import Image
    from saccade.backends.cpu.runtime.program import CpuProgram
    from saccade.bundlefile import BundleFile
    from saccade.ir import Array
    from saccade.signature import Signature

__all__ = ["CpuBundle", "bundle_entries", "machine_of"]


def _instructions() -> str:
    """Names of the instruction sets that this processor has."""
    info = cpuinfo()
    return " ".join(sorted(info.get("flags", info.get("Features", "")).split()))


def machine_of() -> Mapping[str, str]:
    """What a bundle says of the processor that it was built on."""
    return {"cpu": cpuinfo().get("model name", ""), "instructions": _instructions()}


def bundle_entries(programs: Iterable[tuple[CpuProgram, Image | None]]) -> dict[str, bytes]:
    """What a bundle holds of programs.

    Args:
        programs: Each with its code and the driver's, laid flat.

    Raises:
        CompileError: If code cannot be laid flat, as on other systems than Linux on x86-64.
    """
    entries: dict[str, bytes] = {}
    for number, (program, image) in enumerate(programs):
        if image is None:
            raise CompileError("code for this system cannot be kept in a file")
        for name, array in zip(program.tables.constants, program.constants, strict=True):
            if name and f"constant/{name}" not in entries:
                entries[f"constant/{name}"] = array.tobytes()
        entries[f"program/{number}"] = encode_program(program, image, {})
    return entries


class CpuBundle:
    """A `saccade.program.Store` over a bundle; what it lacks cannot be made.

    Args:
        file: The open bundle.

    Raises:
        ModelError: If it is for another processor.
    """

    def __init__(self, file: BundleFile) -> None:
        self._file = file
        needed = set(file.head.machine.get("instructions", "").split())
        lacking = sorted(needed - set(_instructions().split()))
        if lacking:
            raise ModelError(
                f"the bundle is built for {file.head.machine.get('cpu', 'another processor')}; "
                f"this one lacks {', '.join(lacking[:5])}: build it here, or for an older one"
            )

    def signature(self) -> Signature:
        """What the model takes and gives."""
        return self._file.head.signature

    def keep_signature(self, signature: Signature) -> None:
        """It is there."""

    def graph_is_at(self, entry: str | None) -> None:
        """There is none."""

    def program(self, shapes: Sequence[Sequence[int]]) -> CpuProgram | None:
        """The program for these input shapes; None if there is none.

        Raises:
            ModelError: If it is damaged.
        """
        wanted = tuple(tuple(shape) for shape in shapes)
        if wanted not in self._file.head.shapes:
            return None
        name = f"program/{self._file.head.shapes.index(wanted)}"
        found = decode_program(bytes(self._file.read(name)), self._constants)
        if found is None:
            raise ModelError(f"entry {name} of the bundle is no program of this version")
        return found

    def _constants(self, names: Sequence[str]) -> list[Array]:
        return [
            np.frombuffer(self._file.read(f"constant/{name}") if name else b"", np.uint8)
            for name in names
        ]
