"""What a program is made of besides code and weights: numbers, the same for every process.

A plan says what every step means; running it needs only these tables, which a warm start reads from
disk without the classes that plans are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.objects import Key, ObjectFile
    from saccade.ir import Array
    from saccade.plan import Plan, Step

__all__ = ["Code", "Host", "Native", "ProgramTables", "tables_of"]


@dataclass(frozen=True, slots=True)
class Code:
    """A phase's function, and what its checked accesses are called."""

    symbol: str
    accesses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Native:
    """A run of native steps.

    Attributes:
        arguments: The argument blocks of all phases, int64.
        phases: For each phase, which of the codes and where its block starts: int64 [count, 2].
    """

    arguments: Array
    phases: Array


@dataclass(frozen=True, slots=True)
class Host:
    """A run of host steps: from one number to another in the plan."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class ProgramTables:
    """A program's tables.

    Attributes:
        threads: Width of the team.
        arena_bytes: Size of the arena.
        inputs: How many there are.
        outputs: Shape and dtype of each.
        constants: Names of the constants (`Constant.key`); empty where nothing reads one.
        codes: The functions.
        segments: What runs, in order.
        counts: How many of the outputs, the last ones, are numbers that the run finds out.
        cuts: What these say of other outputs; see `runtime.lengths`.
    """

    threads: int
    arena_bytes: int
    inputs: int
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    constants: tuple[str, ...]
    codes: tuple[Code, ...]
    segments: tuple[Native | Host, ...]
    counts: int = 0
    cuts: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def constant_base(self) -> int:
        """Index of the first constant in the table of bases: the arena is first, then arrays."""
        return 1 + self.inputs + len(self.outputs)


def tables_of(plan: Plan, files: Mapping[Key, ObjectFile]) -> ProgramTables:
    """The tables of a plan whose code is in `files`."""
    codes: dict[str, int] = {}
    known: list[Code] = []
    segments: list[Native | Host] = []
    at = 0
    for host, steps in plan.segments():
        if host:
            segments.append(Host(at, at + len(steps)))
        else:
            segments.append(_native(steps, files, codes, known))
        at += len(steps)
    return ProgramTables(
        plan.threads,
        plan.arena_bytes,
        len(plan.inputs),
        tuple((port.shape, port.dtype) for port in plan.outputs),
        tuple(
            constant.key if read else ""
            for constant, read in zip(plan.constants, plan.constants_read, strict=True)
        ),
        tuple(known),
        tuple(segments),
        plan.counts,
        tuple((cut.output, cut.axis, cut.count, cut.factor) for cut in plan.cuts),
    )


def _native(
    steps: Sequence[Step], files: Mapping[Key, ObjectFile], codes: dict[str, int], known: list[Code]
) -> Native:
    words: list[int] = []
    table: list[tuple[int, int]] = []
    for kernel, phase in ((step.kernel or "", phase) for step in steps for phase in step.phases):
        file = files[kernel, phase.config]
        if file.symbol not in codes:
            codes[file.symbol] = len(known)
            known.append(Code(file.symbol, file.accesses))
        table.append((codes[file.symbol], len(words)))
        words += file.parameters.words(phase)
    return Native(np.array(words, np.int64), np.array(table, np.int64).reshape(-1, 2))
