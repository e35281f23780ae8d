"""The search for faster choices: measure the best candidates, confirm the winners, check the whole.

Equal calls are one question. In every wave each question tries its next candidate, in turns with
the untuned one; how they are timed is the bench's affair. A candidate that cannot be run is out.
The winners then face the untuned choices once more, together, with enough turns to tell gains from
noise. Last the plan that selection makes of them is timed as a whole against the untuned one: if it
is not faster beyond the noise, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from saccade.ir import Array, Op
from saccade.kernels.base import Call
from saccade.layout import GraphLayout, StepLayout
from saccade.tuning.algorithms import Algorithms, TunedCall
from saccade.tuning.candidates import TuningCandidate, candidates, find
from saccade.tuning.judge import Verdict, judge
from saccade.tuning.keys import call_key, config_record, variant_id
from saccade.tuning.store import Measured, TimingStore
from saccade.tuning.types import Bench, Change, Outcome, Progress, Swaps

if TYPE_CHECKING:
    from saccade.kernels.base import Kernel

__all__ = ["Search"]

# Turns of a first look, of a winner's second one, and of the whole plan.
EXPLORE, CONFIRM, VERIFY = 5, 17, 21
_NO_TIME = 1e-3  # microseconds that count as so many, so that times can be divided
SHARE = 0.002  # of the program's time below which a call is left as it is
PROMISING = 0.985  # measured ratio above which a candidate is not worth confirming
LEAST = 0.01  # gain of a call, as a share of its time
PASSES = 3  # how many winners of a call may fail


@dataclass
class _Question:
    """A call: its steps, how it is done untuned, what else there is, best estimate first."""

    key: str
    steps: list[int]
    first: StepLayout
    untuned: str
    queue: list[TuningCandidate] = field(default_factory=list)
    known: list[tuple[float, TuningCandidate]] = field(default_factory=list)

    def take(self, times: Array) -> Array:
        """Microseconds [rounds] of one of its steps."""
        mean: Array = times[:, self.steps].mean(axis=1)
        return mean


@dataclass
class Search:
    """One search.

    Args:
        laid: The untuned plan's layout.
        kernels: Who may be asked about an operator.
        bench: Measures.
        store: What was measured already; measurements go there.
        machine: See `Backend.identity`.
        hints: Choices that are tried before the others.
        clock: Seconds.
        seconds: How long the search may take; None for as long as it needs.
        report: Told how far it is.
    """

    laid: GraphLayout
    kernels: Callable[[Op], Sequence[Kernel]]
    bench: Bench
    store: TimingStore
    machine: Mapping[str, str]
    hints: Algorithms
    clock: Callable[[], float]
    seconds: float | None = None
    report: Callable[[Progress], None] = lambda _progress: None
    _unit: float = 0.0  # seconds of a round of effort 1, by the last ones
    _began: float = 0.0
    _measured: int = 0
    _remembered: int = 0

    def run(self) -> Outcome:
        """Search."""
        self._began = self.clock()
        questions = self._questions()
        self._explore(questions)
        skipped = sum(len(q.queue) for q in questions)
        entries, changes = self._confirm(questions)
        nothing = Algorithms(self.laid.device, self.machine, ())
        chosen = replace(nothing, entries=tuple(entries))
        whole = None
        if entries:
            before, after = self._timed(
                "timing the whole", {}, VERIFY, 0.0,
                lambda tick: self.bench.verify(chosen, VERIFY, tick),
            )  # fmt: skip
            whole = judge(before, after)
        if whole is None or not whole.faster:
            chosen, changes = nothing, []
        # All that were asked about: what was chosen before goes even where nothing was found.
        keys = tuple(q.key for q in questions)
        return Outcome(
            chosen, tuple(changes), whole, self._measured, self._remembered, skipped, keys,
            tuple(self.bench.failures),
        )  # fmt: skip

    def _questions(self) -> list[_Question]:
        """Every call that takes long enough to matter, with the candidates still to be measured."""
        found: dict[str, _Question] = {}
        for i, step in enumerate(self.laid.steps):
            if step.choice.kernel is None:  # the host has no variants
                continue
            key = call_key(step.call)
            if key not in found:
                found[key] = _Question(key, [], step, variant_id(step.launches))
            found[key].steps.append(i)
        # This also tells how long a round takes, which budgets are reckoned by.
        times, _ = self._alternate(
            "timing the untuned program", {}, EXPLORE,
            self.bench.bounds.most * EXPLORE + CONFIRM + VERIFY,
        )  # fmt: skip
        total = float(times.sum(axis=1).mean())
        matter = [
            q for q in found.values() if float(q.take(times).mean()) * len(q.steps) >= SHARE * total
        ]
        for question in matter:
            self._candidates(question)
        return matter

    def _candidates(self, question: _Question) -> None:
        call = question.first.call
        found = candidates(call, self.kernels(call.op), self.bench.bounds)
        # Hints keep their place at the front where they are candidates anyway.
        for candidate in {c.id: c for c in (*self._hinted(question, call), *found)}.values():
            if candidate.id == question.untuned:
                continue
            known = self.store.get(question.key, candidate.id, question.untuned)
            if known is None:
                question.queue.append(candidate)
            else:
                question.known.append((known.ratio, candidate))
                self._remembered += 1

    def _hinted(self, question: _Question, call: Call) -> Iterator[TuningCandidate]:
        for entry in self.hints.entries:
            kernel = next((k for k in self.kernels(call.op) if k.name == entry.kernel), None)
            if entry.call == question.key and kernel is not None and kernel.supports(call) is None:
                found = find(kernel, call, entry.variant, entry.rank)
                if found is not None:
                    yield TuningCandidate(kernel, entry.rank, entry.micros, found)

    def _explore(self, questions: list[_Question]) -> None:
        """Measure one more candidate of every call, until there are none or no time is left."""
        waves = _waves(questions)
        self.bench.announce(waves)
        efforts = [EXPLORE * self.bench.effort(wave) for wave in waves]
        checks = self._checks(waves[0]) if waves else 0.0
        for i, swaps in enumerate(waves):
            # Without the checks that follow no candidate can be taken: their time is put by.
            needed = self._elapsed() + (efforts[i] + checks) * self._unit
            if self.seconds is not None and needed > self.seconds:
                break
            asked = [q for q in questions if q.queue]
            wave = {id(q): q.queue.pop(0) for q in asked}
            text = f"{len(asked)} call(s), {len(waves) - i} more candidate(s)"
            before, after = self._alternate(text, swaps, EXPLORE, sum(efforts[i + 1 :]) + checks)
            fresh = []
            for q in asked:
                # It could not be run: unless it is kept, the next search tries it again.
                if not np.isfinite(q.take(after)).all():
                    continue
                # Only the medians are of use: so few turns cannot be beyond the noise.
                verdict = judge(q.take(before), q.take(after))
                candidate = wave[id(q)]
                one = Measured(
                    q.key, candidate.id, q.untuned, candidate.kernel.name,
                    max(verdict.after, _NO_TIME), max(verdict.before, _NO_TIME), EXPLORE,
                )  # fmt: skip
                fresh.append(one)
                q.known.append((one.ratio, candidate))
            # After every wave: a search that is cut off loses one at most.
            self.store.add(fresh)
            self._measured += len(fresh)
        # Nothing that is left over need be compiled any more.
        self.bench.announce(())

    def _checks(self, swaps: Swaps) -> float:
        """Effort of what follows candidates: these calls once more, and the whole."""
        return CONFIRM * self.bench.effort(swaps) + VERIFY * self.bench.effort({})

    def _confirm(self, questions: list[_Question]) -> tuple[list[TunedCall], list[Change]]:
        """Hold the winners against the untuned choices; where one fails, the next one."""
        ranked = {
            q.key: [c for ratio, c in sorted(q.known, key=lambda k: k[0]) if ratio <= PROMISING]
            for q in questions
        }
        taken: dict[str, tuple[TuningCandidate, Verdict]] = {}
        for _ in range(PASSES):
            open_ = [q.key for q in questions if q.key not in taken and ranked[q.key]]
            trying = {key: ranked[key].pop(0) for key in open_}
            if not trying:
                break
            # Together with those that passed, as they will stand in the plan.
            now = {key: c for key, (c, _) in taken.items()} | trying
            swaps = {i: now[q.key] for q in questions if q.key in now for i in q.steps}
            later = VERIFY * self.bench.effort({})
            before, after = self._alternate("confirming the winners", swaps, CONFIRM, later)
            for q in questions:
                if q.key in trying and np.isfinite(q.take(after)).all():
                    verdict = judge(q.take(before), q.take(after), least=LEAST)
                    if verdict.faster:
                        taken[q.key] = trying[q.key], verdict
        found = [(q, *taken[q.key]) for q in questions if q.key in taken]
        return [_entry(*f) for f in found], [self._change(*f) for f in found]

    def _change(self, question: _Question, candidate: TuningCandidate, verdict: Verdict) -> Change:
        names = tuple(self.laid.steps[i].name for i in question.steps)
        assert question.first.choice.kernel is not None
        before = question.first.choice.kernel.name
        config = tuple(config_record(candidate.launches))
        return Change(names, before, candidate.kernel.name, config, verdict)

    def _alternate(self, text: str, swaps: Swaps, rounds: int, later: float) -> tuple[Array, Array]:
        """Rounds of a wave, and then as much effort as `later` says."""
        effort = rounds * self.bench.effort(swaps) + later
        # Compiled apart, or rounds would seem to take as long as the compiler.
        self._tell(f"compiling: {text}", self.bench.remaining(effort * self._unit, swaps))
        self.bench.compile(swaps)
        return self._timed(
            text, swaps, rounds, later, lambda tick: self.bench.alternate(swaps, rounds, tick)
        )

    def _timed(
        self,
        text: str,
        swaps: Swaps,
        rounds: int,
        later: float,
        run: Callable[[Callable[[float], None]], tuple[Array, Array]],
    ) -> tuple[Array, Array]:
        began, effort = self.clock(), self.bench.effort(swaps)

        def tick(done: float) -> None:
            if done:
                self._unit = (self.clock() - began) / (done * effort)
            left = ((rounds - done) * effort + later) * self._unit
            self._tell(text, self.bench.remaining(left, swaps))

        tick(0)
        return run(tick)

    def _elapsed(self) -> float:
        return self.clock() - self._began

    def _tell(self, text: str, remaining: float) -> None:
        self.report(Progress(text, self._elapsed(), remaining))


def _waves(questions: Sequence[_Question]) -> list[Swaps]:
    """The next candidate of every call, then the one after it, and so on."""
    longest = max((len(q.queue) for q in questions), default=0)
    return [
        {i: q.queue[n] for q in questions if n < len(q.queue) for i in q.steps}
        for n in range(longest)
    ]


def _entry(question: _Question, candidate: TuningCandidate, verdict: Verdict) -> TunedCall:
    return TunedCall(
        question.first.name, question.key, candidate.kernel.name, candidate.id, candidate.rank,
        round(verdict.after, 3), round(verdict.before, 3), tuple(config_record(candidate.launches)),
    )  # fmt: skip
