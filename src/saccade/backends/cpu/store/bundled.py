"""Models for CPUs in bundles: run where LLVM is not, from a file that nobody need write to.

Entries: `program/N`, tables, code and plan for the N-th set of input shapes; `constant/…`, packed
constants, mapped as they are. The code is for a described processor, or the one that it was built
on, and for those that have all of its instructions. A bundle may have programs for several: the one
that a processor counts as gets its own, another one those with the most instructions that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from saccade.backends.cpu.processor import cpuinfo
from saccade.backends.cpu.store.saved import decode_program, encode_program
from saccade.backends.cpu.target import host_instructions, instructions_of, nearest_machine
from saccade.bundlefile import BundlePart
from saccade.errors import CompileError, ModelError

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.image import Image
    from saccade.backends.cpu.runtime.program import CpuProgram
    from saccade.backends.cpu.runtime.tables import ProgramTables
    from saccade.backends.cpu.target import Target
    from saccade.bundlefile import BundleFile
    from saccade.ir import Array
    from saccade.plan import Plan
    from saccade.signature import Signature

__all__ = ["CpuBundle", "Unlinked", "bundle_entries", "machine_of"]


Unlinked: TypeAlias = "tuple[Plan, ProgramTables, Sequence[Array], Image | None]"
"""A program whose code is nowhere in memory: its packed constants are in the order of its tables
(`all_constants`);
code and the driver's are laid flat, None where that cannot be."""


def machine_of(target: Target, described: str | None) -> Mapping[str, str]:
    """What a bundle says of a processor: its name, the description it counts as, what code takes.

    Args:
        target: What was compiled for.
        described: The machine's name, if it is not this one.
    """
    name = cpuinfo().get("model name", "") if described is None else described
    needed = " ".join(sorted(instructions_of(target)))
    return {"cpu": name, "machine": target.machine, "instructions": needed}


def bundle_entries(programs: Iterable[Unlinked]) -> dict[str, bytes]:
    """What a bundle holds of programs.

    Raises:
        CompileError: If code cannot be laid flat, as for other systems than Linux on x86-64.
    """
    entries: dict[str, bytes] = {}
    for number, (plan, tables, constants, image) in enumerate(programs):
        if image is None:
            raise CompileError("only code for Linux on x86-64 can be kept in a file")
        for name, array in zip(tables.all_constants, constants, strict=True):
            if name and f"constant/{name}" not in entries:
                entries[f"constant/{name}"] = array.tobytes()
        entries[f"program/{number}"] = encode_program(plan, tables, image, {})
    return entries


class CpuBundle:
    """A `saccade.program.Store` over a bundle; what it lacks cannot be made.

    Args:
        file: The open bundle.

    Raises:
        ModelError: If it is for another processor.
    """

    def __init__(self, file: BundleFile) -> None:
        parts = [BundlePart(file, number) for number in range(len(file.head.machines))]
        there, own = host_instructions(), nearest_machine()
        fitting = [part for part in parts if _needed(part) <= there]
        if not fitting:
            names = ", ".join(part.machine.get("cpu", "another processor") for part in parts)
            lacking = sorted(min((_needed(part) - there for part in parts), key=len, default=()))
            raise ModelError(
                f"the bundle is built for {names or 'no processor'}; this one lacks "
                f"{', '.join(lacking[:5])}: build it here, or for an older one"
            )
        # Of those that are alike the first.
        self._file = max(
            fitting, key=lambda part: (part.machine.get("machine") == own, len(_needed(part)))
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


def _needed(part: BundlePart) -> set[str]:
    """Instruction sets of its code."""
    return set(part.machine.get("instructions", "").split())
