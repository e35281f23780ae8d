"""Which parts of a program wait for which: those whose memory they read or write anew.

Parts (phases, launches, steps) that do not depend on each other may run side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "Lane",
    "Use",
    "behind_of",
    "between_meetings",
    "depths_of",
    "meetings",
    "waits_of",
]


class Lane(NamedTuple):
    """Of every `pitch` bytes `width`, from `begin` on: channels that are a part of wider pixels."""

    pitch: int
    begin: int
    width: int

    def meets(self, other: Lane) -> bool:
        """Whether another lane may have bytes of this one; of another pitch it may."""
        apart = (other.begin - self.begin) % self.pitch
        same = self.pitch == other.pitch
        return not same or apart < self.width or apart + other.width > self.pitch


class Use(NamedTuple):
    """Bytes from `start` to `stop` of memory number `base`, which are read or else written.

    All of them, or those of a lane.
    """

    base: int
    start: int
    stop: int
    reads: bool
    lane: Lane | None = None


def waits_of(parts: Iterable[Iterable[Use]]) -> list[tuple[int, ...]]:
    """For each part the earlier ones that it has to wait for, without those that these wait for.

    Args:
        parts: What each uses, in an order in which they may run one after the other.
    """
    return [waits for waits, _ in _following(parts)]


def behind_of(parts: Iterable[Iterable[Use]]) -> list[int]:
    """For each part a bit for every one that it comes after; see `waits_of`."""
    return [after for _, after in _following(parts)]


def depths_of(waits: Iterable[Sequence[int]]) -> list[int]:
    """How many parts are on the longest way to each; parts of one depth wait for none of it.

    Args:
        waits: See `waits_of`.
    """
    depths: list[int] = []
    for earlier in waits:
        depths.append(1 + max((depths[other] for other in earlier), default=-1))
    return depths


def _following(parts: Iterable[Iterable[Use]]) -> Iterator[tuple[tuple[int, ...], int]]:
    """For each part whom it waits for, and a bit for every one that it comes after."""
    memory = defaultdict[int, _Touched](_Touched)
    behind: list[int] = []
    for number, uses in enumerate(parts):
        after, kept = 0, []
        for other in sorted(_touch(memory, uses, number), reverse=True):
            if not after >> other & 1:
                kept.append(other)
                after |= behind[other] | 1 << other
        behind.append(after)
        yield tuple(reversed(kept)), after


def meetings(parts: Iterable[Iterable[Use]]) -> list[bool]:
    """For each part whether a team that runs them in order meets before it.

    Between two meetings no part waits for another one, so that a thread that finds nothing left to
    do in one goes on with the next.

    Args:
        parts: As of `waits_of`, which says more, and takes longer.
    """
    memory = defaultdict[int, _Touched](_Touched)
    found, since = [], 0
    for number, uses in enumerate(parts):
        meets = max(_touch(memory, uses, number), default=-1) >= since
        if meets:
            since = number
        found.append(meets)
    return found


def between_meetings(meets: Sequence[bool]) -> Iterator[range]:
    """The parts by number, cut before those that a team meets before."""
    cuts = [0, *(i for i, met in enumerate(meets) if met and i), len(meets)]
    for first, end in pairwise(cuts):
        yield range(first, end)


def _touch(memory: defaultdict[int, _Touched], uses: Iterable[Use], number: int) -> set[int]:
    """Note what a part does, and whom it waits for."""
    found: set[int] = set()
    for use in uses:
        if use.start < use.stop:
            memory[use.base].touch(use, number, found)
    found.discard(number)
    return found


@dataclass
class _Touched:
    """Bytes by who touched them last: cut where that changes.

    `starts` are sorted; a piece goes from its start to the next one. `lanes` are who touched parts
    of a piece since all of it was written.
    """

    starts: list[int] = field(default_factory=lambda: [0])
    writers: list[int] = field(default_factory=lambda: [-1])
    readers: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    lanes: list[tuple[tuple[int, bool, Lane], ...]] = field(default_factory=lambda: [()])

    def _cut(self, at: int) -> int:
        """The piece that begins here, which may be a new one."""
        i = bisect_right(self.starts, at) - 1
        if self.starts[i] == at:
            return i
        self.starts.insert(i + 1, at)
        self.writers.insert(i + 1, self.writers[i])
        self.readers.insert(i + 1, self.readers[i])
        self.lanes.insert(i + 1, self.lanes[i])
        return i + 1

    def touch(self, use: Use, number: int, found: set[int]) -> None:
        """Note what a part does, and add whom it waits for."""
        first, end = self._cut(use.start), self._cut(use.stop)
        for i in range(first, end):
            if self.writers[i] >= 0:
                found.add(self.writers[i])
            if self.lanes[i] or use.lane is not None:
                self._touch_lanes(i, use, number, found)
            if not use.reads:
                found.update(self.readers[i])
            elif use.lane is None and self.readers[i][-1:] != (number,):
                self.readers[i] = (*self.readers[i], number)
        if not use.reads and use.lane is None:
            self.starts[first:end] = [use.start]
            self.writers[first:end] = [number]
            self.readers[first:end] = [()]
            self.lanes[first:end] = [()]

    def _touch_lanes(self, i: int, use: Use, number: int, found: set[int]) -> None:
        """The same of a piece that lanes were touched of, or one is."""
        lane = use.lane
        for other, reads, theirs in self.lanes[i]:
            if not (reads and use.reads) and (lane is None or lane.meets(theirs)):
                found.add(other)
        if lane is not None:
            # Whoever writes a lane anew waits for all that touched it, and is waited for instead.
            before = (one for one in self.lanes[i] if use.reads or one[2] != lane)
            self.lanes[i] = (*before, (number, use.reads, lane))
