"""Tables, constants and code to a program: arenas, and the call that runs it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from math import prod
from threading import main_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast
from weakref import ReferenceType, WeakSet, finalize

import numpy as np

from saccade.backends.cpu.runtime.counted_run import CountedRun, RowArguments
from saccade.backends.cpu.runtime.driver import driver
from saccade.backends.cpu.runtime.image import Linked
from saccade.backends.cpu.runtime.results import Results
from saccade.backends.cpu.runtime.run_state import NativeJob, RunState, Segment
from saccade.backends.cpu.runtime.stopwatch import Stopwatch
from saccade.backends.cpu.runtime.tables import Host, ProgramTables
from saccade.backends.cpu.runtime.team import Inline, Team, shared_team
from saccade.backends.cpu.runtime.workspace import MemoryBlock, Workspaces
from saccade.backends.element_types import bring_types
from saccade.backends.lengths import cut_outputs
from saccade.errors import OutOfBoundsError, OutOfMemoryError
from saccade.held import holding
from saccade.locks import cached_property, forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.fewer_rows import FewerRows
    from saccade.ir import Array
    from saccade.kernels.machine import Machine
    from saccade.plan import Needs, Phase, Plan, Step
    from saccade.profile.types import Facts
    from saccade.program import DeviceBuffer

__all__ = ["CpuProgram"]

_WORTH, _WORTH_AT_FIRST = 1e3, 5e4
"""Estimated microseconds that fewer rows have to save: of any run, which stops for them and fills
memory with zeros, and of a program's first, which may have to read its plan for it."""
_arenas = Workspaces(keep=1 << 60, reserve=4)
"""Of runs in flight: programs share them, so that a new size finds pages that are there."""
_results = Results()
_alive: WeakSet[CpuProgram] = WeakSet()


def _release() -> None:
    """Let go of what no program needs that is left."""
    _arenas.shrink(max((program.tables.arena_bytes for program in _alive), default=0))
    if not _alive:
        _results.clear()


def wait_for_run(of: ReferenceType[CpuProgram]) -> None:
    """Wait until a run of a program has ended, if one does within a second.

    Of runs that take longer, work beside them is no great part.
    """
    end = monotonic() + 1.0
    while (program := of()) is not None and not program.has_run and monotonic() < end:
        del program  # or it would live on for it
        if not main_thread().is_alive():
            return
        sleep(0.002)


def expect_runs(needs: Iterable[Needs]) -> None:
    """Have pages there for the arena and the results of the largest of these.

    Nothing is kept once no program is left: nobody would come to release it.

    Raises:
        OSError: If the system does not give them.
    """
    arena, results = 0, dict[int, int]()
    for one in needs:
        arena = max(arena, one.arena_bytes)
        for i, nbytes in enumerate(one.output_bytes):
            results[i] = max(results.get(i, 0), nbytes)
    _arenas.expect(arena)
    for nbytes in results.values():
        _results.expect(nbytes)
    if not _alive:
        _release()


def _programs_of_bodies(
    tables: ProgramTables, constants: Sequence[Array], linked: Linked, plan: Callable[[], Plan]
) -> dict[int, list[CpuProgram]]:
    """By the number of a step, the programs inside of it; the constants are theirs."""
    found: dict[int, list[CpuProgram]] = {}
    at = 0
    for step, inside in tables.bodies:
        found[step] = []
        for number, part in enumerate(inside):
            own = constants[at : (at := at + len(part.all_constants))]
            # Without the program around it, which would never be let go of.
            of_part = partial(_plan_of_body, plan, step, number)
            found[step].append(CpuProgram(part, own, linked, of_part))
    return found


def _plan_of_body(plan: Callable[[], Plan], step: int, number: int) -> Plan:
    return plan().steps[step].bodies[number]


def _whole(_segment: int, length: int) -> Iterable[tuple[int, int]]:
    """A segment in one piece, as `CountedRun.pieces`."""
    return ((0, length),)


