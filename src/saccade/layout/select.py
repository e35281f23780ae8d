"""The kernel of each step.

The one that was measured to be fastest; where nothing was measured, the cheapest by its own
estimate of those that take the call. What rounds is settled by the call and the machine's
description alone; only between ways that give the same bits may it matter which code exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from saccade.kernels.base import Call, Launch, Variant
from saccade.layout.types import Backend, Choice, KernelLike, Passed, Timings

__all__ = ["Available", "Selector"]

_NOMINAL_THREADS = 2
_SLOWER = 1.5
"""Times the estimate of the best way that one with code may take; beyond, the best is compiled."""

Available = Callable[[str, Any], bool]
"""Whether code for (kernel, config) exists already."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A kernel that takes the call, and its best variant for a nominal team."""

    kernel: KernelLike
    best: Variant

    @property
    def micros(self) -> float:
        return self.best.micros


Decision = tuple[Choice, tuple[Launch, ...]] | None
_UNKNOWN = object()


class Selector:
    """Chooses kernels; equal calls are decided once.

    Args:
        backend: Where candidates come from.
        available: If given, ways whose code exists are preferred to others with the same bits.
        timings: What was measured, if anything was.
    """

    def __init__(
        self,
        backend: Backend,
        available: Available | None = None,
        timings: Timings | None = None,
    ) -> None:
        self._backend = backend
        self._available = available
        self._timings = timings
        self._known: dict[Call, Decision] = {}

    def select(self, call: Call) -> Decision:
        """The choice and its phases, or None if no kernel takes the call as it is stored."""
        known = self._known.get(call, _UNKNOWN)
        if known is _UNKNOWN:
            known = self._known[call] = self._decide(call)
        return cast("Decision", known)

    def refusals(self, call: Call) -> tuple[Passed, ...]:
        """Why each candidate refuses the call."""
        found = ((k, k.supports(call)) for k in self._backend.candidates(call.op))
        return tuple(Passed(k.name, reason) for k, reason in found if reason is not None)

    def _decide(self, call: Call) -> Decision:
        passed: list[Passed] = []
        able: list[_Candidate] = []
        # Algorithms round differently: the choice, and so the result, must not depend on the team.
        nominal = (
            call if call.threads == _NOMINAL_THREADS else replace(call, threads=_NOMINAL_THREADS)
        )
        for kernel in self._backend.candidates(call.op):
            reason = kernel.supports(call)
            if reason is None:
                able.append(_Candidate(kernel, next(iter(kernel.variants(nominal)))))
            else:
                passed.append(Passed(kernel.name, reason))
        if not able:
            return None
        able.sort(key=lambda candidate: candidate.micros)
        tuned = None
        if self._timings is not None:
            tuned = self._timings.tuned(call, self._backend.candidates(call.op))
        if tuned is not None:
            kernel, launches, measured = tuned.kernel, tuned.launches, tuned.micros
            cost = able[0].micros * tuned.ratio
        else:
            first = able[0]
            launches = self._way(call, first)
            kernel, cost, measured = first.kernel, first.micros, None
        passed += [
            Passed(other.kernel.name, f"{other.micros:.1f} µs estimated")
            for other in able
            if other.kernel is not kernel
        ]
        return Choice(kernel, cost, tuple(passed), kernel.aliases(call), measured), launches

    def _way(self, call: Call, chosen: _Candidate) -> tuple[Launch, ...]:
        """The phases: of the ways with the chosen one's bits the fastest, or one with code."""
        variants = cast("Iterable[Variant]", chosen.kernel.variants(call))
        alike = (one for one in variants if one.rounding == chosen.best.rounding)
        first = next(alike)
        launches = first.launches
        if self._available is None or self._exists(chosen.kernel, launches):
            return launches
        for other in alike:
            if other.micros > _SLOWER * first.micros:
                break
            if self._exists(chosen.kernel, other.launches):
                return other.launches
        return launches

    def _exists(self, kernel: KernelLike, launches: tuple[Launch, ...]) -> bool:
        available = self._available
        assert available is not None
        return all(available(kernel.name, one.config) for one in launches)
