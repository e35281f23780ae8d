"""Where the time of a run goes, step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from saccade.codegen.target import host_target
from saccade.ir import Array
from saccade.kernels.machine import Machine, machine
from saccade.plan import Phase, Plan, Step

__all__ = ["Profile", "StepTime"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """One phase of one step.

    Attributes:
        name: Node.
        kernel: Kernel.
        microseconds: Median from the first thread's start to the last thread's end.
        busy: Median share of that time that the threads spent working, 0 to 1 (the rest is
            imbalance).
        gflops, gbytes: Rates by the operator's own count of flops and bytes.
        roofline: Share of what the machine's arithmetic or memory would allow, 0 to 1.
    """

    name: str
    kernel: str
    microseconds: float
    busy: float
    gflops: float
    gbytes: float
    roofline: float


@dataclass(frozen=True)
class Profile:
    """Medians over several runs.

    Attributes:
        steps: In order.
        total: Median microseconds from the first step's start to the last step's end.
        threads: Width of the team.
        spans: Of one run, for every phase and thread: start and end in microseconds.
    """

    steps: tuple[StepTime, ...]
    total: float
    threads: int
    spans: tuple[tuple[tuple[float, float], ...], ...]

    @staticmethod
    def of(plan: Plan, readings: Sequence[tuple[Step, Phase, Array]]) -> Profile:
        """From the clock readings of a program."""
        speeds = machine(host_target(plan.isa))
        steps = tuple(_step_time(step, clock, speeds) for step, _, clock in readings)
        if not readings:
            return Profile((), 0.0, plan.threads, ())
        clocks = np.stack([clock for _, _, clock in readings], axis=1) / 1000.0
        begin = clocks[..., 0].min(axis=(1, 2))
        total = float(np.median(clocks[..., 1].max(axis=(1, 2)) - begin))
        middle = int(np.argsort(clocks[..., 1].max(axis=(1, 2)) - begin)[len(begin) // 2])
        one = clocks[middle] - begin[middle]
        spans = tuple(tuple((float(a), float(b)) for a, b in phase) for phase in one)
        return Profile(steps, total, plan.threads, spans)

    def __str__(self) -> str:
        head = ("step", "kernel", "µs", "%", "GFLOP/s", "GB/s", "roofline", "busy")
        rows = [
            (
                s.name,
                s.kernel,
                f"{s.microseconds:.1f}",
                f"{100 * s.microseconds / self.total:.1f}",
                f"{s.gflops:.1f}",
                f"{s.gbytes:.1f}",
                f"{100 * s.roofline:.0f}%",
                f"{100 * s.busy:.0f}%",
            )
            for s in self.steps
        ]
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(w) if i < 2 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in [head, *rows]
        ]
        working = sum(s.microseconds for s in self.steps)
        lines.append(
            f"total {self.total:.1f} µs on {self.threads} thread(s), "
            f"{self.total - working:.1f} µs between steps"
        )
        return "\n".join(lines)

    def to_json(self) -> str:
        """All figures as JSON."""
        steps = [asdict(step) for step in self.steps]
        return json.dumps(
            {"total_us": self.total, "threads": self.threads, "steps": steps}, indent=1
        )

    def to_chrome_trace(self) -> str:
        """One run as a Chrome trace (chrome://tracing, ui.perfetto.dev), a row per thread."""
        events: list[dict[str, Any]] = []
        for step, phase in zip(self.steps, self.spans, strict=True):
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
                    }
                )
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _step_time(step: Step, clock: Array, speeds: Machine) -> StepTime:
    """`clock` is [repeat, threads, (start, end)] in ns; phases share their step's work evenly."""
    start, end = clock[..., 0], clock[..., 1]
    spans = end.max(axis=1) - start.min(axis=1)
    nanoseconds = max(float(np.median(spans)), 1.0)
    busy = float(np.median((end - start).mean(axis=1) / np.maximum(spans, 1.0)))
    share = 1 / len(step.phases)
    flops, moved = step.work.flops * share, step.work.bytes * share
    threads = clock.shape[1]
    floor = max(flops / (speeds.flops * threads), moved / speeds.bandwidth) * 1000
    return StepTime(
        step.name,
        step.kernel or "reference",
        nanoseconds / 1000,
        busy,
        flops / nanoseconds,
        moved / nanoseconds,
        floor / nanoseconds,
    )
