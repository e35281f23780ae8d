"""One run of a program whose later steps take as long as there are rows.

A run stops where a number has become known that counts rows of later steps, and goes on with
arguments for about as many (`fewer_rows`). Positions in a segment are numbers of phases, or of
steps on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.run_state import NativeJob
    from saccade.backends.cpu.runtime.tables import CountedPoint
    from saccade.ir import Array

__all__ = ["CountedRun", "RowArguments", "rounded"]


def rounded(number: int) -> int:
    """What arguments are made for in place of a number: a quarter more at most.

    So there are few of them, four for each doubling, and each number up to eight has its own.
    """
    step = 1 << max((number - 1).bit_length() - 3, 0) if number else 1
    return -(-number // step) * step


@dataclass(frozen=True, slots=True)
class RowArguments:
    """What steps run with for some number of rows.

    Attributes:
        words: The argument blocks of their phases, int64.
        blocks: For each phase its segment, its position, and the address of its block in `words`.
        idle: Phases that have nothing to do, by segment and position.
        zeros: What fills memory with zeros before a segment's position is reached, given the table
            of bases as arrays.
    """

    words: Array
    blocks: tuple[tuple[int, int, int], ...]
    idle: frozenset[tuple[int, int]]
    zeros: Mapping[tuple[int, int], tuple[Callable[[Sequence[Array]], None], ...]]


Arguments = Callable[[int, int], RowArguments | None]
"""For the number of a counted point and a number of rows; None where all rows are computed."""


class CountedRun:
    """One run.

    Args:
        points: Where numbers become known, in order.
        jobs: Of the run's state, by segment. Arguments of earlier runs may be in place.
        outputs: The program's, with the numbers.
        memory: The table of bases as arrays.
        arguments: Gives those for a number, which takes a while the first time.
    """

    def __init__(
        self,
        points: Sequence[CountedPoint],
        jobs: Sequence[NativeJob | None],
        outputs: Sequence[Array],
        memory: Sequence[Array],
        arguments: Arguments,
    ) -> None:
        self._points, self._jobs, self._outputs = points, jobs, outputs
        self._memory, self._arguments = memory, arguments
        self._taken: list[RowArguments] = []

    def pieces(self, segment: int, length: int) -> Iterator[tuple[int, int]]:
        """What to run of a segment in one go, from one position to another, in order."""
        at = 0
        while True:
            self._arrive(segment, at)
            if at >= length:
                return
            if any((segment, at) in one.idle for one in self._taken):
                job = self._jobs[segment]
                assert job is not None
                job.skip(at)
                at += 1
                continue
            end = min((stop for stop in self._stops(segment) if at < stop), default=length)
            yield at, min(end, length)
            at = end

    def _stops(self, segment: int) -> Iterator[int]:
        for point in self._points:
            if point.segment == segment:
                yield point.at
        for one in self._taken:
            yield from (at for where, at in (*one.zeros, *one.idle) if where == segment)

    def _arrive(self, segment: int, at: int) -> None:
        """Do what is to be done before a position."""
        for one in self._taken:
            for zeros in one.zeros.get((segment, at), ()):
                zeros(self._memory)
        for number, point in enumerate(self._points):
            if (point.segment, point.at) == (segment, at):
                found = int(self._outputs[point.source].reshape(-1)[0])
                self._take(number, self._arguments(number, rounded(found)))

    def _take(self, number: int, arguments: RowArguments | None) -> None:
        """Put arguments in place of those that an earlier run of the state left."""
        for job in self._jobs:
            if job is not None:
                job.restore(number)
        if arguments is None:
            return
        self._taken.append(arguments)
        for segment, at, address in arguments.blocks:
            job = self._jobs[segment]
            assert job is not None
            job.replace(number, at, address)
