"""What a search asks for, tells and hands over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from saccade.ir import Array
from saccade.tuning.algorithms import Algorithms
from saccade.tuning.candidates import TuningCandidate
from saccade.tuning.judge import Verdict

__all__ = ["Bench", "Change", "Outcome", "Progress", "Swaps"]

Swaps = Mapping[int, TuningCandidate]
"""What to do differently, by number of the step."""


class Bench(Protocol):
    """Runs programs against the untuned one."""

    def compile(self, keys: Iterable[tuple[str, object]]) -> int:
        """Make code for (kernel, config) pairs; how many there was none for."""

    def alternate(
        self, swaps: Swaps, rounds: int, tick: Callable[[int], None]
    ) -> tuple[Array, Array]:
        """Microseconds [rounds, steps] of the untuned program and of the changed one, in turns."""

    def verify(
        self, chosen: Algorithms, rounds: int, tick: Callable[[int], None]
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
    """

    algorithms: Algorithms
    changes: tuple[Change, ...]
    whole: Verdict | None
    measured: int
    remembered: int
    skipped: int
    calls: tuple[str, ...]
