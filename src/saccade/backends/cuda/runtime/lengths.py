"""Results whose size the run itself found out, cut on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from saccade.backends.cuda.runtime.array import DeviceArray
from saccade.ir import DType

if TYPE_CHECKING:
    from saccade.backends.cuda.runtime.context import DeviceContext
    from saccade.plan.types import Cut

__all__ = ["NUMBER_BYTES", "cut_on_device", "numbers_array"]

NUMBER_BYTES = 128
"""From one number to the next, a line of the caches: thousands of programs read one while launches
beside them write others (RetinaNet, one H200: 2545 µs, 2690 with 16 bytes)."""


def numbers_array(device: DeviceContext, count: int, stream: int) -> DeviceArray | None:
    """For what steps find out, int64 [count, 16]: a number at the beginning of each line.

    Raises:
        OutOfMemoryError: If the GPU has no room.
    """
    if not count:
        return None
    return DeviceArray.empty(device, (count, NUMBER_BYTES // 8), DType.I64, stream)


def cut_on_device(
    results: Sequence[DeviceArray], numbers: DeviceArray | None, cuts: Sequence[Cut], stream: int
) -> tuple[DeviceArray, ...]:
    """The results, each as long as the numbers that were found say.

    Waits for the stream if there is anything to cut. What is cut is copied: the rest of its memory,
    sized for the most that there could be, goes.

    Args:
        results: Of a plan, without its numbers.
        numbers: See `numbers_array`; not None where there is anything to cut.
        cuts: Which axes are how long.
        stream: That they were written on.
    """
    found = list(results)
    # All at once, as each copy waits for the stream.
    sizes = [] if numbers is None or not cuts else numbers.numpy()[:, 0].tolist()
    for cut in cuts:
        whole = found[cut.output]
        number = sizes[cut.count - len(results)]
        size = min(number * cut.factor, whole.shape[cut.axis])
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
