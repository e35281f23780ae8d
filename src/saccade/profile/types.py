"""The figures of a profile, from the clock readings of a program."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

import numpy as np

from saccade.ir import Array
from saccade.kernels.machine import Machine
from saccade.locks import cached_property, forkless
from saccade.plan import Phase, Plan, Step
from saccade.plan.floor import floor, peak
from saccade.plan.text import short_config
from saccade.profile.peer import PeerLayers

__all__ = ["Facts", "FamilyTime", "Profile", "Shares", "StepTime"]

Reading = tuple[Step, Phase | None, Array]
"""Of a phase; of a host step, which has none."""
Facts = Mapping[str, int | float | str]
"""Of the code of a phase: a column each in tables."""

_TERA = 1e7
"""Peak operations per microsecond of one core from which rates are told by 10¹²."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step.

    Attributes:
        name: Node.
        kernel: Kernel; of a host step what computes it, `reference` or `onnx.reference`.
        config: Of its first phase, as text; of a host step its operator.
        microseconds: Sum of its phases.
        phases: Of each phase (a host step counts as one) the median from the first thread's start
            to the last thread's end.
        busy: Median share of that time that the threads spent working, 0 to 1 (the rest is
            imbalance).
        flops, bytes: The operator's own count: what it needs at least.
        floor: Microseconds that the machine's arithmetic or memory would need for them.
        facts: Of the code of each phase; empty where the device tells none.
        op: Operator, as plans call it.
    """

    name: str
    kernel: str
    config: str
    microseconds: float
    phases: tuple[float, ...]
    busy: float
    flops: int
    bytes: int
    floor: float
    facts: tuple[Facts, ...] = ()
    op: str = ""

    @property
    def gflops(self) -> float:
        """10⁹ operations a second."""
        return self.flops / self.microseconds / 1e3

    @property
    def gbytes(self) -> float:
        """10⁹ bytes a second."""
        return self.bytes / self.microseconds / 1e3

    @property
    def roofline(self) -> float:
        """Share of what the machine would allow; above 1 where caches or Winograd help."""
        return self.floor / self.microseconds


@dataclass(frozen=True, slots=True)
class FamilyTime:
    """All steps of one kernel.

    Attributes:
        kernel: Kernel.
        steps: How many there are.
        microseconds, flops, bytes, floor: Sums over them.
    """

    kernel: str
    steps: int
    microseconds: float
    flops: int
    bytes: int
    floor: float


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the threads' time went, as shares of threads times total; they add up to 1.

    Attributes:
        working: Inside kernels.
        imbalance: Done with a phase while another thread still worked on it.
        barriers: Meeting, and entering the next phase.
    """

    working: float
    imbalance: float
    barriers: float


