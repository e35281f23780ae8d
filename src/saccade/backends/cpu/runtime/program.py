"""Tables, constants and code to a program: arenas, and the call that runs it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import prod
from threading import main_thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast
from weakref import ReferenceType, WeakSet, finalize

import numpy as np

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.runtime.driver import JOB_WORDS, nanoseconds_per_tick
from saccade.backends.cpu.runtime.image import Linked
from saccade.backends.cpu.runtime.results import Results
from saccade.backends.cpu.runtime.tables import Host, Native, ProgramTables
from saccade.backends.cpu.runtime.team import Inline, Team, shared_team
from saccade.backends.cpu.runtime.workspace import MemoryBlock, Workspaces
from saccade.backends.element_types import bring_types
from saccade.backends.lengths import cut_outputs
from saccade.errors import OutOfBoundsError, OutOfMemoryError
from saccade.locks import cached_property, forkless

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.kernels.machine import Machine
    from saccade.plan import Needs, Phase, Plan, Step
    from saccade.profile.types import Facts
    from saccade.program import DeviceBuffer

__all__ = ["CpuProgram", "Stopwatch"]

PAGE = 4096
"""Bytes."""

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


class _Segment:
    """A run of native steps as the driver reads it, the same for every run."""

    def __init__(self, native: Native, tables: ProgramTables, addresses: Mapping[str, int]) -> None:
        self.count = len(native.phases)
        self._arguments = np.array(native.arguments, np.int64)  # a copy is aligned
        used = [addresses[code.symbol] for code in tables.codes]
        self.table = np.empty((self.count, 2), np.int64)
        self.table[:, 0] = np.array(used, np.int64)[native.phases[:, 0]]
        self.table[:, 1] = self._arguments.ctypes.data + 8 * native.phases[:, 1]
        self.codes = [tables.codes[i] for i in sorted(set(native.phases[:, 0].tolist()))]


class _NativeJob:
    """One segment within one run state."""

    def __init__(self, segment: _Segment, threads: int, bases: Array, fault: Array) -> None:
        self.count = segment.count
        self.counters = np.zeros(segment.count * threads * COUNTER_WORDS, np.int64)
        self.words = np.zeros(JOB_WORDS, np.int64)
        self.words[:4] = (
            segment.table.ctypes.data,
            segment.count,
            bases.ctypes.data,
            self.counters.ctypes.data,
        )
        self.words[6] = fault.ctypes.data
        self.address = self.words.ctypes.data


class _RunState:
    """Bases and counters of one run in flight, and outputs of unknown length."""

    def __init__(
        self, tables: ProgramTables, constants: Sequence[Array], segments: Sequence[_Segment | Host]
    ) -> None:
        self.bases = np.zeros(tables.constant_base + len(constants), np.int64)
        self.bases[tables.constant_base :] = [c.ctypes.data for c in constants]
        self.fault = np.zeros(8, np.int64)
        # Memory for the most that there could be; the caller gets a copy of what there is.
        self.full_outputs = {
            i: np.empty(*tables.outputs[i]) for i in {cut[0] for cut in tables.cuts}
        }
        self.jobs = [
            None if isinstance(s, Host) else _NativeJob(s, tables.threads, self.bases, self.fault)
            for s in segments
        ]


class Stopwatch:
    """A run state of its own whose runs are clocked, step by step.

    Attributes:
        phases: What is clocked: every native phase in order, with its step.
        fresh: For each, whether the run enters the program there: at its start, after host steps.
    """

    def __init__(
        self,
        program: CpuProgram,
        inputs: Sequence[Array],
        outputs: Sequence[Array] | None = None,
        memory: Array | None = None,
    ) -> None:
        tables, native = program.tables, program._native()
        self._program, self._inputs = program, tuple(inputs)
        fresh = (np.empty(shape, dtype) for shape, dtype in tables.outputs)
        self._outputs = tuple(fresh if outputs is None else outputs)
        self._state = _RunState(tables, program._constants, program._segments)
        size = tables.arena_bytes + PAGE
        self._memory = np.empty(size, np.uint8) if memory is None else memory[:size]
        start = -self._memory.ctypes.data % 64
        self._arena = self._memory[start : start + tables.arena_bytes]
        steps = (step for step in program.plan.steps if step.kernel is not None)
        self.phases = [(step, phase) for step in steps for phase in step.phases]
        self.fresh = [i == 0 for segment in native for i in range(segment.count)]
        # A segment without phases leaves its clock alone.
        self._clocks = [np.zeros((max(s.count, 1), tables.threads, 2), np.int64) for s in native]
        jobs = (job for job in self._state.jobs if job is not None)
        for job, clock in zip(jobs, self._clocks, strict=True):
            job.words[7] = clock.ctypes.data

    def runs(self, count: int, *, warm: bool = True) -> Array:
        """Nanoseconds of `count` runs, after one that is not counted if `warm`.

        Returns:
            [count, phases, threads, (start, end)].
        """
        threads = self._program.tables.threads
        readings = np.zeros((count + warm, len(self.phases), threads, 2))
        with ExitStack() as stack:
            team: Team = self._program._inline
            if threads > 1:
                # Not alone beside a busy team: the clock has a column for every thread.
                shared = shared_team(threads)
                stack.enter_context(shared.lock)
                team = shared
            for reading in readings:
                self._program._run_state(
                    self._state, self._arena, self._inputs, self._outputs, team
                )
                at = 0
                for clock, segment in zip(self._clocks, self._program._native(), strict=True):
                    reading[at : at + segment.count] = clock[: segment.count]
                    at += segment.count
        return readings[int(warm) :] * nanoseconds_per_tick()


class CpuProgram:
    """A plan ready to run; may be called from several threads at once.

    Args:
        tables: What to run.
        constants: The plan's constants, in order, contiguous.
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
        self._constants = tuple(constants)
        self._linked = linked
        self._get_plan = plan
        self._segments = [
            s if isinstance(s, Host) else _Segment(s, tables, linked.addresses)
            for s in tables.segments
        ]
        self._idle: list[_RunState] = []
        self._later: list[Callable[[CpuProgram], None]] = []
        self.has_run = False
        self._inline = Inline()
        _alive.add(self)
        finalize(self, _release).atexit = False

    @cached_property
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
        self, state: _RunState, block: MemoryBlock, inputs: Sequence[Array], team: Team | None
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
        state: _RunState,
        arena: Array,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        team: Team | None,
    ) -> None:
        arrays = (arena, *inputs, *outputs)
        state.bases[: self.tables.constant_base] = [a.ctypes.data for a in arrays]
        for job, segment in zip(state.jobs, self._segments, strict=True):
            if job is None or isinstance(segment, Host):
                assert isinstance(segment, Host)
                self._run_hosts(segment, (*arrays, *self._constants))
            elif job.count:
                job.counters.fill(0)
                self._run_job(job, team)
                if state.fault[0]:
                    self._raise_fault(state, segment)

    def _take_state(self) -> _RunState:
        try:
            return self._idle.pop()
        except IndexError:
            return _RunState(self.tables, self._constants, self._segments)

    def _run_job(self, job: _NativeJob, given: Team | None) -> None:
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

    def _run_hosts(self, host: Host, memory: Sequence[Array]) -> None:
        with forkless:
            from saccade.backends.host import run_host_step  # noqa: PLC0415 - few programs have any

        for step in self.plan.steps[host.first : host.end]:
            run_host_step(step, memory)

    def _out_of_memory(self) -> OutOfMemoryError:
        outputs = (prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.tables.outputs)
        return OutOfMemoryError.of(self.tables.arena_bytes, sum(outputs))

    def _raise_fault(self, state: _RunState, segment: _Segment) -> None:
        access, offset, length = (int(v) for v in state.fault[:3])
        state.fault[:] = 0
        names = {name for code in segment.codes for name in code.accesses[access - 1 : access]}
        where = ", ".join(sorted(names)) or f"number {access}"
        raise OutOfBoundsError(
            f"a kernel's access {where} reached element {offset} of a buffer of {length}"
        )

    def profile(
        self, inputs: Sequence[DeviceBuffer], repeat: int
    ) -> list[tuple[Step, Phase, Array]]:
        """Clock readings in nanoseconds: for each phase in order, [repeat, threads, (start, end)].

        Host steps are not in the list.
        """
        watch = self.stopwatch(cast("Sequence[Array]", inputs))
        readings = watch.runs(repeat)
        return [(step, phase, readings[:, i]) for i, (step, phase) in enumerate(watch.phases)]

    def stopwatch(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array] | None = None,
        memory: Array | None = None,
    ) -> Stopwatch:
        """Clocked runs; arrays for the outputs and memory for the arena let programs share them.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """
        try:
            return Stopwatch(self, inputs, outputs, memory)
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
    def phase_table(self) -> list[tuple[int, int]]:
        """Addresses of the code and the arguments of every native phase, in order."""
        return [(code, block) for s in self._native() for code, block in s.table.tolist()]

    def _native(self) -> list[_Segment]:
        return [s for s in self._segments if isinstance(s, _Segment)]
