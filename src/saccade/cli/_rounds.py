"""Alternating rounds and their statistics.

Engines are timed A B A B …, one at a time, so that a change of the machine's load falls on all of
them; ratios are taken between medians of the same rounds.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saccade.cli._bench_process import EngineProcess

__all__ = ["Stats", "alternate", "cores_for", "quantile", "summarize"]


@dataclass(frozen=True, slots=True)
class Stats:
    """Milliseconds of one engine over all its rounds."""

    median_ms: float
    p90_ms: float
    min_ms: float
    q1_ms: float
    q3_ms: float
    runs: int
    round_medians_ms: tuple[float, ...]


def alternate(
    engines: Sequence[EngineProcess],
    rounds: int,
    seconds: float,
    report: Callable[[int, EngineProcess], None] = lambda _round, _engine: None,
) -> list[list[list[float]]]:
    """Milliseconds of every run, by engine and round.

    Args:
        engines: Opened and idle; they take turns in this order.
        rounds: Turns of each engine.
        seconds: Least length of a turn.
        report: Called before each turn with the round's index and the engine.
    """
    times: list[list[list[float]]] = [[] for _ in engines]
    for index in range(rounds):
        for engine, collected in zip(engines, times, strict=True):
            report(index, engine)
            collected.append(engine.round(seconds).times_ms)
    return times


def summarize(rounds: Sequence[Sequence[float]]) -> Stats:
    """Statistics over the runs of all rounds."""
    runs = sorted(ms for one in rounds for ms in one)
    return Stats(
        median_ms=statistics.median(runs),
        p90_ms=quantile(runs, 0.9),
        min_ms=runs[0],
        q1_ms=quantile(runs, 0.25),
        q3_ms=quantile(runs, 0.75),
        runs=len(runs),
        round_medians_ms=tuple(statistics.median(one) for one in rounds),
    )


def quantile(ordered: Sequence[float], q: float) -> float:
    """The `q`-quantile of sorted values, interpolated linearly between neighbours."""
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def cores_for(threads: int) -> tuple[int, ...]:
    """The processors that every engine is pinned to: the first `threads` of those allowed."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    # Not the first of the machine: a container may be allowed others.
    return tuple(sorted(os.sched_getaffinity(0))[:threads])
