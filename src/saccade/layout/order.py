"""Small steps in an order in which those that do not wait for each other are neighbours.

A detector ranks the boxes of each of its classes by the same few steps, which a file has class by
class. Each is too small for a team, and waits for the one before it. One class after the other a
team would be one thread wide; step after step it has as many to do at once as there are classes,
and a device that runs steps side by side may launch those that are alike as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice

from saccade.layout.types import StepLayout
from saccade.waits import depths_of, waits_of

__all__ = ["interleaved"]

_SMALL = 64 << 10
"""Bytes of the results of a small step: of many side by side, so much is in the caches at once."""

_SMALL_BESIDE = 256 << 10
"""The same where steps run side by side: what leaves most of such a device idle."""

_WINDOW = 64
"""Small steps for each thread that are looked at for some that can run side by side (SSDLite, two
threads of a Zen 4: 32 to 10 000 take the same 9.5 ms for 10.7, 512 three times the memory)."""


def interleaved(
    steps: Iterable[StepLayout], threads: int, *, side_by_side: bool = False
) -> tuple[tuple[StepLayout, ...], tuple[int, ...]]:
    """Steps with small ones that follow each other beside others that they do not wait for.

    Each still comes behind all that it waits for; large steps stay where they are.

    Args:
        steps: In an order in which they may run.
        threads: Width of the team.
        side_by_side: Whether the device runs steps that do not wait for each other at once.

    Returns:
        The steps, and for each of them the last one that may run beside it.
    """
    found: list[StepLayout] = []
    beside: list[int] = []
    most, window = (_SMALL_BESIDE, None) if side_by_side else (_SMALL, _WINDOW * threads)
    for small, some in groupby(steps, partial(_is_small, most=most)):
        for level in _levels(list(some), window) if small else ([s] for s in some):
            found += level
            beside += [len(found) - 1] * len(level)
    return tuple(found), tuple(beside)


def _is_small(step: StepLayout, most: int) -> bool:
    """Whether its results have at most so many bytes; what runs on the host is not."""
    return (
        step.choice.kernel is not None
        and sum(stored.view.extent * stored.view.dtype.itemsize for stored in step.outputs) <= most
    )


def _levels(steps: Sequence[StepLayout], window: int | None) -> Iterable[list[StepLayout]]:
    """Steps that do not wait for each other, behind all that they wait for.

    Args:
        steps: In an order in which they may run.
        window: How many are looked at at once; None for all of them.
    """
    waits = waits_of(step.uses() for step in steps)
    if window is not None:
        return _nearest(steps, waits, window)
    depths = depths_of(waits)
    found: list[list[StepLayout]] = [[] for _ in range(1 + max(depths))]
    for step, depth in zip(steps, depths, strict=True):
        found[depth].append(step)
    return found


def _nearest(
    steps: Sequence[StepLayout], waits: Sequence[Sequence[int]], window: int
) -> Iterator[list[StepLayout]]:
    done: set[int] = set()
    later = iter(range(len(steps)))
    near = list(islice(later, window))
    while near:
        ready = [i for i in near if done.issuperset(waits[i])]
        yield [steps[i] for i in ready]
        done.update(ready)
        near = [i for i in near if i not in done]
        near += islice(later, window - len(near))
