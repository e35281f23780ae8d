"""Tuned choices as selection asks for them, and why some cannot be taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from saccade.kernels.base import Call
from saccade.layout import Tuned
from saccade.tuning.algorithms import Algorithms
from saccade.tuning.candidates import find
from saccade.tuning.keys import call_key

if TYPE_CHECKING:
    from saccade.kernels.base import Kernel

__all__ = ["Lookup"]


class Lookup:
    """The choices of `algorithms` for one plan.

    Args:
        algorithms: What was chosen.
        device: The device that the plan is for; choices of another one are refused.
        machine: The machine that it is for, likewise.
        whole: Whether choices that the plan has no use for are reported as refused, too.
    """

    def __init__(
        self,
        algorithms: Algorithms,
        device: str,
        machine: Mapping[str, str],
        *,
        whole: bool = True,
    ) -> None:
        self._algorithms = algorithms
        self._whole = whole
        self._foreign = _differences(algorithms, device, machine)
        # Of another device or machine none is taken, and one reason stands for all.
        self._by_call = {} if self._foreign else {e.call: e for e in algorithms.entries}
        self._seen: set[str] = set()
        self._refused: dict[str, str] = {}

    def tuned(self, call: Call, kernels: Sequence[Kernel]) -> Tuned | None:
        """The choice for a call; None where there is none that can be taken."""
        if not self._by_call:
            return None
        entry = self._by_call.get(call_key(call))
        if entry is None:
            return None
        # By step: a file may have entries of one step for several sizes.
        self._seen.add(entry.step)
        kernel = next((k for k in kernels if k.name == entry.kernel), None)
        reason = "there is no such kernel" if kernel is None else kernel.supports(call)
        if kernel is None or reason is not None:
            self._refused[entry.step] = f"{entry.kernel}: {reason}"
            return None
        launches = find(kernel, call, entry.variant, entry.rank)
        if launches is None:
            self._refused[entry.step] = f"{entry.kernel} has no variant {entry.variant} for it now"
            return None
        # A file may say that it took no time.
        ratio = entry.micros / entry.before if entry.before else 1.0
        return Tuned(kernel, launches, entry.micros, ratio)

    def refusals(self, steps: Iterable[str]) -> tuple[str, ...]:
        """Why choices were not taken, given the names of all steps of the plan."""
        if self._foreign:
            return (f"all {len(self._algorithms.entries)} choices: {self._foreign}",)
        names, found = set(steps), dict(self._refused)
        for entry in self._algorithms.entries if self._whole else ():
            if entry.step not in self._seen:
                there = entry.step in names
                found[entry.step] = (
                    "it has other sizes, storage or settings here"
                    if there
                    else "there is no such step"
                )
        return tuple(f"{step}: {reason}" for step, reason in found.items())


def _differences(algorithms: Algorithms, device: str, machine: Mapping[str, str]) -> str:
    if algorithms.device != device:
        return f"measured on another device: {algorithms.device}, here {device}"
    for name, value in machine.items():
        given = algorithms.machine.get(name)
        if given != value:
            return f"measured on another machine: {name} {given}, here {value}"
    return ""
