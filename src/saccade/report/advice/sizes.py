"""How many images a run takes: too few to divide what each run pays, or too many for the cache."""

from __future__ import annotations

import re

from saccade.report.advice.found import Found, command_beside, found_in, median_micros
from saccade.report.types import Report, ReportStep

__all__ = ["out_of_cache", "small_steps", "weights_bound"]

_BATCH = 8  # images that are proposed
_BARRIERS = 0.03  # share of a run that phases may take which do nothing
_HELD = 0.5  # share of the last-level cache that values may fill and be found there again
_SHAPE = re.compile(r"(=)(\d+)((?:x\d+)+'?)$")
"""At the end of the option: names may hold anything."""


def small_steps(report: Report) -> Found | None:
    """Barriers between steps that are too short."""
    # What they cost at least: in the profile they also have whatever disturbed the run.
    lost, whole = report.totals.floor_barriers, median_micros(report)
    if report.totals.batch != 1 or lost < _BARRIERS * whole:
        return None
    phases = sum(len(step.phases) for step in report.steps)
    return Found(
        f"{100 * lost / whole:.0f}% of the time is spent between steps",
        f"Every thread goes through {phases} phases, whatever they compute, and meets the others "
        f"where one waits for another. With {_BATCH} images in each run they are as many.",
        lost * (1 - 1 / _BATCH),
        _with_batch(report, _BATCH),
    )


def weights_bound(report: Report) -> Found | None:
    """Steps that take as long as their weights take to come from memory."""
    if not 0 < report.totals.batch < _BATCH:
        return None
    speeds, threads = report.speeds, report.about.threads
    saved = 1 - report.totals.batch / _BATCH
    lost = {}
    for i, step in enumerate(report.steps):
        reading = _weights(step) / speeds.bandwidth
        if reading > step.flops / (speeds.flops * threads) and step.time:
            lost[i] = min(reading, step.time) * saved
    return found_in(
        report, lost,
        "Weights hold up {count}",
        f"All weights are read for {report.totals.batch} image(s). With {_BATCH} in a run they are "
        "read once for all of them. The gain is that of each image. It is about {names}.",
        _with_batch(report, _BATCH),
    )  # fmt: skip


def out_of_cache(report: Report) -> Found | None:
    """A batch whose values do not fit into the last-level cache, where a smaller one's would."""
    batch, speeds = report.totals.batch, report.speeds
    room = _HELD * speeds.cache
    if batch <= 1 or report.totals.live <= room or report.about.device != "cpu":
        return None
    fitting = max(1, int(batch * room / report.totals.live))
    if report.totals.live / batch > room:
        return None
    near = speeds.cache_bandwidth * report.about.threads
    lost = {
        i: min(step.lost, moved / speeds.bandwidth - moved / near)
        for i, step in enumerate(report.steps)
        if (moved := step.bytes - _weights(step)) > room and near > speeds.bandwidth and step.lost
    }
    return found_in(
        report, lost,
        f"{batch} images at once do not fit into the last-level cache",
        f"{report.totals.live / 1e6:.0f} MB are in use at once, the cache has "
        f"{speeds.cache / 1e6:.0f} MB: what a step writes comes back from memory. {fitting} at a "
        "time would find it in the cache. It is about {names}.",
        _with_batch(report, fitting),
    )  # fmt: skip


def _weights(step: ReportStep) -> int:
    return sum(place.nbytes for place in step.inputs if place.where == "constant")


def _with_batch(report: Report, batch: int) -> str:
    """The same run with another number of images, beside this one."""
    shapes = [
        _SHAPE.sub(rf"\g<1>{batch}\g<3>", option)
        for option in report.about.command
        if option.startswith("--shape")
    ]
    return command_beside(report, f"batch-{batch}", *shapes)
