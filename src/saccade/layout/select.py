"""The kernel of each step: the cheapest by its own estimate of those that take the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade.kernels.base import Call, Launch
from saccade.layout.types import Backend, Choice, KernelLike, Passed

__all__ = ["Available", "Selector"]

Available = Callable[[str, Any], bool]
"""Whether code for (kernel, config) exists already."""


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
        self._known: dict[Call, tuple[Choice, tuple[Launch, ...]] | None] = {}

    def select(self, call: Call) -> tuple[Choice, tuple[Launch, ...]] | None:
        """The choice and its phases, or None if no kernel takes the call as it is stored."""
        if call not in self._known:
            self._known[call] = self._decide(call)
        return self._known[call]

    def refusals(self, call: Call) -> tuple[Passed, ...]:
        """Why each candidate refuses the call."""
        found = ((k, k.supports(call)) for k in self._backend.candidates(call.op))
        return tuple(Passed(k.name, reason) for k, reason in found if reason is not None)

    def _decide(self, call: Call) -> tuple[Choice, tuple[Launch, ...]] | None:
        passed: list[Passed] = []
        able: list[tuple[float, KernelLike]] = []
        for kernel in self._backend.candidates(call.op):
            reason = kernel.supports(call)
            if reason is None:
                able.append((kernel.cost(call), kernel))
            else:
                passed.append(Passed(kernel.name, reason))
        if not able:
            return None
        able.sort(key=lambda pair: pair[0])
        taken = self._first_available(call, able, passed)
        for cost, kernel in able:
            if kernel is not taken[1]:
                passed.append(Passed(kernel.name, f"{cost:.1f} µs estimated"))
        return Choice(taken[1], taken[0], tuple(passed), taken[1].aliases(call)), taken[2]

    def _first_available(
        self, call: Call, able: list[tuple[float, KernelLike]], passed: list[Passed]
    ) -> tuple[float, KernelLike, tuple[Launch, ...]]:
        first: tuple[float, KernelLike, tuple[Launch, ...]] | None = None
        for cost, kernel in able:
            launches = kernel.launch(call)
            if first is None:
                first = (cost, kernel, launches)
            if self._available is None or all(
                self._available(kernel.name, launch.config) for launch in launches
            ):
                return cost, kernel, launches
        assert first is not None
        return first