class CpuProgram:
    """A plan ready to run; may be called from several threads at once.

    Args:
        tables: What to run.
        constants: The plan's constants, in order, contiguous; then those of bodies.
        linked: The code.
        plan: Gives the plan; asked only for profiles, host steps and whoever looks.
    """

    def __init__(
        self,
        tables: ProgramTables,
        constants: Sequence[Array],
        linked: Linked,
        plan: Callable[[], Plan],
    ) -> None:
        bring_types(dtype for _, dtype in tables.outputs)
        self.tables = tables
        self._all_constants = tuple(constants)
        self._constants = self._all_constants[: len(tables.constants)]
        self._linked = linked
        self._get_plan = cache(plan)
        self._bodies = _programs_of_bodies(
            tables, self._all_constants[len(tables.constants) :], linked, self._get_plan
        )
        self._segments = [
            s if isinstance(s, Host) else Segment(s, tables, linked.addresses)
            for s in tables.segments
        ]
        self._idle: list[RunState] = []
        self._later: list[Callable[[CpuProgram], None]] = []
        self.has_run = False
        self._inline = Inline()
        _alive.add(self)
        finalize(self, _release).atexit = False

    @property
    def plan(self) -> Plan:
        """What it runs, step by step."""
        return self._get_plan()

    def once_asked_again(self, then: Callable[[CpuProgram], None]) -> None:
        """Do something when the program is first taken for another run."""
        self._later.append(then)

    def asked_again(self) -> None:
        """Say that it is."""
        while self._later:
            with suppress(IndexError):  # another thread was first
                self._later.pop()(self)

    def run(self, inputs: Sequence[DeviceBuffer], team: Team | None = None) -> tuple[Array, ...]:
        """Results for contiguous inputs of the plan's shapes and dtypes, in fresh arrays.

        A `team` that is given is the caller's alone.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """
        try:
            block = _arenas.take(self.tables.arena_bytes)
            try:
                state = self._take_state()
                try:
                    # By `Program`, from `HostArrays`.
                    return self._run(state, block, cast("Sequence[Array]", inputs), team)
                finally:
                    self.has_run = True
                    self._idle.append(state)
            finally:
                _arenas.give_back(block)
        except MemoryError as error:
            raise self._out_of_memory() from error

    def _run(
        self, state: RunState, block: MemoryBlock, inputs: Sequence[Array], team: Team | None
    ) -> tuple[Array, ...]:
        tables = self.tables
        outputs = tuple(
            state.full_outputs[i] if i in state.full_outputs else _results.empty(shape, dtype)
            for i, (shape, dtype) in enumerate(tables.outputs)
        )
        self._run_state(state, block.array(tables.arena_bytes), inputs, outputs, team)
        return cut_outputs(outputs, tables.counts, tables.cuts)

    def _run_state(
        self,
        state: RunState,
        arena: Array,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        team: Team | None,
    ) -> None:
        if len(self._segments) == len(self._native()):
            self._run_segments(state, arena, inputs, outputs, team)
        else:
            with holding():
                self._run_segments(state, arena, inputs, outputs, team)
        self.has_run = True

    def _run_segments(
        self,
        state: RunState,
        arena: Array,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        team: Team | None,
    ) -> None:
        arrays = (arena, *inputs, *outputs)
        state.bases[: self.tables.constant_base] = [a.ctypes.data for a in arrays]
        counted = self.tables.counted
        pieces: Callable[[int, int], Iterable[tuple[int, int]]] = _whole
        if counted and not state.all_rows:
            memory = (*arrays, *self._constants)
            run = CountedRun(counted, state.jobs, outputs, memory, self._row_arguments)
            pieces = run.pieces
        for number, (job, segment) in enumerate(zip(state.jobs, self._segments, strict=True)):
            if job is None or isinstance(segment, Host):
                assert isinstance(segment, Host)
                memory = (*arrays, *self._constants)
                for first, end in pieces(number, segment.end - segment.first):
                    part = Host(segment.first + first, segment.first + end)
                    self._run_hosts(part, memory, state.host_clock, team)
            elif job.count or counted:
                job.counters.fill(0)
                for first, end in pieces(number, job.count):
                    if counted:
                        job.between(first, end)
                    self._run_job(job, team)
                    if state.fault[0]:
                        self._raise_fault(state, segment)

    def _row_arguments(self, number: int, rows: int) -> RowArguments | None:
        """Those that steps behind a counted point take for so many rows, if it is worth it."""
        point = self.tables.counted[number]
        saved = point.micros * (1 - rows / point.bound)
        # Finding them takes some milliseconds, and the plan, which a warm start has not read.
        if saved < _WORTH or (saved < _WORTH_AT_FIRST and not self.has_run):
            return None
        return self._fewer_rows.arguments(number, rows)

    @cached_property
    def _fewer_rows(self) -> FewerRows:
        with forkless:
            from saccade.backends.cpu.runtime.fewer_rows import FewerRows  # noqa: PLC0415 - few need it

        return FewerRows(self.plan, self.tables)

    def _take_state(self) -> RunState:
        try:
            return self._idle.pop()
        except IndexError:
            return RunState(self.tables, self._constants, self._segments)

    def _run_job(self, job: NativeJob, given: Team | None) -> None:
        if given is not None:
            given.run(job)
            return
        if self.tables.threads == 1:
            self._inline.run(job)
            return
        # Callers take turns: on as many cores as the team is wide, one after the other is faster
        # than side by side.
        team = shared_team(self.tables.threads)
        with team.lock:
            team.run(job)

    def _run_hosts(
        self, host: Host, memory: Sequence[Array], clock: Array | None, team: Team | None
    ) -> None:
        with forkless:
            from saccade.backends.host import run_host_step  # noqa: PLC0415 - few programs have any

        for i in range(host.first, host.end):
            turns = [partial(body.turn, team=team) for body in self._bodies.get(i, ())]
            if clock is None:
                run_host_step(self.plan.steps[i], memory, turns)
                continue
            clock[i, 0] = driver().clock()
            run_host_step(self.plan.steps[i], memory, turns)
            clock[i, 1] = driver().clock()

    def turn(self, inputs: Sequence[Array], team: Team | None = None) -> tuple[Array, ...]:
        """One run as a body, of inputs as they lie in the memory of the program around it."""
        ports = self.plan.inputs
        dense = [
            np.ascontiguousarray(array, np.dtype(port.dtype)).reshape(port.shape)
            for array, port in zip(inputs, ports, strict=True)
        ]
        return self.run(dense, team)

    def _out_of_memory(self) -> OutOfMemoryError:
        outputs = (prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.tables.outputs)
        return OutOfMemoryError.of(self.tables.arena_bytes, sum(outputs))

    def _raise_fault(self, state: RunState, segment: Segment) -> None:
        access, offset, length = (int(v) for v in state.fault[:3])
        state.fault[:] = 0
        names = {name for code in segment.codes for name in code.accesses[access - 1 : access]}
        where = ", ".join(sorted(names)) or f"number {access}"
        raise OutOfBoundsError(
            f"a kernel's access {where} reached element {offset} of a buffer of {length}"
        )

    def profile(
        self, inputs: Sequence[DeviceBuffer], repeat: int
    ) -> list[tuple[Step, Phase | None, Array]]:
        """Clock readings in nanoseconds: for each phase in order, [repeat, threads, (start, end)].

        A host step is one without a phase, on the caller's thread.
        """
        watch = self.stopwatch(cast("Sequence[Array]", inputs), all_rows=False)
        return watch.readings(repeat)

    def stopwatch(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array] | None = None,
        memory: Array | None = None,
        *,
        all_rows: bool = True,
    ) -> Stopwatch:
        """Clocked runs; arrays for the outputs and memory for the arena let programs share them.

        Args:
            inputs: As of `run`.
            outputs: Where results go.
            memory: For the arena.
            all_rows: Whether every step computes all rows, however many there are: times of
                kernels are compared for the sizes that were planned for.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """
        try:
            state = RunState(self.tables, self._constants, self._segments)
            state.all_rows = all_rows
            return Stopwatch(
                self.tables, self.plan, state, self._run_state, inputs, outputs, memory
            )
        except MemoryError as error:
            raise self._out_of_memory() from error

    def speeds(self) -> Machine:
        """Of this machine, measured once per process."""
        with forkless:
            from saccade.backends.cpu.runtime.speeds import measured_speeds  # noqa: PLC0415
            from saccade.backends.cpu.target import host_target  # noqa: PLC0415 - running needs no LLVM

        return measured_speeds(host_target(self.plan.isa))

    def facts(self) -> tuple[Facts, ...]:
        """Nothing: the disassembly tells all."""
        return ()

    @property
    def constants(self) -> tuple[Array, ...]:
        """The plan's constants, in order; those that nothing reads are empty."""
        return self._constants

    @property
    def all_constants(self) -> tuple[Array, ...]:
        """The plan's constants, in order, then those of bodies; what nothing reads is empty."""
        return self._all_constants

    @property
    def phase_table(self) -> list[tuple[int, int, bool]]:
        """Of every native phase: where its code and its arguments are, if it waits for others."""
        rows = (row for s in self._native() for row in s.table.tolist())
        return [(code, block, bool(meets)) for code, block, meets in rows]

    def _native(self) -> list[Segment]:
        return [s for s in self._segments if isinstance(s, Segment)]
