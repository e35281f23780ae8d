"""Runs of a program that are clocked, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from saccade.backends.cpu.runtime.driver import nanoseconds_per_tick
from saccade.backends.cpu.runtime.run_state import RunState
from saccade.backends.cpu.runtime.team import Inline, Team, shared_team

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.tables import ProgramTables
    from saccade.ir import Array
    from saccade.plan import Phase, Plan, Step

__all__ = ["PAGE", "Run", "Stopwatch"]

PAGE = 4096
"""Bytes."""
Run: TypeAlias = "Callable[[RunState, Array, Sequence[Array], Sequence[Array], Team | None], None]"
"""Runs a state on an arena, inputs and outputs."""


class Stopwatch:
    """A run state of its own whose runs are clocked, step by step.

    Args:
        tables: Of the program.
        plan: What it runs.
        state: Of these runs alone.
        run: Runs it.
        inputs, outputs, memory: As of `CpuProgram.stopwatch`.

    Attributes:
        phases: What is clocked: every native phase in order, with its step.
        fresh: For each, whether the run enters the program there: at its start, after host steps.
    """

    def __init__(
        self,
        tables: ProgramTables,
        plan: Plan,
        state: RunState,
        run: Run,
        inputs: Sequence[Array],
        outputs: Sequence[Array] | None = None,
        memory: Array | None = None,
    ) -> None:
        self._threads, self._plan, self._state, self._run = tables.threads, plan, state, run
        self._inputs = tuple(inputs)
        fresh = (np.empty(shape, dtype) for shape, dtype in tables.outputs)
        self._outputs = tuple(fresh if outputs is None else outputs)
        size = tables.arena_bytes + PAGE
        self._memory = np.empty(size, np.uint8) if memory is None else memory[:size]
        start = -self._memory.ctypes.data % 64
        self._arena = self._memory[start : start + tables.arena_bytes]
        steps = (step for step in plan.steps if step.kernel is not None)
        self.phases = [(step, phase) for step in steps for phase in step.phases]
        jobs = [job for job in state.jobs if job is not None]
        self.fresh = [i == 0 for job in jobs for i in range(job.count)]
        # A segment without phases leaves its clock alone.
        self._clocks = [np.zeros((max(job.count, 1), self._threads, 2), np.int64) for job in jobs]
        self._counts = [job.count for job in jobs]
        for job, clock in zip(jobs, self._clocks, strict=True):
            job.clocked(clock)
        state.host_clock = np.zeros((len(plan.steps), 2), np.int64)

    def runs(self, count: int, *, warm: bool = True) -> Array:
        """Nanoseconds of `count` runs, after one that is not counted if `warm`.

        Returns:
            [count, phases, threads, (start, end)].
        """
        return self._runs(count, warm=warm)[0]

    def readings(self, count: int) -> list[tuple[Step, Phase | None, Array]]:
        """Nanoseconds of `count` runs, after one that is not counted, of all phases and host steps.

        Returns:
            In order; a host step has no phase, and but its caller's thread works on it. Each
            array is [count, threads, (start, end)].
        """
        native, hosts = self._runs(count, warm=True)
        found: list[tuple[Step, Phase | None, Array]] = []
        at = 0
        for i, step in enumerate(self._plan.steps):
            for phase in step.phases:
                found.append((step, phase, native[:, at]))
                at += 1
            if step.kernel is None:
                clock = np.repeat(hosts[:, i : i + 1, :1], self._threads, 1).repeat(2, 2)
                clock[:, 0, 1] = hosts[:, i, 1]
                found.append((step, None, clock))
        return found

    def _runs(self, count: int, *, warm: bool) -> tuple[Array, Array]:
        """Of native phases, [count, phases, threads, 2], and of all steps, [count, steps, 2]."""
        threads, hosts = self._threads, self._state.host_clock
        assert hosts is not None
        readings = np.zeros((count + warm, len(self.phases), threads, 2))
        host_readings = np.zeros((count + warm, *hosts.shape))
        with ExitStack() as stack:
            team: Team = Inline()
            if threads > 1:
                # Not alone beside a busy team: the clock has a column for every thread.
                shared = shared_team(threads)
                stack.enter_context(shared.lock)
                team = shared
            for reading, of_hosts in zip(readings, host_readings, strict=True):
                self._run(self._state, self._arena, self._inputs, self._outputs, team)
                at = 0
                for clock, size in zip(self._clocks, self._counts, strict=True):
                    reading[at : at + size] = clock[:size]
                    at += size
                of_hosts[:] = hosts
        scale = nanoseconds_per_tick()
        return readings[int(warm) :] * scale, host_readings[int(warm) :] * scale