@dataclass(frozen=True)
class Profile:
    """Medians over several runs.

    Attributes:
        steps: In order.
        total: Median microseconds from the first step's start to the last step's end. Each step has
            the team for itself, so that a run may take less where small ones do not wait.
        floor: What the plan cannot be faster than, in microseconds.
        shares: Where the threads' time went.
        threads: Width of the team.
        spans: Of one run, for every step, phase and thread: start and end in microseconds.
        whole: Microseconds of a run that is launched at once, where `steps` were one by one.
        tera: Whether the machine is one whose rates are told by 10¹², not 10⁹.
        plan: What ran.
        speeds: Of the machine that it ran on, measured.
    """

    steps: tuple[StepTime, ...]
    total: float
    floor: float
    shares: Shares
    threads: int
    spans: tuple[tuple[tuple[tuple[float, float], ...], ...], ...]
    whole: float | None = None
    tera: bool = False
    plan: Plan = field(kw_only=True, repr=False)
    speeds: Machine = field(kw_only=True, repr=False)

    @staticmethod
    def of(
        plan: Plan,
        readings: Sequence[Reading],
        speeds: Machine,
        facts: Sequence[Facts] = (),
        whole: float | None = None,
    ) -> Profile:
        """From clock readings in nanoseconds, [repeat, threads, (start, end)], and the machine.

        Args:
            plan: What ran.
            readings: Of each phase.
            speeds: What it ran on.
            facts: Of the code of each phase, or none.
            whole: See `Profile.whole`.
        """
        least = floor(plan, speeds).total
        if not readings:
            nothing = Shares(0.0, 0.0, 0.0)
            return Profile((), 0.0, least, nothing, plan.threads, (), plan=plan, speeds=speeds)
        clocks = np.stack([clock for _, _, clock in readings], axis=1) / 1000.0
        # From each run's own first start: what lies between runs does not matter.
        clocks -= clocks[..., 0].min(axis=(1, 2))[:, None, None, None]
        lengths = clocks[..., 1].max(axis=(1, 2))
        # A trace shows one run as it was, not medians.
        middle = clocks[int(np.argsort(lengths)[len(lengths) // 2])]
        steps, spans, at = [], [], 0
        # By identity: two steps in a row may be equal.
        for _, group in groupby(readings, key=lambda reading: id(reading[0])):
            phases = list(group)
            of_step = clocks[:, at : at + len(phases)]
            told = tuple(facts[at : at + len(phases)])
            steps.append(_step_time(phases[0][0], phases[0][1], of_step, speeds, told))
            spans.append(tuple(_spans(phase) for phase in middle[at : at + len(phases)]))
            at += len(phases)
        total = float(np.median(lengths))
        return Profile(
            tuple(steps), total, least, _shares(clocks, lengths), plan.threads, tuple(spans),
            whole, speeds.flops >= _TERA, plan=plan, speeds=speeds,
        )  # fmt: skip

    @cached_property
    def families(self) -> tuple[FamilyTime, ...]:
        """Totals by kernel, the longest first."""
        members: dict[str, list[StepTime]] = defaultdict(list)
        for step in self.steps:
            members[step.kernel].append(step)
        totals = (
            FamilyTime(
                kernel,
                len(of),
                sum(s.microseconds for s in of),
                sum(s.flops for s in of),
                sum(s.bytes for s in of),
                sum(s.floor for s in of),
            )
            for kernel, of in members.items()
        )
        return tuple(sorted(totals, key=lambda family: -family.microseconds))

    def __str__(self) -> str:
        return self.table()

    def table(self, peer: PeerLayers | None = None) -> str:
        """Steps, families and shares as text, a peer's times beside ours where names match."""
        with forkless:
            from saccade.profile.text import table  # noqa: PLC0415 - only people read it

        return table(self, peer)

    def to_json(self, peer: PeerLayers | None = None) -> str:
        """All figures as JSON."""
        found: dict[str, object] = {
            "total_us": self.total,
            "whole_us": self.whole,
            "floor_us": self.floor,
            "threads": self.threads,
            "shares": asdict(self.shares),
            "families": [asdict(family) for family in self.families],
            "steps": [
                asdict(step)
                | {"gflops": step.gflops, "gbytes": step.gbytes, "roofline": step.roofline}
                for step in self.steps
            ],
        }
        if peer is not None:
            found["peer"] = asdict(peer)
        return json.dumps(found, indent=1)

    def to_chrome_trace(self) -> str:
        """One run as a Chrome trace (chrome://tracing, ui.perfetto.dev), a row per thread."""
        # The format's metadata (M) name the rows; its times are in microseconds.
        events: list[dict[str, object]] = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": i, "args": {"name": f"thread {i}"}}
            for i in range(self.threads)
        ]
        for step, phases in zip(self.steps, self.spans, strict=True):
            told = step.facts or ({},) * len(phases)
            for number, (phase, facts) in enumerate(zip(phases, told, strict=True)):
                for thread, (start, end) in enumerate(phase):
                    events.append(
                        {
                            "name": step.name,
                            "cat": step.kernel,
                            "ph": "X",
                            "ts": start,
                            "dur": end - start,
                            "pid": 0,
                            "tid": thread,
                            "args": {"phase": number, "config": step.config, **facts},
                        }
                    )
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _spans(phase: Array) -> tuple[tuple[float, float], ...]:
    return tuple((float(start), float(end)) for start, end in phase)


def _step_time(
    step: Step, phase: Phase | None, clocks: Array, speeds: Machine, facts: tuple[Facts, ...]
) -> StepTime:
    """`clocks` is [repeat, phases, threads, (start, end)] in microseconds."""
    start, end = clocks[..., 0], clocks[..., 1]
    # A clock that stood still must not divide by zero.
    spans = np.maximum(end.max(axis=2) - start.min(axis=2), 1e-3)
    times = np.median(spans, axis=0)
    # Of the phases' sums, so that long ones weigh more.
    busy = (end - start).mean(axis=2).sum(axis=1) / spans.sum(axis=1)
    work, threads = step.work, clocks.shape[2]
    least = max(work.flops / (peak(step, speeds) * threads), work.bytes / speeds.bandwidth)
    return StepTime(
        step.name,
        step.by,
        step.op.title if phase is None else short_config(phase.config),
        float(times.sum()),
        tuple(float(time) for time in times),
        float(np.median(busy)),
        work.flops,
        work.bytes,
        least,
        facts,
        step.op.title,
    )


def _shares(clocks: Array, lengths: Array) -> Shares:
    """`clocks` is [repeat, phases, threads, (start, end)]."""
    start, end = clocks[..., 0], clocks[..., 1]
    whole = lengths * clocks.shape[2]
    working = float(np.median((end - start).sum(axis=(1, 2)) / whole))
    waiting = end.max(axis=2, keepdims=True) - end
    imbalance = float(np.median(waiting.sum(axis=(1, 2)) / whole))
    # Each is a median of its own, so that together they may exceed 1.
    return Shares(working, imbalance, max(0.0, 1.0 - working - imbalance))
