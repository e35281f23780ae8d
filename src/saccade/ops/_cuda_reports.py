"""What kernels on a GPU say of boxes, without anybody who waits for it.

A kernel that meets boxes of images that are not there gives zeros for them, and writes how many
there were into memory of the host, one place for each run. The next call on that GPU raises it.
With CUDA_LAUNCH_BLOCKING=1, PyTorch's variable for finding out which call it was, each call waits
for itself.
"""

from __future__ import annotations

import ctypes
import os
from itertools import count

import numpy as np

from saccade.backends.cuda.runtime.driver import CudaDriver
from saccade.ops._tensors import bad_boxes

__all__ = ["CudaReports"]

_PLACES = 4096
"""A GPU has fewer launches waiting, so that a place is read before it is written again."""
_NONE = bytes(4 * _PLACES)


class CudaReports:
    """The places of one GPU.

    Args:
        driver: Of the GPU.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        with driver.current():
            self._address = driver.pin(4 * _PLACES)
        memory = (ctypes.c_int32 * _PLACES).from_address(self._address)
        self._numbers = np.ctypeslib.as_array(memory)
        self._numbers[:] = 0
        # Whether any is there is asked before each call: this takes a fifth of NumPy's time.
        self._bytes = (ctypes.c_char * (4 * _PLACES)).from_address(self._address)
        self._names = [""] * _PLACES
        self._next = count()
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING", "") not in ("", "0")

    def place(self, family: str) -> int:
        """Address of an int32 that the GPU may write, for one run of an operator."""
        at = next(self._next) % _PLACES
        self._names[at] = family
        return self._address + 4 * at

    def settle(self, stream: int) -> None:
        """Called after each run; waits for it and raises what it reported if calls are to.

        Raises:
            OperandError: See `check`.
        """
        if self._blocking:
            with self._driver.current():
                self._driver.wait_stream(stream)
            self.check()

    def check(self) -> None:
        """Raise what was reported so far.

        Raises:
            OperandError: If there is anything; once.
        """
        if self._bytes.raw != _NONE:
            self._raise()

    def _raise(self) -> None:
        at = int(np.flatnonzero(self._numbers)[0])
        number, self._numbers[at] = int(self._numbers[at]), 0
        raise bad_boxes(self._names[at], number)
