"""What calls of operators are timed by: the host's clock, or a GPU's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

__all__ = ["Clock", "GpuClock", "HostClock"]

_LEAST_RUNS = 2
_FLUSHED = 256 << 20  # bytes: five times the L2 of an H200
_BETWEEN = 16  # calls between two waits for the GPU: fewer launches than it takes before calls wait
_WARM = 3

Function = Callable[[], Any]


class Clock(Protocol):
    """Gives the times of some calls."""

    def prepared(self, function: Function) -> Function:
        """What `turn` is to call for a function."""

    def turn(self, function: Function, seconds: float) -> list[float]:
        """Milliseconds of each run."""


class HostClock:
    """From a call to its return; results are freed outside the clock.

    Args:
        settle: Waits for what calls put off, now and then, outside the clock.
    """

    def __init__(self, settle: Callable[[], None] | None = None) -> None:
        self._settle = settle

    def prepared(self, function: Function) -> Function:
        """The function itself."""
        return function

    def turn(self, function: Function, seconds: float) -> list[float]:
        """Milliseconds of each run."""
        found: list[float] = []
        until = time.perf_counter() + seconds
        while len(found) < _LEAST_RUNS or time.perf_counter() < until:
            began = time.perf_counter()
            result = function()
            found.append(1e3 * (time.perf_counter() - began))
            del result
            if self._settle is not None and not len(found) % _BETWEEN:
                self._settle()
        return found


class GpuClock:
    """By the GPU, between two events, with nothing of the operands in its cache.

    Functions are replayed as CUDA graphs; those that wait for the GPU cannot be, and are called.
    """

    def __init__(self) -> None:
        self._flushed = torch.empty(_FLUSHED, dtype=torch.uint8, device="cuda")

    def prepared(self, function: Function) -> Function:
        """A replay of the function; itself where it waits for the GPU."""
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM):
                function()
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                function()
        except RuntimeError:
            torch.cuda.synchronize()
            return function
        return graph.replay

    def turn(self, function: Function, seconds: float) -> list[float]:
        """Milliseconds of each run."""
        found: list[float] = []
        until = time.perf_counter() + seconds
        while len(found) < _LEAST_RUNS or time.perf_counter() < until:
            pairs = []
            for _ in range(_BETWEEN):
                self._flushed.zero_()
                start, end = _event(), _event()
                start.record()
                result = function()
                end.record()
                pairs.append((start, end))
                del result
            torch.cuda.synchronize()
            found += [start.elapsed_time(end) for start, end in pairs]
        return found


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
