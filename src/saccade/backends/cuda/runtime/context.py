"""What this process has on a GPU: its driver, memory, constants, streams and loaded code."""

from __future__ import annotations

from saccade.backends.cuda.runtime.driver import Driver

__all__ = ["DeviceContext", "open_device"]


class DeviceContext:
    """One GPU; programs of one process share it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver


def open_device(ordinal: int = 0) -> DeviceContext:
    """The GPU, opened once per process.

    Raises:
        DeviceError: If there is no GPU, no driver, or `cuda-bindings` is not installed.
    """
    raise NotImplementedError
