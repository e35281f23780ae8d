"""Variants that are timed on the GPU apart from the program, in turns with the untuned ones.

How they are timed says `runtime.gauge`; it happens in a process of its own (`measuring`), while
other processes compile what is next (`codes_ahead`). Only the whole is timed in this process: the
untuned program and the one that was planned with the winners, in turns, several runs on end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from saccade import layout
from saccade import plan as planner
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.codes_ahead import CodesAhead
from saccade.backends.cuda.cubins import CodeKey
from saccade.backends.cuda.measuring import MeasuringProcess, Timed
from saccade.backends.cuda.operands import BoundVariant, StepOperands, TypesOfPacked
from saccade.backends.cuda.runtime.gauge import Contest
from saccade.ir import Array, Graph
from saccade.layout import GraphLayout, StepLayout
from saccade.processes import Processes
from saccade.tuning import (
    Algorithms,
    Bounds,
    Lookup,
    Outcome,
    Search,
    Swaps,
    TuneRequest,
    TuningCandidate,
)
from saccade.tuning.keys import variant_id

if TYPE_CHECKING:
    from saccade.backends.cuda.backend import CudaBackend
    from saccade.backends.cuda.runtime.program import CudaProgram
    from saccade.kernels.bind import Phase
    from saccade.options import Options
    from saccade.plan import Plan
    from saccade.program import DeviceBuffer

__all__ = ["BOUNDS", "Apart", "Timer", "tune"]

BOUNDS = Bounds(most=48, within=2.5, of_each=8.0)
"""Estimates of GPU kernels are off by up to six times (docs/performance/gpu.md). ResNet-50 at batch
32 has 568 variants within these, of 301 different codes, at batch 1 887 of 372."""
_COLD = 2  # times the bytes of the L2 cache
_TURN = 400.0  # microseconds that a turn of one variant should take
_LEAST, _MOST = 4, 64  # launches of a turn, however long they are
_WHOLE_TURN, _MOST_RUNS = 5e3, 50  # the same of whole programs: microseconds, runs

Timer = Callable[[Contest], Timed]


def tune(request: TuneRequest, backend: CudaBackend, options: Options) -> Outcome:
    """Search for faster choices for a model and its inputs; see `tuning.Search`."""
    with ExitStack() as parts:
        compilers, own = Processes(), Processes()
        parts.callback(compilers.close)
        parts.callback(own.close)
        measuring = parts.enter_context(closing(MeasuringProcess(own)))
        codes = parts.enter_context(closing(CodesAhead(backend.cubins, compilers)))
        bench = Apart.of(
            request.graph, request.identity, request.sizes, request.inputs, backend, options, codes,
            measuring.times,
        )  # fmt: skip
        return Search(
            bench.laid, backend.candidates, bench, backend.timings(), backend.identity(),
            request.hints, monotonic, request.seconds, request.report,
        ).run()  # fmt: skip


@dataclass
class Apart:
    """The bench of `tuning.Search` for GPUs.

    Args:
        graph: The model.
        identity: Of its constants.
        backend: Compiles, and builds programs.
        laid: The untuned layout.
        replan: The layout with given choices.
        make: The plan of a layout.
        inputs: What programs run on.
        codes: Where code comes from.
        time: Has variants timed.

    Attributes:
        bounds, failures: See `tuning.Bench`.
    """

    graph: Graph
    identity: str
    backend: CudaBackend
    laid: GraphLayout
    replan: Callable[[Algorithms], GraphLayout]
    make: Callable[[GraphLayout], Plan]
    inputs: Sequence[DeviceBuffer]
    codes: CodesAhead
    time: Timer
    bounds: Bounds = BOUNDS
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._plan = self.make(self.laid)
        self._untuned = self.backend.build(self._plan, self.graph, self.identity)
        self._constants = {value.name: array for value, array in self.graph.constants.items()}
        self._types = TypesOfPacked(self._constants)
        first: dict[object, int] = {}
        self._first = [first.setdefault(step.call, i) for i, step in enumerate(self.laid.steps)]
        self._pairs: dict[tuple[int, str], _Pair] = {}
        self._times: dict[object, Timed] = {}

    @classmethod
    def of(
        cls,
        graph: Graph,
        identity: str,
        sizes: Mapping[str, int],
        inputs: Sequence[DeviceBuffer],
        backend: CudaBackend,
        options: Options,
        codes: CodesAhead,
        time: Timer,
    ) -> Apart:
        """A bench for a model."""
        threads = options.resolved_threads

        def laid(chosen: Algorithms | None) -> GraphLayout:
            timings = None if chosen is None else Lookup(chosen, backend.device, backend.identity())
            return layout.assign(
                graph, sizes, backend, threads=threads, exact=options.exact, timings=timings,
                limits=options.limits,
            )  # fmt: skip

        def plan(made: GraphLayout) -> Plan:
            return planner.make(graph, made, sizes, threads, backend.target.isa, options.limits)

        return cls(graph, identity, backend, laid(None), laid, plan, inputs, codes, time)

    def announce(self, waves: Sequence[Swaps]) -> None:
        """Compile for these in the background, and for nothing else."""
        self.codes.announce(
            key for wave in waves for pair in self._distinct(wave).values() for key in pair.keys
        )

    def compile(self, swaps: Swaps) -> None:
        """Wait for the code of these variants."""
        self.codes.get(key for pair in self._distinct(swaps).values() for key in pair.keys)

    def effort(self, swaps: Swaps) -> float:
        """How many variants are timed; of whole programs 1."""
        return float(len(self._distinct(swaps)) or 1)

    def remaining(self, measuring: float, swaps: Swaps) -> float:
        """Seconds: the longer of measuring and of compiling, which goes on beside it."""
        del swaps
        return max(measuring, self.codes.seconds_left())

    def alternate(
        self, swaps: Swaps, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds, steps], untuned and changed, of those steps that are swapped.

        Without swaps the times of all steps inside the untuned program.
        """
        if not swaps:
            times = _profiled(self._untuned, self.inputs, rounds)
            tick(rounds)
            return times, times
        before, after = (np.zeros((rounds, len(self.laid.steps))) for _ in range(2))
        distinct = self._distinct(swaps)
        for number, (which, pair) in enumerate(distinct.items(), 1):
            timed = self._timed(pair, rounds)
            own = [i for i, c in swaps.items() if (self._first[i], c.id) == which]
            if timed.micros is None:
                # What cannot be run never wins.
                after[:, own] = np.inf
            else:
                before[:, own], after[:, own] = timed.micros[:, :, None]
            tick(rounds * number / len(distinct))
        return before, after

    def verify(
        self, chosen: Algorithms, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds] of the untuned program and of the one planned with `chosen`."""
        plan = self.make(self.replan(chosen))
        programs = (self._untuned, self.backend.build(plan, self.graph, self.identity))
        length = min(program.micros(self.inputs, 2) for program in programs)
        runs = int(np.clip(ceil(_WHOLE_TURN / max(length, 1.0)), 2, _MOST_RUNS))
        times = np.zeros((2, rounds))
        for i in range(rounds):
            # In changing order, so that neither always comes after the other.
            for which in (0, 1) if i % 2 == 0 else (1, 0):
                times[which, i] = programs[which].micros(self.inputs, runs)
            tick(i + 1)
        return times[0], times[1]

    def _distinct(self, swaps: Swaps) -> dict[tuple[int, str], _Pair]:
        """What is to be timed, once for all steps that make an equal call."""
        return {(self._first[i], c.id): self._pair(self._first[i], c) for i, c in swaps.items()}

    def _pair(self, first: int, candidate: TuningCandidate) -> _Pair:
        found = self._pairs.get((first, candidate.id))
        if found is None:
            step = self.laid.steps[first]
            operands = StepOperands(self.laid, step, self._constants, self._types)
            assert step.choice.kernel is not None
            variants = (
                operands.bind(step.choice.kernel.name, step.launches),
                operands.bind(candidate.kernel.name, candidate.launches),
            )
            found = self._pairs[first, candidate.id] = _Pair(step, candidate, operands, variants)
        return found

    def _timed(self, pair: _Pair, rounds: int) -> Timed:
        """A pair's times; equal launches of other calls are not timed again."""
        codes = self.codes.get(pair.keys)
        reasons = [found for found in codes.values() if isinstance(found, str)]
        if reasons:
            return self._failed(pair, reasons[0])
        key = pair.key, rounds
        if key not in self._times:
            cold = _COLD * int(self.backend.speeds.cache)
            self._times[key] = self.time(pair.contest(codes, rounds, cold))
        timed = self._times[key]
        return timed if timed.micros is not None else self._failed(pair, timed.reason)

    def _failed(self, pair: _Pair, reason: str) -> Timed:
        candidate = pair.candidate
        self.failures.append(f"{pair.step.name}: {candidate.kernel.name} {candidate.id}: {reason}")
        return Timed(None, reason)


