"""What phases ask for ahead: constants that later phases read, while products leave memory idle.

A run reads every weight once, and between two reads others take the last-level cache: weights come
from memory. Steps that are bound by arithmetic leave memory idle for most of their time, and a step
that does little more than read its weights then waits for it. So the loops of products ask for a
few lines of what comes next on every trip; they wait in the second cache, or in the last one.

Every phase asks for what is read soonest after it, as much as fits beside its products; what does
not fit is left to the phases before it. What is read too late after that is not asked for: it would
be gone again, and take the place of what is needed sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saccade.kernels.machine import Machine
from saccade.plan.types import Phase, Ref, Step

__all__ = ["asking_ahead"]

_LINE = 64
_LEAST = 4096  # bytes that are worth it
_RATE = 8e3  # bytes per microsecond that the loops of a team ask for
_REACH = 0.125  # share of the last-level cache that may be on its way


def asking_ahead(
    steps: Sequence[Step], first_constant: int, asking: frozenset[str], speeds: Machine
) -> tuple[Step, ...]:
    """The steps, their phases with what they ask for.

    Args:
        steps: In order.
        first_constant: Entry of the first constant in the table of bases.
        asking: Names of the kernels whose loops ask.
        speeds: Of the machine, for the size of its last-level cache.
    """
    pending: list[Ref] = []  # what is read soonest last
    found: list[Step] = []
    for step in reversed(steps):
        phases: list[Phase] = []
        for phase in reversed(step.phases):
            room = _RATE * step.estimate / len(step.phases) if step.kernel in asking else 0.0
            taken, pending = _split(pending, room)
            phases.append(replace(phase, ahead=taken[::-1]))
            new = (r for r in phase.refs if r.base >= first_constant and r.nbytes >= _LEAST)
            pending += [r for r in new if all(r.base != p.base for p in pending)]
            pending = list(_split(pending, _REACH * speeds.cache)[0])
        found.append(replace(step, phases=tuple(phases[::-1])))
    return tuple(found[::-1])


def _split(pending: Sequence[Ref], room: float) -> tuple[tuple[Ref, ...], list[Ref]]:
    """The last of them, so many bytes together, and what is left; whole lines."""
    taken: list[Ref] = []
    left = list(pending)
    while left and room >= _LEAST:
        ref = left.pop()
        part = min(ref.nbytes, int(room) // _LINE * _LINE)
        # The end of it: a phase before this one may ask for its beginning.
        rest = ref.nbytes - part
        taken.append(Ref(ref.base, ref.offset + rest, part))
        if rest:
            left.append(Ref(ref.base, ref.offset, rest))
        room -= part
    return tuple(taken[::-1]), left
