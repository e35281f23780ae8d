"""The search for faster choices: measure the best candidates, confirm the winners, check the whole.

Equal calls are one question. In every wave each question tries its next candidate, all in one
program, which takes turns with the untuned one: the program's own clock times all steps at once.
The winners then face the untuned choices once more, together, with enough turns to tell gains from
noise. Last the plan that selection makes of them is timed as a whole against the untuned one: if it
is not faster beyond the noise, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from saccade.ir import Array, Op
from saccade.kernels.base import Call
from saccade.layout import GraphLayout, StepLayout
from saccade.tuning.algorithms import Algorithms, TunedCall
from saccade.tuning.candidates import MOST, TuningCandidate, candidates, find
from saccade.tuning.judge import Verdict, judge
from saccade.tuning.keys import call_key, config_record, variant_id
from saccade.tuning.store import Measured, TimingStore
from saccade.tuning.types import Bench, Change, Outcome, Progress, Swaps

if TYPE_CHECKING:
    from saccade.backend import Kernel

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
        bench: Runs programs.
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
    _round: float = 0.0  # seconds of a turn of each, by the last ones
    _code: float = 0.1  # seconds for a kernel's code, by the last ones
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
                "timing the whole", VERIFY, 0, lambda tick: self.bench.verify(chosen, VERIFY, tick)
            )
            whole = judge(before, after)
        if whole is None or not whole.faster:
            chosen, changes = nothing, []
        keys = tuple(q.key for q in questions)
        return Outcome(
            chosen, tuple(changes), whole, self._measured, self._remembered, skipped, keys
        )

    def _questions(self) -> list[_Question]:
        """Every call that takes long enough to matter, with the candidates still to be measured."""
        found: dict[str, _Question] = {}
        for i, step in enumerate(self.laid.steps):
            if step.choice.kernel is None:
                continue
            key = call_key(step.call)
            if key not in found:
                found[key] = _Question(key, [], step, variant_id(step.launches))
            found[key].steps.append(i)
        times, _ = self._alternate(
            "timing the untuned program", {}, EXPLORE, MOST * EXPLORE + CONFIRM + VERIFY
        )
        total = float(times.sum(axis=1).mean())
        matter = [
            q for q in found.values() if float(q.take(times).mean()) * len(q.steps) >= SHARE * total
        ]
        for question in matter:
            self._candidates(question)
        return matter

    def _candidates(self, question: _Question) -> None:
        call = question.first.call
        found = candidates(call, self.kernels(call.op))
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
        while any(q.queue for q in questions):
            longest = max(len(q.queue) for q in questions)
            checks = CONFIRM + VERIFY
            needed = self._elapsed() + (EXPLORE + checks) * self._round
            if self.seconds is not None and needed > self.seconds:
                return
            asked = [q for q in questions if q.queue]
            wave = {id(q): q.queue.pop(0) for q in asked}
            swaps = {i: wave[id(q)] for q in asked for i in q.steps}
            text = f"{len(asked)} call(s), {longest} more candidate(s)"
            before, after = self._alternate(text, swaps, EXPLORE, (longest - 1) * EXPLORE + checks)
            fresh = []
            for q in asked:
                verdict = judge(q.take(before), q.take(after))
                candidate = wave[id(q)]
                one = Measured(
                    q.key, candidate.id, q.untuned, candidate.kernel.name,
                    max(verdict.after, _NO_TIME), max(verdict.before, _NO_TIME), EXPLORE,
                )  # fmt: skip
                fresh.append(one)
                q.known.append((one.ratio, candidate))
            self.store.add(fresh)
            self._measured += len(fresh)

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
            now = {key: c for key, (c, _) in taken.items()} | trying
            swaps = {i: now[q.key] for q in questions if q.key in now for i in q.steps}
            before, after = self._alternate("confirming the winners", swaps, CONFIRM, VERIFY)
            for q in questions:
                verdict = judge(q.take(before), q.take(after), least=LEAST)
                if q.key in trying and verdict.faster:
                    taken[q.key] = trying[q.key], verdict
        found = [(q, *taken[q.key]) for q in questions if q.key in taken]
        return [_entry(*f) for f in found], [self._change(*f) for f in found]

    def _change(self, question: _Question, candidate: TuningCandidate, verdict: Verdict) -> Change:
        names = tuple(self.laid.steps[i].name for i in question.steps)
        assert question.first.choice.kernel is not None
        before = question.first.choice.kernel.name
        config = tuple(config_record(candidate.launches))
        return Change(names, before, candidate.kernel.name, config, verdict)

    def _alternate(self, text: str, swaps: Swaps, rounds: int, after: int) -> tuple[Array, Array]:
        keys = dict.fromkeys(
            (candidate.kernel.name, launch.config)
            for candidate in swaps.values()
            for launch in candidate.launches
        )
        self._tell(f"compiling: {text}", len(keys) * self._code + (rounds + after) * self._round)
        began = self.clock()
        made = self.bench.compile(keys)
        if made:
            self._code = (self.clock() - began) / made
        return self._timed(
            text, rounds, after, lambda tick: self.bench.alternate(swaps, rounds, tick)
        )

    def _timed(
        self,
        text: str,
        rounds: int,
        after: int,
        run: Callable[[Callable[[int], None]], tuple[Array, Array]],
    ) -> tuple[Array, Array]:
        began = self.clock()

        def tick(done: int) -> None:
            if done:
                self._round = (self.clock() - began) / done
            self._tell(text, (rounds - done + after) * self._round)

        tick(0)
        return run(tick)

    def _elapsed(self) -> float:
        return self.clock() - self._began

    def _tell(self, text: str, remaining: float) -> None:
        self.report(Progress(text, self._elapsed(), remaining))


def _entry(question: _Question, candidate: TuningCandidate, verdict: Verdict) -> TunedCall:
    return TunedCall(
        question.first.name, question.key, candidate.kernel.name, candidate.id, candidate.rank,
        round(verdict.after, 3), round(verdict.before, 3), tuple(config_record(candidate.launches)),
    )  # fmt: skip
