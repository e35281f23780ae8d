"""Results whose size the run itself found out, cut on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from saccade.backends.cuda.runtime.array import DeviceArray

if TYPE_CHECKING:
    from saccade.plan.types import Cut

__all__ = ["cut_on_device"]


def cut_on_device(
    results: Sequence[DeviceArray], counts: int, cuts: Sequence[Cut], stream: int
) -> tuple[DeviceArray, ...]:
    """The results without the last `counts` of them, each as long as these say.

    Waits for the stream if there is anything to cut. What is cut is copied: the rest of its memory,
    sized for the most that there could be, goes.
    """
    found = list(results[: len(results) - counts])
    # Once for each count, as every one of these copies waits for the stream.
    sizes = {count: int(results[count].numpy().flat[0]) for count in {cut.count for cut in cuts}}
    for cut in cuts:
        whole = found[cut.output]
        size = min(sizes[cut.count] * cut.factor, whole.shape[cut.axis])
        if size != whole.shape[cut.axis]:
            found[cut.output] = _beginning(whole, cut.axis, size, stream)
    return tuple(found)


def _beginning(whole: DeviceArray, axis: int, size: int, stream: int) -> DeviceArray:
    """The first elements along an axis."""
    outer, inner = prod(whole.shape[:axis]), prod(whole.shape[axis + 1 :]) * whole.kind.itemsize
    shape = (*whole.shape[:axis], size, *whole.shape[axis + 1 :])
    part = DeviceArray.empty(whole.device, shape, whole.kind, stream)
    if part.nbytes:
        rows = (outer, size * inner, whole.shape[axis] * inner)
        whole.device.driver.copy_rows(part.address, whole.address, rows, stream)
    return part
