"""The caller's arrays for devices that work in this machine's memory.

NumPy's, PyTorch's, anything with `__dlpack__`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from saccade.backends.inputs import host_array

if TYPE_CHECKING:
    from saccade.ir import Array
    from saccade.program import DeviceBuffer, Result
    from saccade.signature import TensorInfo

__all__ = ["HostArrays"]


class HostArrays:
    """Inputs are read where they are; results are NumPy arrays, or tensors if an input was one."""

    queued = 1

    def take(self, info: TensorInfo, value: object) -> Array:
        """Elements of the input's type and shape, one after the other in memory.

        Raises:
            InputError: If it is no array, or of another dtype, shape or device.
            OutOfMemoryError: If it has to be copied and there is no memory.
        """
        return host_array(info, value)

    def give(self, results: Sequence[DeviceBuffer], given: Iterable[object]) -> tuple[Result, ...]:
        """PyTorch tensors if one of the inputs was one, else NumPy arrays; without a copy."""
        arrays = cast("Sequence[Array]", results)  # by the programs that took ours
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(v, torch.Tensor) for v in given):
            return tuple(torch.from_numpy(r) for r in arrays)
        return tuple(arrays)

    def clock(self, call: Callable[[], object], runs: int) -> float:
        """Milliseconds of a call by the wall's clock."""
        start = time.perf_counter()
        for _ in range(runs):
            call()
        return (time.perf_counter() - start) * 1e3 / runs
