"""Programs that take turns, each step timed inside its running program.

Both programs are complete and are entered in turns, in changing order. They share packed constants,
the outputs and the memory of the arena: other pages would be a difference of their own. A turn of a
short program starts with a run that is not counted, so that it is timed with the caches as it
leaves them itself; a long one evicts whatever was there. The sample is the median of the counted
runs. A step lasts from the end of the step before it to its own end: barriers and imbalance count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from saccade import layout
from saccade import plan as planner
from saccade.backends.cpu.processor import this_machine
from saccade.backends.cpu.runtime.objects import Key
from saccade.backends.cpu.runtime.stopwatch import PAGE, Stopwatch
from saccade.ir import Array, Graph
from saccade.layout import Choice, GraphLayout, StepLayout
from saccade.options import Options
from saccade.plan import Plan
from saccade.processes import Processes
from saccade.tuning import (
    Algorithms,
    Bounds,
    Lookup,
    Outcome,
    Search,
    Swaps,
    TuneRequest,
)

if TYPE_CHECKING:
    from saccade.backends.cpu.backend import CpuBackend

__all__ = ["InSitu", "tune"]

TURN = 4e6  # nanoseconds that a turn should count at least
LONG = 20e6  # nanoseconds of a program beyond which turns need no run to warm up
MOST_RUNS = 16  # of a program in a turn, however short it is


def tune(request: TuneRequest, backend: CpuBackend, options: Options) -> Outcome:
    """Search for faster choices for a model and its inputs; see `tuning.Search`."""
    processes = Processes()
    inputs = cast("Sequence[Array]", request.inputs)  # by `Backend`, from `HostArrays`
    bench = InSitu.of(
        request.graph, request.identity, request.sizes, inputs, backend, options, processes
    )
    try:
        return Search(
            bench.laid, backend.candidates, bench, backend.timings(), this_machine(), request.hints,
            time.monotonic, request.seconds, request.report,
        ).run()  # fmt: skip
    finally:
        processes.close()


@dataclass
class InSitu:
    """The bench of `tuning.Search` for the CPU.

    Args:
        graph: The model.
        identity: Of its constants.
        sizes: Of its symbols.
        backend: Compiles and links.
        laid: The untuned layout.
        replan: The layout with given choices.
        inputs: What programs run on.
        threads: Width of the team.
        processes: Where code is compiled.

    Attributes:
        bounds: See `tuning.Bench`.
        failures: The same: whatever compiles here also runs.
    """

    graph: Graph
    identity: str
    sizes: Mapping[str, int]
    backend: CpuBackend
    laid: GraphLayout
    replan: Callable[[Algorithms], GraphLayout]
    inputs: Sequence[Array]
    threads: int
    processes: Processes
    bounds: Bounds = field(default_factory=Bounds)
    failures: tuple[str, ...] = ()
    _seconds: float = 0.1  # for a kernel's code, by the last ones

    def __post_init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._plan = self._make(self.laid)
        self._outputs = [np.empty(port.shape, port.dtype) for port in self._plan.outputs]
        self._untuned = self.backend.build(self._plan, self.graph, self.identity)

    @classmethod
    def of(
        cls,
        graph: Graph,
        identity: str,
        sizes: Mapping[str, int],
        inputs: Sequence[Array],
        backend: CpuBackend,
        options: Options,
        processes: Processes,
        base: Algorithms | None = None,
    ) -> InSitu:
        """A bench for a model; its untuned program has the choices of `base`, if given."""

        def laid(chosen: Algorithms | None) -> GraphLayout:
            timings = None if chosen is None else Lookup(chosen, backend.device, this_machine())
            return layout.assign(
                graph,
                sizes,
                backend,
                threads=options.resolved_threads,
                exact=options.exact,
                timings=timings,
            )

        return cls(
            graph, identity, sizes, backend, laid(base), laid, inputs, options.resolved_threads,
            processes,
        )  # fmt: skip

    def announce(self, waves: Sequence[Swaps]) -> None:
        """Nothing is done beside measuring: it would disturb it."""

    def compile(self, swaps: Swaps) -> None:
        """Make the code of these variants."""
        began = time.monotonic()
        made = self.backend.prepare(_codes(swaps), self.processes)
        if made:
            self._seconds = (time.monotonic() - began) / made

    def effort(self, swaps: Swaps) -> float:
        """The same of all rounds: each is a run of two whole programs."""
        del swaps
        return 1.0

    def remaining(self, measuring: float, swaps: Swaps) -> float:
        """Seconds: code is made before anything is measured with it."""
        missing = sum(not self.backend.objects.exists(key) for key in _codes(swaps))
        return measuring + missing * self._seconds

    def alternate(
        self, swaps: Swaps, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds, steps] of the untuned program and of the changed one, in turns."""
        steps = [_swapped(s, swaps, i) for i, s in enumerate(self.laid.steps)]
        return self._turns(replace(self.laid, steps=tuple(steps)), rounds, tick)

    def verify(
        self, chosen: Algorithms, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds] of the untuned program and of the one planned with `chosen`."""
        before, after = self._turns(self.replan(chosen), rounds, tick)
        return before.sum(axis=1), after.sum(axis=1)

    def _make(self, laid: GraphLayout) -> Plan:
        isa = self.backend.target.isa
        return planner.make(self.graph, laid, self.sizes, self.threads, isa)

    def _turns(
        self, changed: GraphLayout, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        plan = self._make(changed)
        other = self.backend.build(plan, self.graph, self.identity)
        needed = max(plan.arena_bytes, self._plan.arena_bytes) + PAGE
        if len(self._memory) < needed:
            self._memory = np.empty(needed, np.uint8)
        watches = [
            _Watch(program.stopwatch(self.inputs, self._outputs, self._memory), program.plan)
            for program in (self._untuned, other)
        ]
        times: list[list[Array]] = [[], []]
        for i in range(rounds):
            for which in (0, 1) if i % 2 == 0 else (1, 0):
                times[which].append(watches[which].turn())
            tick(i + 1)
        return np.stack(times[0]), np.stack(times[1])


def _codes(swaps: Swaps) -> dict[Key, None]:
    """What the variants need."""
    return dict.fromkeys((c.kernel.name, one.config) for c in swaps.values() for one in c.launches)


def _swapped(step: StepLayout, swaps: Swaps, i: int) -> StepLayout:
    if i not in swaps:
        return step
    swap = swaps[i]
    choice = Choice(swap.kernel, swap.micros, (), swap.kernel.aliases(step.call))
    return step._replace(choice=choice, launches=swap.launches)


class _Watch:
    """Turns of one program."""

    def __init__(self, watch: Stopwatch, plan: Plan) -> None:
        self._watch = watch
        self._steps = len(plan.steps)
        number = {id(step): i for i, step in enumerate(plan.steps)}
        self._of = np.array([number[id(step)] for step, _ in watch.phases], np.int64)
        self._fresh = np.array(watch.fresh, bool)
        self._warm = True
        length = float(self._nanoseconds(1).sum())
        self._warm = length < LONG
        self._runs = int(np.clip(np.ceil(TURN / max(length, 1.0)), 1, MOST_RUNS))

    def turn(self) -> Array:
        """Microseconds of every step; 0 for steps of the host."""
        taken = np.median(self._nanoseconds(self._runs), axis=0)
        steps = np.zeros(self._steps)
        np.add.at(steps, self._of, taken / 1000)
        return steps

    def _nanoseconds(self, runs: int) -> Array:
        """[runs, phases]: from the end of the phase before."""
        readings = self._watch.runs(runs, warm=self._warm)
        starts, ends = readings[..., 0].min(axis=2), readings[..., 1].max(axis=2)
        before = np.concatenate([starts[:, :1], ends[:, :-1]], axis=1)
        taken: Array = ends - np.where(self._fresh, starts, before)
        return taken