@dataclass(frozen=True)
class _Pair:
    """The untuned variant for a step and another one, over the same operands."""

    step: StepLayout
    candidate: TuningCandidate
    operands: StepOperands
    variants: tuple[BoundVariant, BoundVariant]

    @property
    def keys(self) -> tuple[CodeKey, ...]:
        """The code of both."""
        return (*self.variants[0].keys, *self.variants[1].keys)

    @property
    def key(self) -> object:
        """Equal for what takes equally long: the launches, and the sizes of what they work on."""
        sizes = tuple(region.nbytes for region in self.operands.regions)
        return variant_id(self.step.launches), self.candidate.id, sizes

    def contest(self, codes: Mapping[CodeKey, Cubin | str], rounds: int, cold: int) -> Contest:
        """The two against each other."""
        # By the estimate, as nothing has been timed yet.
        repetitions = ceil(_TURN / max(self.step.choice.cost, 1.0))
        return Contest(
            tuple(self.operands.regions),
            (_coded(self.variants[0], codes), _coded(self.variants[1], codes)),
            rounds,
            cold,
            min(max(repetitions, _LEAST), _MOST),
        )


@dataclass(frozen=True, slots=True)
class _NoConfig:
    """In place of what code was made from."""


def _coded(
    variant: BoundVariant, codes: Mapping[CodeKey, Cubin | str]
) -> tuple[tuple[Phase, Cubin], ...]:
    """The phases, without what no launch needs, each with its code."""
    found = []
    for phase, key in zip(variant.phases, variant.keys, strict=True):
        cubin = codes[key]
        assert isinstance(cubin, Cubin)
        found.append((phase._replace(config=_NoConfig()), cubin))
    return tuple(found)


def _profiled(program: CudaProgram, inputs: Sequence[DeviceBuffer], rounds: int) -> Array:
    """Microseconds [rounds, steps] inside a program."""
    steps = {id(step): i for i, step in enumerate(program.plan.steps)}
    times = np.zeros((rounds, len(steps)))
    for step, _, clocks in program.profile(inputs, rounds):
        # Added up, as a step may have several phases.
        times[:, steps[id(step)]] += (clocks[:, 0, 1] - clocks[:, 0, 0]) / 1e3
    return times
