"""Plan to program: argument blocks, packed weights, arenas, and the call that runs it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from saccade.codegen.language import COUNTER_WORDS
from saccade.errors import OutOfBoundsError
from saccade.ir import Array
from saccade.plan import Phase, Plan, Step
from saccade.runtime.cpu.driver import JOB_WORDS, nanoseconds_per_tick
from saccade.runtime.cpu.team import Inline, Team, shared_team
from saccade.runtime.host import run_host_step

__all__ = ["Code", "CpuProgram", "Stopwatch"]

PAGE = 4096


@dataclass(frozen=True)
class Code:
    """Where a phase's code is, and what its checked accesses are called."""

    address: int
    accesses: tuple[str, ...] = ()


class _Segment:
    """A run of native steps as the driver reads it, the same for every run."""

    def __init__(self, steps: Sequence[Step], codes: Callable[[str, object], Code]) -> None:
        self.steps = steps
        self.phases = [(step, phase) for step in steps for phase in step.phases]
        self.count = len(self.phases)
        self.codes = [codes(step.kernel or "", phase.config) for step, phase in self.phases]
        blocks = [_arguments(phase) for _, phase in self.phases]
        self._arguments = np.array([w for block in blocks for w in block], np.int64)
        table = np.zeros((self.count, 2), np.int64)
        at = self._arguments.ctypes.data
        for row, (code, block) in enumerate(zip(self.codes, blocks, strict=True)):
            table[row] = code.address, at
            at += 8 * len(block)
        self.table = table


def _arguments(phase: Phase) -> list[int]:
    words: list[int] = []
    for ref in phase.refs:
        words += (ref.base, ref.offset, ref.nbytes)
    return words + list(phase.integers)


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
    """Arena, bases and counters of one run in flight."""

    def __init__(
        self,
        plan: Plan,
        constants: Sequence[Array],
        segments: Sequence[_Segment | None],
        memory: Array | None = None,
    ) -> None:
        size = plan.arena_bytes + PAGE
        self._memory = np.empty(size, np.uint8) if memory is None else memory[:size]
        start = -self._memory.ctypes.data % 64
        self.arena = self._memory[start : start + plan.arena_bytes]
        self.bases = np.zeros(plan.constant_base + len(constants), np.int64)
        self.bases[0] = self.arena.ctypes.data
        self.bases[plan.constant_base :] = [c.ctypes.data for c in constants]
        self.fault = np.zeros(8, np.int64)
        self.jobs = [
            None if s is None else _NativeJob(s, plan.threads, self.bases, self.fault)
            for s in segments
        ]


class Stopwatch:
    """A run state of its own whose runs are clocked, step by step.

    Attributes:
        phases: What is clocked: every native phase in order, with its step.
        fresh: For each, whether the run enters the program there: at its start, after host steps.
    """

    def __init__(
        self, program: CpuProgram, inputs: Sequence[Array], memory: Array | None = None
    ) -> None:
        plan, native = program.plan, program._native()
        self._program, self._inputs = program, tuple(inputs)
        self._outputs = tuple(np.empty(port.shape, port.dtype) for port in plan.outputs)
        self._state = _RunState(plan, program._constants, program._segments, memory)
        self.phases = [pair for segment in native for pair in segment.phases]
        self.fresh = [i == 0 for segment in native for i in range(segment.count)]
        # A segment without phases leaves its clock alone.
        self._clocks = [np.zeros((max(s.count, 1), plan.threads, 2), np.int64) for s in native]
        jobs = (job for job in self._state.jobs if job is not None)
        for job, clock in zip(jobs, self._clocks, strict=True):
            job.words[7] = clock.ctypes.data

    def runs(self, count: int) -> Array:
        """Nanoseconds of `count` runs after one that is not counted.

        Returns:
            [count, phases, threads, (start, end)].
        """
        readings = np.zeros((count + 1, len(self.phases), self._program.plan.threads, 2))
        with ExitStack() as stack:
            team: Team = self._program._inline
            if self._program.plan.threads > 1:
                # Not alone beside a busy team: the clock has a column for every thread.
                shared = shared_team(self._program.plan.threads)
                stack.enter_context(shared.lock)
                team = shared
            for reading in readings:
                self._program._run_state(self._state, self._inputs, self._outputs, team)
                at = 0
                for clock, segment in zip(self._clocks, self._program._native(), strict=True):
                    reading[at : at + segment.count] = clock[: segment.count]
                    at += segment.count
        return readings[1:] * nanoseconds_per_tick()


