"""What `FakeDriver` keeps: code, streams, events, graphs."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from saccade.backends.cuda.ahead import ROWS
from saccade.backends.cuda.runtime.driver import KernelLaunch

__all__ = ["FakeCode", "FakeEvent", "FakeStream", "HostKernel", "PlayedGraph", "latest_first"]

HostKernel = Callable[[int, Mapping[str, int]], None]
"""A kernel in Python: gets the programs of the grid, and addresses and integers by name."""


@dataclass(frozen=True)
class FakeCode:
    """What the fake loads: parameters, how many of them are pointers, and what they go to.

    In front of them are so many words of tensor maps, their sizes and strides, which none reads.
    """

    parameters: tuple[str, ...]
    pointers: int
    kernel: HostKernel
    mapped: int = 0

    def rows(
        self, count: int, given: Mapping[str, int], live: Callable[[int, int], None]
    ) -> Iterator[dict[str, int]]:
        """What each row of a grid is given, where the launch is given this.

        Args:
            count: Of rows.
            given: Addresses and integers by name.
            live: Called with an address and bytes that are read there.
        """
        plain = dict(given)
        table = plain.pop(ROWS, 0)
        assert bool(table) == (ROWS in self.parameters) and (table or count == 1)
        for row in range(count):
            at = table + 8 * self.pointers * row
            moved = dict(plain)
            for i, name in enumerate(self.parameters[: self.pointers] if table else ()):
                live(at + 8 * i, 8)
                moved[name] += ctypes.c_int64.from_address(at + 8 * i).value
            yield moved


class FakeStream:
    """Work that waits."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.done = 0
        self.busy = 0  # how many of its pieces wait for other streams'

    @property
    def end(self) -> int:
        return self.done + len(self.waiting)


@dataclass
class FakeEvent:
    at: tuple[int, int] | None = None  # stream, how much of it has to be done
    time: float = 0.0
    freed: bool = False


@dataclass
class PlayedGraph:
    launches: list[KernelLaunch]
    order: tuple[int, ...]
    last: tuple[int, int] | None = None  # as of an event


def latest_first(waits: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The order of launches, which wait for some earlier ones, that is least like the given one."""
    left = [len(earlier) for earlier in waits]
    behind: list[list[int]] = [[] for _ in waits]
    for number, earlier in enumerate(waits):
        for other in earlier:
            behind[other].append(number)
    ready = [number for number, count in enumerate(left) if not count]
    order = []
    while ready:
        order.append(ready.pop(ready.index(max(ready))))
        for number in behind[order[-1]]:
            left[number] -= 1
            if not left[number]:
                ready.append(number)
    return tuple(order)
