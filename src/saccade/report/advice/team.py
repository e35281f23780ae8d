"""Threads: too few, too many, or waiting for each other."""

from __future__ import annotations

from saccade.report.advice.found import Found, command, command_beside, found_in, median_micros
from saccade.report.types import Report

__all__ = ["few_pieces", "idle_cores", "noisy_runs", "wide_team"]

_PIECES = 4
"""Pieces for each thread below which the last ones show: one more takes a quarter of the time."""
_BUSY = 0.9  # share of a step's time that threads should work
_NARROWER = 0.9  # times the time that a narrower team has to take, estimates being what they are
_NOISE = 1.25  # times the median that one run in twenty takes, and more
_SAMPLES = 20  # runs below which a tail is chance


def idle_cores(report: Report) -> Found | None:
    """A team narrower than the process could have."""
    about, totals = report.about, report.totals
    if about.device != "cpu" or about.threads >= about.cores:
        return None
    whole = median_micros(report)
    divided = whole * report.shares.working
    gain = divided * (1 - about.threads / about.cores)
    # All cores share the memory.
    gain = min(gain, whole - totals.floor_memory)
    if gain <= 0:
        return None
    return Found(
        f"{about.threads} of {about.cores} cores work",
        "The model was compiled for fewer threads than this process may use. Where other work "
        "needs the cores, that is as it should be.",
        gain,
        _beside(report, about.cores),
    )


def wide_team(report: Report) -> Found | None:
    """A team that waits more than it works."""
    about, shares, whole = report.about, report.shares, report.totals.profiled
    if about.device != "cpu" or about.threads == 1:
        return None
    work = shares.working * about.threads * whole
    waiting = (1 - shares.working) * whole

    def time(threads: int) -> float:
        # Waiting grows with how many wait for each other; one alone waits for nobody.
        return work / threads + waiting * (threads - 1) / (about.threads - 1)

    best = min(range(1, about.threads), key=time)
    if time(best) > _NARROWER * whole:
        return None
    return Found(
        f"{about.threads} threads wait for each other more than they gain",
        f"{100 * (1 - shares.working):.0f}% of the threads' time is spent at barriers and waiting "
        "for the last one. The steps are too small to be divided among so many.",
        whole - time(best),
        _beside(report, best),
    )


def _beside(report: Report, threads: int) -> str:
    """The same run with another team, beside this one."""
    return command_beside(report, f"threads-{threads}", f"--threads {threads}")


def few_pieces(report: Report) -> Found | None:
    """Steps that are cut into so few pieces that some threads have nothing left to do."""
    threads = report.about.threads
    if report.about.device != "cpu" or threads == 1:
        return None
    lost = {
        i: step.time * (1 - step.busy)
        for i, step in enumerate(report.steps)
        if step.chunks and min(step.chunks) < _PIECES * threads and 0 < step.busy < _BUSY
    }
    if not lost:
        return None
    worst = report.steps[max(lost, key=lambda i: lost[i])]
    return found_in(
        report, lost,
        "Too few pieces of work in {count}",
        f"Threads that are done wait for the last one: {worst.name} is "
        f"{' + '.join(map(str, worst.chunks))} piece(s) for {threads} threads, which work "
        f"{100 * worst.busy:.0f}% of its time. Tuning tries other cuts.",
        command(report, "tune"),
    )  # fmt: skip


def noisy_runs(report: Report) -> Found | None:
    """Runs that something else disturbs."""
    found = report.percentiles
    if len(report.times) < _SAMPLES or found.p95 < _NOISE * found.p50:
        return None
    cores = f"0-{report.about.threads - 1}" if report.about.threads > 1 else "0"
    return Found(
        f"One run in twenty takes {found.p95 / found.p50:.2f} times the median, or longer",
        "Something else uses the cores or the memory, or the clock frequency changes: a barrier "
        "waits for the thread that was put off. The gain is what runs lose by it on average.",
        1e3 * max(0.0, found.mean - found.p50),
        f"uptime  # is the machine idle?\ntaskset -c {cores} " + command_beside(report, "again"),
    )
