"""What the caller gets of outputs whose size the run itself found out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from saccade.ir import Array

__all__ = ["Cuts", "cut_outputs"]

Cuts = Sequence[tuple[int, int, int, int]]
"""Output, its axis, the output that holds the number found, elements for each of that number."""


def cut_outputs(outputs: Sequence[Array], counts: int, cuts: Cuts) -> tuple[Array, ...]:
    """The outputs without the last `counts` of them, each as long as these say.

    What is cut is copied: the rest of its memory, sized for the most that there could be, goes.
    """
    found = list(outputs[: len(outputs) - counts])
    for output, axis, count, factor in cuts:
        size = min(int(outputs[count][0]) * factor, found[output].shape[axis])
        found[output] = found[output][(slice(None),) * axis + (slice(size),)]
    for output in {cut[0] for cut in cuts}:
        found[output] = np.array(found[output], order="C")
    return tuple(found)
