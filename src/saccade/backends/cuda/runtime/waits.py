"""Which launches of a program wait for which: those whose memory they read or write anew.

Launches that do not depend on each other may run side by side. What a launch reads and writes is
told by its arguments; an operand counts with all bytes from its first to its last element.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.plan import Phase, Ref

__all__ = ["waits_of"]

_PACKED, _READ = "packed", "input"  # roles


def waits_of(phases: Sequence[Phase]) -> list[tuple[int, ...]]:
    """For each launch the earlier ones that it has to wait for, without those that these wait for.

    Args:
        phases: In an order in which they may run one after the other.
    """
    memory = defaultdict[int, _Touched](_Touched)
    behind: list[int] = []  # for each launch a bit for every one that it comes after
    waits = []
    for number, phase in enumerate(phases):
        found: set[int] = set()
        for _, role, ref in phase.arguments:
            # What is packed is written before any run.
            if role.value != _PACKED and ref.nbytes:
                memory[ref.base].touch(ref, number, found, reads=role.value == _READ)
        found.discard(number)
        after, kept = 0, []
        for other in sorted(found, reverse=True):
            if not after >> other & 1:
                kept.append(other)
                after |= behind[other] | 1 << other
        behind.append(after)
        waits.append(tuple(reversed(kept)))
    return waits


@dataclass
class _Touched:
    """Bytes by who touched them last: cut where that changes.

    `starts` are sorted; a part goes from its start to the next one.
    """

    starts: list[int] = field(default_factory=lambda: [0])
    writers: list[int] = field(default_factory=lambda: [-1])
    readers: list[tuple[int, ...]] = field(default_factory=lambda: [()])

    def _cut(self, at: int) -> int:
        """The part that begins here, which may be a new one."""
        i = bisect_right(self.starts, at) - 1
        if self.starts[i] == at:
            return i
        self.starts.insert(i + 1, at)
        self.writers.insert(i + 1, self.writers[i])
        self.readers.insert(i + 1, self.readers[i])
        return i + 1

    def touch(self, ref: Ref, number: int, found: set[int], *, reads: bool) -> None:
        """Note what a launch does, and add whom it waits for."""
        first = self._cut(ref.offset)
        end = self._cut(ref.offset + ref.nbytes)
        for i in range(first, end):
            if self.writers[i] >= 0:
                found.add(self.writers[i])
            if not reads:
                found.update(self.readers[i])
            elif self.readers[i][-1:] != (number,):
                self.readers[i] = (*self.readers[i], number)
        if not reads:
            self.starts[first:end] = [ref.offset]
            self.writers[first:end] = [number]
            self.readers[first:end] = [()]
