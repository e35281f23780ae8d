"""Kernels that might have been others."""

from __future__ import annotations

from statistics import median

from saccade.report.advice.found import Found, command, found_in
from saccade.report.types import Report, ReportStep

__all__ = ["another_kernel", "exact_arithmetic", "host_steps"]

_SURE = 0.85
"""Times what was measured that another kernel has to be expected below: estimates are no better."""
_REACHED = 0.5
"""Share of the operations saved that time is saved by, too: transforms move more bytes."""


def another_kernel(report: Report) -> Found | None:
    """Steps that took longer than a kernel that was passed over is expected to."""
    off = _off(report)
    lost = {}
    for i, step in enumerate(report.steps):
        others = [
            time
            for one in step.refused
            if (time := _expected(one.estimate, one.measured, off)) is not None
        ]
        if others and not step.tuned and min(others) < _SURE * step.time:
            lost[i] = step.time - min(others)
    scale = f" Estimates were taken times {off:.2f}, as all steps take longer here." * (off > 1)
    return found_in(
        report, lost,
        "{count} took longer than another kernel is expected to",
        "Kernels are chosen by estimates, which were calibrated on one kind of machine and are off "
        f"for some sizes. It is about {{names}}.{scale}",
        command(report, "tune"),
    )  # fmt: skip


def _off(report: Report) -> float:
    """How many times as long as estimated steps take here, at least once."""
    ratios = [s.time / s.estimate for s in report.steps if _is_estimated(s)]
    return max(1.0, median(ratios)) if ratios else 1.0


def _is_estimated(step: ReportStep) -> bool:
    return not step.tuned and not step.host and step.time > 0 and step.estimate > 0


def _expected(estimate: float | None, measured: float | None, off: float) -> float | None:
    if measured is not None:
        return measured
    return None if estimate is None else off * estimate


def host_steps(report: Report) -> Found | None:
    """Steps that NumPy computes, one thread wide, while the team waits."""
    lost = {
        i: step.lost
        for i, step in enumerate(report.steps)
        if step.host and not step.bodies and step.lost
    }
    if not lost:
        return None
    worst = report.steps[max(lost, key=lambda i: lost[i])]
    reason = worst.refused[0].reason if worst.refused else "no kernel takes it"
    return found_in(
        report, lost,
        "{count} ran in NumPy on the host",
        "No kernel takes them: the program stops, one thread computes, and the others wait. The "
        f"longest is {worst.op} {worst.name}: {reason}",
        "# why no kernel takes them; then change these nodes in the model: {names}\n"
        + command(report, "inspect", "--reasons"),
    )  # fmt: skip


def exact_arithmetic(report: Report) -> Found | None:
    """Convolutions that may not be done with fewer operations."""
    if not report.about.exact:
        return None
    lost = {
        i: _REACHED * step.time * (1 - step.least_flops / step.flops)
        for i, step in enumerate(report.steps)
        if step.least_flops is not None and step.least_flops < step.flops
    }
    return found_in(
        report, lost,
        "exact=True refuses Winograd's algorithm for {count}",
        "Algorithms that round once more than sums of products do need up to 2.25 times fewer "
        "multiplications. The error that they add is of the size of float32's own.",
        f"saccade.compile({report.about.model!r}, exact=False)\n"
        + command(report, "compare", "--against onnxruntime"),
    )  # fmt: skip
