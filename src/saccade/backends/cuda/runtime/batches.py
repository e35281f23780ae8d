"""Launches that can be one, and in which order what is launched may run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from saccade.waits import depths_of

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.graph import Launched, PhaseCode
    from saccade.plan import Plan

__all__ = ["batches_of", "launched_of", "ordered"]


def launched_of(plan: Plan, codes: Sequence[PhaseCode], part: int) -> Launched:
    """What is launched between two steps with bodies, those with rows together.

    Args:
        plan: The plan.
        codes: Of all its phases that have chunks.
        part: How many steps with bodies come before.
    """
    waits, parts = plan.launch_waits, plan.launch_parts
    in_rows = any(code.cubin.rows for code in codes)
    if not in_rows and not any(parts):
        return codes if part == 0 else (), waits
    batches = [[number] for number in range(len(codes))]
    if in_rows:
        alike = [code.function if code.cubin.rows else None for code in codes]
        batches = batches_of(plan, alike)
    own, after = ordered([batch for batch in batches if parts[batch[0]] == part], waits)
    each = ([codes[number] for number in batch] for batch in own)
    return [replace(first, others=tuple(others)) for first, *others in each], after


def batches_of(plan: Plan, codes: Sequence[Hashable | None]) -> list[list[int]]:
    """The launches by number, those that can be one launch together.

    They have the same code, the same grid and the same integers; none waits for another one, no
    step with bodies is between them, and how far their operands lie apart is the same at every run.

    Args:
        plan: The plan.
        codes: Of each launch what is equal for equal code; None if it has to be alone.
    """
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    launched = (phase for step in plan.steps for phase in step.phases if phase.chunks)
    depths = zip(plan.launch_parts, depths_of(plan.launch_waits), strict=True)
    for number, (code, phase, depth) in enumerate(zip(codes, launched, depths, strict=True)):
        if code is None:
            found[number].append(number)
            continue
        bases = tuple((name, _moves_with(plan, ref.base)) for name, _, ref in phase.arguments)
        integers = tuple(sorted(phase.integers.items()))
        found[depth, code, phase.chunks, integers, bases].append(number)
    return list(found.values())


def _moves_with(plan: Plan, base: int) -> int:
    """What is equal for entries of the table of bases that stay as far apart as they are."""
    # A graph's arena and constants stay where they are, and numbers that steps find lie together.
    if base == 0 or base >= plan.constant_base:
        return -1
    return -2 if base >= plan.constant_base - plan.counts else base


def ordered(
    batches: Sequence[Sequence[int]], waits: Sequence[Sequence[int]]
) -> tuple[list[Sequence[int]], list[tuple[int, ...]]]:
    """Batches in an order in which they may run, near the given one, and what each waits for.

    Launches that are in none of them are done by then.
    """
    of = {launch: i for i, batch in enumerate(batches) for launch in batch}
    needs = [
        {of[other] for launch in batch for other in waits[launch] if other in of}
        for batch in batches
    ]
    sorter = TopologicalSorter(dict(enumerate(needs)))
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    place: dict[int, int] = {}
    while sorter.is_active():
        for i in sorter.get_ready():
            heappush(ready, (batches[i][0], i))
        _, i = heappop(ready)
        place[i] = len(place)
        sorter.done(i)
    order = list(place)
    return [batches[i] for i in order], [tuple(sorted(place[j] for j in needs[i])) for i in order]
