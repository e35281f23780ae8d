"""A report put together: of a profile, the plan that ran, and what the engine knows of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from shlex import quote
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import OptionError, printable
from saccade.ir.printer import format_op
from saccade.kernels.select import Passed
from saccade.options import Options, default_threads
from saccade.plan import Plan, Port, Step
from saccade.plan.floor import floor
from saccade.plan.text import short_config
from saccade.profile import Profile, StepTime
from saccade.report.advice import advice_of
from saccade.report.imported import LONGEST, imported_nodes
from saccade.report.lifetimes import lifetimes
from saccade.report.machine import commit, describe_machine, package_versions
from saccade.report.places import place_of
from saccade.report.types import (
    FORMAT,
    About,
    ImportedNode,
    Percentiles,
    Refused,
    Report,
    ReportStep,
    Span,
    Totals,
)
from saccade.signature import shape_text
from saccade.sources import sources_digest
from saccade.version import VERSION

if TYPE_CHECKING:
    from saccade.engine import Engine
    from saccade.tuning import Measured

__all__ = ["clocked", "percentiles_of", "report_of"]

_LEAST, _MOST = 5, 4000  # samples of whole runs
_REMARKS = 40  # that are shown
_DIGITS = 5  # of times
_IMAGES = 4  # axes: N, C, H, W


def clocked(
    run: Callable[[], object],
    clock: Callable[[Callable[[], object], int], float],
    queued: int,
    seconds: float,
) -> tuple[int, tuple[float, ...]]:
    """How many runs a sample is the mean of, and the samples: milliseconds, in their order.

    Args:
        run: Runs the program once.
        clock: See `program.Arrays`.
        queued: Runs to time as one.
        seconds: How long to go on; a few samples are taken in any case.
    """
    clock(run, queued)  # which warms up
    end, times = perf_counter() + seconds, list[float]()
    while len(times) < _LEAST or (perf_counter() < end and len(times) < _MOST):
        times.append(_short(clock(run, queued)))
    return queued, tuple(times)


def report_of(
    title: str,
    profile: Profile,
    timed: tuple[int, tuple[float, ...]],
    options: Options,
    started: Callable[[], Engine],
) -> Report:
    """The report of a profile.

    Args:
        title: What the model is called, and what commands of advice name.
        profile: Of the program.
        timed: What `clocked` gave for it.
        options: What it was compiled with.
        started: Gives the engine, unless there is none (`OptionError`): what comes from it is
            left out then, with the reason.
    """
    plan, (queued, times) = profile.plan, timed
    imported, measured, missing = _asked(started, plan)
    found = lifetimes(plan)
    steps = [
        _step(plan, step, ran, known, reads)
        for step, ran, known, reads in zip(
            plan.steps, _ran(profile), measured, found.reads, strict=True
        )
    ]
    report = Report(
        FORMAT,
        _about(title, plan, options, missing),
        _totals(profile, queued),
        percentiles_of(times),
        profile.shares,
        profile.speeds,
        tuple(steps),
        found.blocks,
        imported,
        times,
        (),
    )
    return replace(report, advice=advice_of(report))


def percentiles_of(times: Sequence[float]) -> Percentiles:
    """Of at least one time."""
    least, p50, p90, p95, p99, most = (
        _short(float(one)) for one in np.percentile(times, [0, 50, 90, 95, 99, 100])
    )
    return Percentiles(least, p50, p90, p95, p99, most, _short(float(np.mean(times))))


def _asked(
    started: Callable[[], Engine], plan: Plan
) -> tuple[tuple[ImportedNode, ...], Sequence[Sequence[Measured]], tuple[str, ...]]:
    """The imported graph, what was measured of each step, and why there is neither."""
    try:
        engine = started()
    except OptionError as error:  # a bundle holds programs alone
        nothing: Sequence[Sequence[Measured]] = [()] * len(plan.steps)
        return (), nothing, (f"the graph before fusion is not known: {error}",)
    names = [step.name for step in plan.steps]
    return imported_nodes(engine.imported(), names, plan.sizes), engine.measured(plan), ()


def _ran(profile: Profile) -> Iterator[tuple[StepTime, tuple[tuple[Span, ...], ...]] | None]:
    """For each step of the plan its times; None for what has nothing to run, or was not clocked."""
    ran = iter(zip(profile.steps, profile.spans, strict=True))
    for step in profile.plan.steps:
        yield next(ran, None) if step.phases or step.kernel is None else None


def _step(
    plan: Plan,
    step: Step,
    ran: tuple[StepTime, tuple[tuple[Span, ...], ...]] | None,
    measured: Sequence[Measured],
    reads: tuple[int, ...],
) -> ReportStep:
    time, spans = ran or (None, ())
    return ReportStep(
        name=printable(step.name),
        op=step.op.title,
        attributes=printable(format_op(step.op), LONGEST),
        kernel=step.by,
        config=printable(short_config(step.phases[0].config), LONGEST) if step.phases else "",
        host=step.kernel is None,
        tuned=step.measured,
        contracts=step.op.contracts,
        reorder=step.is_reorder,
        note=printable(step.note, LONGEST),
        estimate=_short(step.estimate),
        time=0.0 if time is None else _short(time.microseconds),
        phases=() if time is None else tuple(map(_short, time.phases)),
        chunks=tuple(phase.chunks for phase in step.phases),
        busy=0.0 if time is None else _short(time.busy),
        flops=step.work.flops,
        bytes=step.work.bytes,
        least_flops=step.least_flops,
        floor=0.0 if time is None else _short(time.floor),
        inputs=tuple(place_of(plan, slot) for slot in step.inputs),
        outputs=tuple(place_of(plan, slot) for slot in step.outputs),
        reads=reads,
        refused=tuple(_refused(step, measured)),
        facts=() if time is None else time.facts,
        spans=tuple(tuple((round(a, 2), round(b, 2)) for a, b in phase) for phase in spans),
        bodies=len(step.bodies),
    )


def _refused(step: Step, measured: Sequence[Measured]) -> Iterator[Refused]:
    """The kernels that were passed over; what was measured of them, the fastest variant of each."""
    times: dict[str, float] = defaultdict(lambda: float("inf"))
    for one in measured:
        times[one.kernel] = min(times[one.kernel], one.micros)
    for passed in map(Passed.read, step.reasons):
        time = times.pop(passed.kernel, None)
        reason = printable(passed.reason, LONGEST)
        yield Refused(
            passed.kernel, reason, passed.estimate, None if time is None else _short(time)
        )


def _about(title: str, plan: Plan, options: Options, missing: Sequence[str]) -> About:
    remarks = [*missing, *plan.notes, *(f"tuned choice not taken: {why}" for why in plan.refused)]
    if len(remarks) > _REMARKS:
        remarks[_REMARKS:] = [f"and {len(remarks) - _REMARKS} more remarks"]
    machine = describe_machine(options.device)
    return About(
        model=printable(title),
        page="report.html",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        saccade=VERSION,
        commit=commit(),
        code=sources_digest()[:12],
        device=options.device,
        precision=options.precision.value,
        threads=plan.threads,
        exact=plan.exact,
        isa=plan.isa,
        planned_for=plan.speeds.name,
        cores=default_threads(),
        command=tuple(_command(plan, options)),
        inputs=tuple(map(_port, plan.inputs)),
        outputs=tuple(map(_port, plan.outputs[: len(plan.outputs) - plan.counts])),
        machine={name: _text(value) for name, value in machine.items()},
        versions=package_versions(),
        remarks=tuple(printable(remark, LONGEST) for remark in remarks),
    )


def _port(port: Port) -> str:
    return f"{printable(port.name)} {port.dtype} {shape_text(port.shape)}"


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _command(plan: Plan, options: Options) -> Iterator[str]:
    """Options of the command line for the same run."""
    for port in plan.inputs:
        if port.shape:
            yield f"--shape {quote(printable(f'{port.name}={shape_text(port.shape)}'))}"
    # A GPU has no team.
    yield f"--threads {plan.threads}" if options.device == "cpu" else f"--device {options.device}"
    if options.precision.value != "fp32":
        yield f"--precision {options.precision.value}"


def _totals(profile: Profile, queued: int) -> Totals:
    plan = profile.plan
    least = floor(plan, profile.speeds)
    # Runs read what is packed: what it was made from does not count.
    read = [c for c, used in zip(plan.constants, plan.constants_read, strict=True) if used]
    return Totals(
        profiled=_short(profile.total),
        whole=None if profile.whole is None else _short(profile.whole),
        estimate=_short(plan.estimate),
        floor=_short(least.total),
        floor_arithmetic=_short(least.arithmetic),
        floor_memory=_short(least.memory),
        floor_barriers=_short(least.barriers),
        arena=plan.arena_bytes,
        live=plan.live_bytes,
        packed=sum(c.nbytes for c in read if c.packing is not None),
        raw=sum(c.nbytes for c in read if c.packing is None),
        batch=_batch(plan),
        queued=queued,
    )


def _batch(plan: Plan) -> int:
    """How many images a run takes; 0 where its inputs are none, or do not agree on that."""
    first = {port.shape[0] if len(port.shape) == _IMAGES else 0 for port in plan.inputs}
    return first.pop() if len(first) == 1 else 0


def _short(value: float) -> float:
    """A number without the digits that mean nothing."""
    return float(f"{value:.{_DIGITS}g}")
