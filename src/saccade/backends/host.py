"""Host steps: an operator's NumPy reference on the plan's own memory.

The reference backend runs every step this way, through the planned arena and the planned layouts,
so that it proves them too; on other devices it is the last resort for what no kernel takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.ir import Array, BodyOp, Turn, storage
from saccade.plan import Slot, Step

__all__ = ["array_at", "run_host_step"]


def array_at(slot: Slot, memory: Sequence[Array]) -> Array:
    """A stored value as a NumPy view in logical order; `memory` is the table of bases."""
    view = slot.view
    if view.size == 0:
        return np.empty(view.shape, view.dtype.numpy)
    raw = memory[slot.ref.base].reshape(-1).view(np.uint8)
    start = slot.ref.offset
    size = view.dtype.itemsize
    # As plain integers first: NumPy has no name for some of the types of `ml_dtypes` there.
    flat = raw[start : start + view.extent * size].view(f"u{size}")
    steps = tuple(s * size for s in view.strides)
    return np.lib.stride_tricks.as_strided(flat, view.shape, steps).view(view.dtype.numpy)


def run_host_step(step: Step, memory: Sequence[Array], turns: Sequence[Turn] = ()) -> None:
    """Compute a step and store the results.

    Args:
        step: What to compute, with its operator's reference unless it has bodies that run.
        memory: The table of bases.
        turns: Run the step's bodies.

    Raises:
        LoopError: If a loop takes more turns than it may.
    """
    results: Sequence[Array]
    if turns and isinstance(step.op, BodyOp):
        results = step.op.play(turns, [array_at(slot, memory) for slot in step.read])
    else:
        results = storage.reference(step.op, [array_at(slot, memory) for slot in step.inputs])
    for slot, result in zip(step.outputs, results, strict=True):
        array_at(slot, memory)[...] = result
