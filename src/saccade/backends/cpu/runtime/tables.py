"""What a program is made of besides code and weights: numbers, the same for every process.

A plan says what every step means; running it needs only these tables, which a warm start reads from
disk without the classes that plans are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from saccade.backends.cpu.runtime.driver import PHASE_WORDS
from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.parameters import Parameters
    from saccade.backends.cpu.runtime.objects import Key, ObjectFile
    from saccade.ir import Array
    from saccade.plan import Plan, Step

__all__ = ["Code", "CountedPoint", "Host", "Native", "ProgramTables", "tables_of"]


@dataclass(frozen=True, slots=True)
class Code:
    """A phase's function.

    Attributes:
        symbol: Its name.
        accesses: What its checked accesses are called.
        parameters: Names of its parameters, where argument blocks are made while running.
    """

    symbol: str
    accesses: tuple[str, ...] = ()
    parameters: Parameters | None = None


@dataclass(frozen=True, slots=True)
class Native:
    """A run of native steps.

    Attributes:
        arguments: The argument blocks of all phases, int64.
        phases: For each phase, which of the codes, where its block starts, and whether the team
            meets before it: int64 [count, 3].
    """

    arguments: Array
    phases: Array


@dataclass(frozen=True, slots=True)
class Host:
    """A run of host steps: from one number to another in the plan."""

    first: int
    end: int


class CountedPoint(NamedTuple):
    """Where a number has become known that counts rows of later steps (`plan.rows`).

    Attributes:
        source: Which output holds it.
        segment, at: The segment and the phase, or the host's step, that it is known before.
        bound: From which number on all rows are computed.
        micros: Estimated, of the steps that are counted, for all rows.
    """

    source: int
    segment: int
    at: int
    bound: int
    micros: float


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
        counted: Where steps behind may run for fewer rows, in order.
        bodies: Numbers of steps with the tables of the programs inside of them.
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
    counted: tuple[CountedPoint, ...] = ()
    bodies: tuple[tuple[int, tuple[ProgramTables, ...]], ...] = ()

    def whole(self) -> Iterator[ProgramTables]:
        """These, and those of the bodies in them, in the order of `Plan.whole`."""
        yield self
        for _, inside in self.bodies:
            for tables in inside:
                yield from tables.whole()

    @property
    def all_constants(self) -> tuple[str, ...]:
        """Names of the constants, and of those of bodies."""
        return tuple(name for tables in self.whole() for name in tables.constants)

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
    counted = _counted(plan)
    for host, steps in plan.segments():
        if host:
            segments.append(Host(at, at + len(steps)))
        else:
            segments.append(_native(steps, files, codes, known, plan.threads, named=bool(counted)))
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
        counted,
        tuple(
            (i, tuple(tables_of(body, files) for body in step.bodies))
            for i, step in enumerate(plan.steps)
            if step.bodies
        ),
    )


def _counted(plan: Plan) -> tuple[CountedPoint, ...]:
    """Where numbers become known, by segment and phase."""
    if not plan.counts:
        return ()
    with forkless:
        from saccade.plan.rows import all_counted_steps  # noqa: PLC0415 - a warm start has tables

    behind: list[tuple[int, int]] = []  # for each step, the position that follows it
    for number, (host, steps) in enumerate(plan.segments()):
        at = 0
        for step in steps:
            at += 1 if host else len(step.phases)
            behind.append((number, at))
    return tuple(
        CountedPoint(group.source, *behind[group.known], group.bound, group.micros)
        for group in all_counted_steps(plan)
    )


def _native(
    steps: Sequence[Step],
    files: Mapping[Key, ObjectFile],
    codes: dict[str, int],
    known: list[Code],
    threads: int,
    *,
    named: bool,
) -> Native:
    """A segment; codes that are not `known` are added, with parameters if these are `named`."""
    with forkless:
        from saccade.waits import meetings  # noqa: PLC0415 - see `_counted`

    words: list[int] = []
    table: list[tuple[int, int, bool]] = []
    phases = [(step.kernel or "", phase) for step in steps for phase in step.phases]
    meets = meetings(phase.uses(threads) for _, phase in phases)
    for (kernel, phase), met in zip(phases, meets, strict=True):
        file = files[kernel, phase.config]
        if file.symbol not in codes:
            codes[file.symbol] = len(known)
            known.append(Code(file.symbol, file.accesses, file.parameters if named else None))
        table.append((codes[file.symbol], len(words), met))
        words += file.parameters.words(phase)
    return Native(np.array(words, np.int64), np.array(table, np.int64).reshape(-1, PHASE_WORDS))