class CpuProgram:
    """A plan ready to run; may be called from several threads at once.

    Args:
        plan: What to run.
        constants: The plan's constants, in order, contiguous.
        codes: Gives the code of (kernel, config).
        keep: Anything that must live as long as the code.
    """

    def __init__(
        self,
        plan: Plan,
        constants: Sequence[Array],
        codes: Callable[[str, object], Code],
        keep: object,
    ) -> None:
        self.plan = plan
        self._constants = tuple(constants)
        self._keep = keep
        self._hosts = [steps if host else () for host, steps in plan.segments()]
        self._segments = [
            None if host else _Segment(steps, codes) for host, steps in plan.segments()
        ]
        self._idle: list[_RunState] = []
        self._inline = Inline()

    def run(self, inputs: Sequence[Array], team: Team | None = None) -> tuple[Array, ...]:
        """Results for contiguous inputs of the plan's shapes and dtypes, in fresh arrays."""
        outputs = tuple(np.empty(port.shape, port.dtype) for port in self.plan.outputs)
        self.run_into(inputs, outputs, team)
        return outputs

    def run_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array], team: Team | None = None
    ) -> None:
        """The same into given arrays; a `team` that is given is the caller's alone."""
        state = self._take_state()
        try:
            self._run_state(state, inputs, outputs, team)
        finally:
            self._idle.append(state)

    def _run_state(
        self,
        state: _RunState,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        team: Team | None,
    ) -> None:
        state.bases[1 : self.plan.constant_base] = [a.ctypes.data for a in (*inputs, *outputs)]
        for job, hosts, segment in zip(state.jobs, self._hosts, self._segments, strict=True):
            if job is None or segment is None:
                for step in hosts:
                    run_host_step(step, self._memory_of(state, inputs, outputs))
            elif job.count:
                job.counters.fill(0)
                self._run_job(job, team)
                if state.fault[0]:
                    self._raise_fault(state, segment)

    def _take_state(self) -> _RunState:
        try:
            return self._idle.pop()
        except IndexError:
            return _RunState(self.plan, self._constants, self._segments)

    def _run_job(self, job: _NativeJob, given: Team | None) -> None:
        if given is not None:
            given.run(job)
            return
        if self.plan.threads == 1:
            self._inline.run(job)
            return
        # Callers take turns: on as many cores as the team is wide, one after the other is faster
        # than side by side.
        team = shared_team(self.plan.threads)
        with team.lock:
            team.run(job)

    def _memory_of(
        self, state: _RunState, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array, ...]:
        return (state.arena, *inputs, *outputs, *self._constants)

    def _raise_fault(self, state: _RunState, segment: _Segment) -> None:
        access, offset, length = (int(v) for v in state.fault[:3])
        state.fault[:] = 0
        names = {name for code in segment.codes for name in code.accesses[access - 1 : access]}
        where = ", ".join(sorted(names)) or f"number {access}"
        raise OutOfBoundsError(
            f"a kernel's access {where} reached element {offset} of a buffer of {length}"
        )

    def profile(self, inputs: Sequence[Array], repeat: int) -> list[tuple[Step, Phase, Array]]:
        """Clock readings in nanoseconds: for each phase in order, [repeat, threads, (start, end)].

        Host steps are not in the list.
        """
        watch = self.stopwatch(inputs)
        readings = watch.runs(repeat)
        return [(step, phase, readings[:, i]) for i, (step, phase) in enumerate(watch.phases)]

    def stopwatch(self, inputs: Sequence[Array], memory: Array | None = None) -> Stopwatch:
        """A clocked run on these inputs; `memory` for the arena lets programs share theirs."""
        return Stopwatch(self, inputs, memory)

    @property
    def constants(self) -> tuple[Array, ...]:
        """The plan's constants, in order; those that nothing reads are empty."""
        return self._constants

    @property
    def phase_table(self) -> list[tuple[int, int]]:
        """Addresses of the code and the arguments of every native phase, in order."""
        return [(code, block) for s in self._native() for code, block in s.table.tolist()]

    def _native(self) -> list[_Segment]:
        return [segment for segment in self._segments if segment is not None]
