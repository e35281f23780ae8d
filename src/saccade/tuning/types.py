"""What a search asks for, tells and hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from saccade.ir import Array, Graph
from saccade.tuning.algorithms import Algorithms
from saccade.tuning.candidates import Bounds, TuningCandidate
from saccade.tuning.judge import Verdict

if TYPE_CHECKING:
    from saccade.program import DeviceBuffer

__all__ = ["Bench", "Change", "Outcome", "Progress", "Swaps", "TuneRequest"]

Swaps = Mapping[int, TuningCandidate]
"""What to do differently, by number of the step."""


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What to tune, and how long.

    Attributes:
        graph: The model.
        identity: Of its constants.
        sizes: Of its symbols.
        inputs: To run on, of the device.
        hints: Choices that are tried before others.
        seconds: How long it may take; None for as long as it takes.
        report: Told how far it is.
    """

    graph: Graph
    identity: str
    sizes: Mapping[str, int]
    inputs: Sequence[DeviceBuffer]
    hints: Algorithms
    seconds: float | None
    report: Callable[[Progress], None]


class Bench(Protocol):
    """Measures variants against the untuned ones, in a program or apart from it.

    `tick` is told how many rounds are done, parts of them included.
    """

    @property
    def bounds(self) -> Bounds:
        """Which variants are worth the time that measuring them takes here."""

    @property
    def failures(self) -> Sequence[str]:
        """Variants that could not be run, and why."""

    def announce(self, waves: Sequence[Swaps]) -> None:
        """Told what will be measured, in order: its code may be made meanwhile."""

    def compile(self, swaps: Swaps) -> None:
        """See to it that there is code for these."""

    def effort(self, swaps: Swaps) -> float:
        """How long a round of these takes, over one of any other: 1 where all take as long."""

    def remaining(self, measuring: float, swaps: Swaps) -> float:
        """Seconds until all is done, of which measuring takes so many, code for these included."""

    def alternate(
        self, swaps: Swaps, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds, steps] of steps as they are untuned and as they are changed.

        Those of equal rounds were taken in turns. Without swaps, all steps are timed as they are;
        else only those that are swapped need be. Variants that could not be run take forever.
        """

    def verify(
        self, chosen: Algorithms, rounds: int, tick: Callable[[float], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds] of the untuned program and of the one planned with `chosen`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is: what it does, seconds since it began, seconds that it still needs."""

    text: str
    elapsed: float
    remaining: float


@dataclass(frozen=True, slots=True)
class Change:
    """A call that is done by another variant now.

    Attributes:
        steps: The steps that make it.
        before, after: Kernels.
        config: Of the new variant, for people.
        verdict: Microseconds of one step, before and after.
    """

    steps: tuple[str, ...]
    before: str
    after: str
    config: tuple[Mapping[str, object], ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search came to.

    Attributes:
        algorithms: The choices to keep; no entries when the untuned plan stays.
        changes: What these choices change.
        whole: Microseconds of the whole program before and after; None if nothing was faster alone.
        measured: How many measurements were taken.
        remembered: How many were known from before.
        skipped: How many candidates there was no time for.
        calls: The calls that were asked about, see `call_key`.
        failures: Variants that could not be run, and why.
    """

    algorithms: Algorithms
    changes: tuple[Change, ...]
    whole: Verdict | None
    measured: int
    remembered: int
    skipped: int
    calls: tuple[str, ...]
    failures: tuple[str, ...] = ()
