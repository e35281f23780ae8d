"""When each launch of a program begins and ends, by events between all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from saccade.backends.cuda.runtime.graph import Launched, Launches
from saccade.backends.cuda.runtime.turns import StepTurns

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.driver import CudaDriver
    from saccade.ir import Array
    from saccade.plan import Phase, Plan, Step

__all__ = ["clocks_of", "timed_steps"]


class _Timed(NamedTuple):
    """One thing that is timed: what starts it, and the numbers of its readings, of equal shares."""

    start: Callable[[], None]
    readings: Sequence[int]


def timed_steps(plan: Plan) -> list[tuple[Step, Phase | None]]:
    """What has readings: each phase, and each step with bodies as a whole."""
    return [
        (step, phase) for step in plan.steps for phase in ((None,) if step.bodies else step.phases)
    ]


def clocks_of(
    driver: CudaDriver,
    plan: Plan,
    pieces: Sequence[Launched | StepTurns],
    bases: Array,
    stream: int,
    repeat: int,
) -> Array:
    """Nanoseconds of so many runs on a stream, after one that is not counted.

    Args:
        driver: Of the GPU.
        plan: What runs.
        pieces: Of it, one after the other.
        bases: The table of bases.
        stream: Where.
        repeat: Runs.

    Returns:
        [repeat, `timed_steps`, (start, end)]; a phase without chunks takes no time.

    Raises:
        OutOfMemoryError: If there is no room.
    """
    number = _Numbers(plan)
    timed: list[_Timed] = []
    parts: list[Launches] = []  # arguments are theirs
    tables: list[int] = []
    clocks = np.zeros((repeat + 1, len(timed_steps(plan)), 2))
    try:
        for piece in pieces:
            if isinstance(piece, StepTurns):
                timed.append(_Timed(partial(piece.run, bases, stream), number.next_turns()))
                continue
            codes, _ = piece
            launches = Launches(codes, len(bases), driver.encoders)
            parts.append(launches)
            launches.point(bases)
            tables.append(launches.place_rows(driver, bases, stream))
            timed += (
                _Timed(
                    partial(driver.launch, launch, stream),
                    [number.phases[one.number] for one in (code, *code.others)],
                )
                for code, launch in zip(codes, launches.each, strict=True)
            )
        events = [driver.make_event(timed=True) for _ in range(len(timed) + 1)]
        for clock in clocks:
            driver.record(events[0], stream)
            for one, event in zip(timed, events[1:], strict=True):
                one.start()
                driver.record(event, stream)
            driver.wait_stream(stream)
            _read(clock, timed, [1e6 * driver.milliseconds(events[0], event) for event in events])
    finally:
        for table in tables:
            if table and driver.lost is None:
                driver.free(table)
    for event in events:
        driver.free_event(event)
    return clocks[1:]


class _Numbers:
    """Where the readings of phases and of steps with bodies are."""

    def __init__(self, plan: Plan) -> None:
        each = enumerate(timed_steps(plan))
        self.phases, turns = list[int](), list[int]()
        for i, (_, phase) in each:
            (turns if phase is None else self.phases).append(i)
        self._turns = iter(turns)

    def next_turns(self) -> list[int]:
        """Of the next step with bodies."""
        return [next(self._turns)]


def _read(clock: Array, timed: Sequence[_Timed], ends: Sequence[float]) -> None:
    """One run's readings, from the ends of what is timed; rows have equal shares."""
    spans = {
        reading: (start + i * (end - start) / rows, start + (i + 1) * (end - start) / rows)
        for one, (start, end) in zip(timed, pairwise(ends), strict=True)
        for rows in [len(one.readings)]
        for i, reading in enumerate(one.readings)
    }
    at = 0.0
    # Without chunks there was no launch, and so no event: such a phase ends as it begins.
    for i in range(len(clock)):
        clock[i] = spans.get(i, (at, at))
        at = clock[i, 1]
