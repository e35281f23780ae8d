"""Which kernels take a call, and which of them is the cheapest by its own estimate.

The engine's selection (`layout.select`) and PyTorch's operators stand on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from saccade.kernels.base import Call, Variant, interned

if TYPE_CHECKING:
    from saccade.kernels.base import Kernel

__all__ = ["Candidate", "Candidates", "Passed"]


_TOLD = re.compile(r"(?P<kernel>[a-z]\w*\.\w+): (?P<reason>.*)", re.DOTALL)
_ESTIMATED = re.compile(r"(\d+(?:\.\d+)?) µs estimated")


class Passed(NamedTuple):
    """A candidate that was not taken, and why."""

    kernel: str
    reason: str

    @classmethod
    def slower(cls, kernel: str, micros: float) -> Passed:
        """One that takes the call, in so many microseconds by its own estimate."""
        return cls(kernel, f"{micros:.1f} µs estimated")

    @classmethod
    def read(cls, text: str) -> Passed:
        """What a plan keeps of one, its text, read back; without a kernel if it names none."""
        found = _TOLD.fullmatch(text)
        return cls("", text) if found is None else cls(found["kernel"], found["reason"])

    @property
    def estimate(self) -> float | None:
        """Microseconds by its own estimate; None if it does not take the call."""
        found = _ESTIMATED.match(self.reason)
        return None if found is None else float(found[1])

    def __str__(self) -> str:
        return f"{self.kernel}: {self.reason}"


_passed = interned(Passed)


class Candidate(NamedTuple):
    """A kernel that takes the call, its best variant for a nominal team, and the others.

    These can be walked but once; None where that is left to others.
    """

    kernel: Kernel
    best: Variant
    others: Iterator[Variant] | None

    @property
    def micros(self) -> float:
        """Estimated, of the best variant."""
        return self.best.micros


class Candidates(NamedTuple):
    """What the kernels that were asked said.

    Attributes:
        able: Those that take the call, in the order of asking.
        refused: The others.
    """

    able: tuple[Candidate, ...]
    refused: tuple[Passed, ...]

    @classmethod
    def of(cls, call: Call, kernels: Iterable[Kernel], team: int) -> Candidates:
        """Ask kernels about a call, whose sizes may be numbers of a symbolic trace.

        Args:
            call: The call.
            kernels: In order of preference among equals.
            team: Width of the team that variants are for, whatever the call's: algorithms round
                differently, and no result may depend on the team (`Backend.nominal_threads`).
        """
        nominal = call if call.threads == team else replace(call, threads=team)
        able, refused = [], []
        for kernel in kernels:
            reason = kernel.supports(call)
            if reason is None:
                variants = iter(kernel.variants(nominal))
                able.append(Candidate(kernel, next(variants), variants))
            else:
                refused.append(_passed(kernel.name, reason))
        return cls(tuple(able), tuple(refused))

    @property
    def cheapest(self) -> Candidate:
        """The first of those with the least estimate; there must be any."""
        if len(self.able) == 1:
            return self.able[0]
        return min(self.able, key=lambda candidate: candidate.best.micros)
