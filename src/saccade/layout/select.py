"""The kernel of each step: the cheapest by its own estimate of those that take the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from saccade.kernels.base import Call, Launch
from saccade.layout.types import Backend, Choice, KernelLike, Passed

__all__ = ["Available", "Selector"]

_NOMINAL_THREADS = 2

Available = Callable[[str, Any], bool]
"""Whether code for (kernel, config) exists already."""


Decision = tuple[Choice, tuple[Launch, ...]] | None
_UNKNOWN = object()


def _always(_kernel: str, _config: Any) -> bool:  # noqa: ANN401
    return True


class Selector:
    """Chooses kernels; equal calls are decided once.

    Args:
        backend: Where candidates come from.
        available: If given, kernels whose code exists are preferred to those that would have to be
            compiled.
    """

    def __init__(self, backend: Backend, available: Available | None = None) -> None:
        self._backend = backend
        self._available = available
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
        able: list[tuple[float, KernelLike]] = []
        # Algorithms round differently: the choice, and so the result, must not depend on the team.
        nominal = (
            call if call.threads == _NOMINAL_THREADS else replace(call, threads=_NOMINAL_THREADS)
        )
        for kernel in self._backend.candidates(call.op):
            reason = kernel.supports(call)
            if reason is None:
                able.append((kernel.cost(nominal), kernel))
            else:
                passed.append(Passed(kernel.name, reason))
        if not able:
            return None
        able.sort(key=lambda pair: pair[0])
        taken = self._first_available(call, able)
        for cost, kernel in able:
            if kernel is not taken[1]:
                passed.append(Passed(kernel.name, f"{cost:.1f} µs estimated"))
        return Choice(taken[1], taken[0], tuple(passed), taken[1].aliases(call)), taken[2]

    def _first_available(
        self, call: Call, able: list[tuple[float, KernelLike]]
    ) -> tuple[float, KernelLike, tuple[Launch, ...]]:
        """The cheapest whose code exists; the cheapest of all where none exists."""
        best = None
        for cost, kernel in able:
            launches = kernel.launch(call)
            best = best or (cost, kernel, launches)
            if self._exists(kernel, launches):
                return cost, kernel, launches
            known = partial(self._available or _always, kernel.name)
            for others in kernel.alternatives(call, known):
                if self._exists(kernel, others):
                    return cost, kernel, others
        assert best is not None
        return best

    def _exists(self, kernel: KernelLike, launches: tuple[Launch, ...]) -> bool:
        available = self._available
        return available is None or all(available(kernel.name, one.config) for one in launches)
