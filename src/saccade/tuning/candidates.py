"""Variants for a call that are worth measuring: the best of every kernel by its own estimate."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from saccade.kernels.base import Call, Launch, Variant
from saccade.tuning.keys import variant_id

if TYPE_CHECKING:
    from saccade.kernels.base import Kernel

__all__ = ["Bounds", "TuningCandidate", "candidates", "find"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which variants for a call are worth the time to measure them.

    Attributes:
        most: How many of a call, at most.
        within: Times the best estimate that a variant's own may be.
        of_each: The same for the best of each kernel: kernels estimate less alike.
    """

    most: int = 16
    within: float = 1.6
    of_each: float = 2.5


@dataclass(frozen=True, slots=True)
class TuningCandidate:
    """One variant for a call.

    Attributes:
        kernel: Whose.
        rank: Place among the kernel's variants.
        micros: Estimated microseconds.
        launches: The phases.
    """

    kernel: Kernel
    rank: int
    micros: float
    launches: tuple[Launch, ...]

    @property
    def id(self) -> str:
        """See `variant_id`."""
        return variant_id(self.launches)


def candidates(
    call: Call, kernels: Sequence[Kernel], bounds: Bounds | None = None
) -> tuple[TuningCandidate, ...]:
    """Variants for a call, best estimate first; every kernel's best among them.

    Args:
        call: What to do.
        kernels: Who may be asked.
        bounds: Which are worth their time; the default ones if None.
    """
    bounds = bounds or Bounds()
    ranked = [list(_ranked(kernel, call)) for kernel in kernels if kernel.supports(call) is None]
    ranked = [variants for variants in ranked if variants]
    if not ranked:
        return ()
    best = min(variants[0][0] for variants in ranked)
    heads = [v[0] for v in ranked if v[0][0] <= max(bounds.within, bounds.of_each) * best]
    others = heapq.merge(*(v[1:] for v in ranked), key=lambda entry: entry[0])
    # Before all others: one kernel's variants must not crowd out another kernel.
    chosen = sorted(heads, key=lambda entry: entry[0])[: bounds.most]
    near = (e for e in others if e[0] <= bounds.within * best)
    chosen += islice(near, bounds.most - len(chosen))
    chosen.sort(key=lambda entry: entry[0])
    found = (TuningCandidate(kernel, i, v.micros, v.launches) for _, i, kernel, v in chosen)
    # Equal launches are one candidate. The last one entered stays, so the best is entered last.
    return tuple({c.id: c for c in reversed(tuple(found))}.values())[::-1]


_Entry: TypeAlias = "tuple[float, int, Kernel, Variant]"


def _ranked(kernel: Kernel, call: Call) -> Iterator[_Entry]:
    return ((variant.micros, i, kernel, variant) for i, variant in enumerate(kernel.variants(call)))


def find(kernel: Kernel, call: Call, wanted: str, rank: int) -> tuple[Launch, ...] | None:
    """The phases of the variant with this identity, looked for at `rank` first."""
    variants = tuple(kernel.variants(call))
    # Ranks seldom change, and an identity is a digest of all phases: mostly one is made.
    for variant in (*variants[rank : rank + 1], *variants):
        launches = variant.launches
        if variant_id(launches) == wanted:
            return launches
    return None
