"""Launches that are alike and wait for nothing in between, as one: batches.

A detector ranks the boxes of each of its classes by the same few steps, each of which leaves most
of a GPU idle, and of which the GPU begins one in two microseconds, side by side or not. Code whose
grid has rows (`ahead.ROWS`) runs all classes' at once: a row is a launch, whose pointers lie where
a table says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from saccade.backends.cuda.beside import whole_plans
from saccade.backends.cuda.cubins import CodeKey, code_key, common_alignment
from saccade.backends.cuda.runtime.batches import batches_of
from saccade.kernels.cuda import kernel_named

if TYPE_CHECKING:
    from saccade.plan import Plan, Step

__all__ = ["keys_of", "plan_keys", "whole_keys"]

_LEAST = 4
"""Launches that are worth a table, which their programs read before they begin."""


def keys_of(steps: Sequence[Step]) -> list[CodeKey]:
    """What code each phase is asked for by, where they are launched one by one."""
    return [
        code_key(step.kernel, phase)
        for step in steps
        if step.kernel is not None
        for phase in step.phases
    ]


def plan_keys(plan: Plan) -> list[CodeKey]:
    """The same of a plan's phases, with rows where launches are to be a batch."""
    keys = keys_of(plan.steps)
    numbers = [
        number
        for number, phase in enumerate(phase for step in plan.steps for phase in step.phases)
        if phase.chunks
    ]
    # One code does for all, whatever is known of some operands' places.
    launched = [keys[number]._replace(aligned=()) for number in numbers]
    counts = Counter(launched)
    # What waits for what takes longer than all else here.
    if max(counts.values(), default=0) < _LEAST:
        return keys
    alike = [
        key if counts[key] >= _LEAST and _may_have_rows(key.kernel, key.config) else None
        for key in launched
    ]
    found = list(keys)
    for batch in batches_of(plan, alike):
        if len(batch) >= _LEAST:
            each = [numbers[launch] for launch in batch]
            aligned = common_alignment([keys[number].aligned for number in each])
            for number in each:
                found[number] = keys[number]._replace(aligned=aligned, rows=True)
    return found


def whole_keys(plan: Plan) -> list[CodeKey]:
    """The same of a plan and of those that are run for the bodies in it, see `whole_plans`."""
    return [key for part in whole_plans(plan) for key in plan_keys(part)]


# Detectors have hundreds of launches of the same code, at every size.
@lru_cache(maxsize=4096)
def _may_have_rows(kernel: str, config: Hashable) -> bool:
    entry = kernel_named(kernel).entry(config)
    # A tensor map is a parameter, of which there would have to be one for each row.
    return not entry.descriptors and not entry.gluon
