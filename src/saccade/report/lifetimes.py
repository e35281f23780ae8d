"""Who makes what each step reads, and how long it lies in the arena; from the memory of a plan.

Plans know bytes, not values. A step's result lives from the step that writes it to the last one
that reads any of its bytes. Several results may lie in one buffer side by side, as the operands of
a Concat do: their bytes take turns there, and only those that share a byte end each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from saccade.kernels.base import View
from saccade.plan import Plan, Role, Slot, Step
from saccade.plan.text import called
from saccade.report.types import ArenaBlock

__all__ = ["Lifetimes", "lifetimes"]


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes of one buffer: `width` of every `pitch` from `start` on, up to `end`."""

    base: int
    start: int
    end: int
    width: int
    pitch: int

    def meets(self, other: _Bytes) -> bool:
        """Whether both have a byte in common."""
        if not self.overlaps(other):
            return False
        if self.pitch != other.pitch:
            return True
        ahead = (other.start - self.start) % self.pitch
        return ahead < self.width or ahead + other.width > self.pitch

    def overlaps(self, other: _Bytes) -> bool:
        """Whether one begins before the other ends, whichever bytes each has in between."""
        return self.base == other.base and self.start < other.end and other.start < self.end


@dataclass(slots=True, eq=False)
class _Result:
    """A result of step `first`, read up to step `last`; `ended` where another takes its place."""

    bytes: _Bytes
    first: int
    last: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """What the memory of a plan tells.

    Attributes:
        reads: For each step the steps that made its operands, each once, in order; -1 - i for
            input i of the plan.
        blocks: Of the arena.
    """

    reads: tuple[tuple[int, ...], ...]
    blocks: tuple[ArenaBlock, ...]


def lifetimes(plan: Plan) -> Lifetimes:
    """Walk the steps of a plan."""
    known: list[_Result] = []
    live: list[_Result] = []
    reads = []
    for i, step in enumerate(plan.steps):
        sources: list[int] = []
        for slot in step.inputs:
            place = _bytes(slot)
            if 1 <= place.base < plan.output_base:
                sources.append(-place.base)
                continue
            for result in live:
                if result.bytes.meets(place):
                    result.last = i
                    sources.append(result.first)
        reads.append(tuple(dict.fromkeys(sources)))
        live = _written(i, step, live, known)
    blocks = [*_values(plan, known), *_workspaces(plan)]
    return Lifetimes(tuple(reads), tuple(sorted(blocks, key=lambda b: (b.first, b.offset))))


def _written(i: int, step: Step, live: Sequence[_Result], known: list[_Result]) -> list[_Result]:
    """What lives once a step has written its results, which are added to all that are known."""
    staying = list(live)
    for slot in step.outputs:
        place = _bytes(slot)
        for result in staying:
            # In place: the operand is gone where its result begins.
            result.ended = result.bytes.meets(place)
            if result.ended and result.last == i:
                result.last = max(result.first, i - 1)
        staying = [result for result in staying if not result.ended]
        fresh = _Result(place, i, i)
        known.append(fresh)
        staying.append(fresh)
    return staying


def _bytes(slot: Slot) -> _Bytes:
    base, start, nbytes = slot.ref
    width, pitch = _run(slot.view)
    return _Bytes(base, start, start + nbytes, width, pitch)


def _run(view: View) -> tuple[int, int]:
    """Bytes that follow each other, and how far apart such runs begin; all of it where one does."""
    item = view.dtype.itemsize
    # What fills a pixel is written with its channels.
    run, room = item, view.room * item
    axes = sorted(
        (abs(s) * item, n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1
    )
    for step, size in axes:
        if step > run:
            run += room
            room = 0
        if step > run:
            return run, step
        run = max(run, step * size)
    whole = max(1, view.extent * item)
    return whole, whole


def _values(plan: Plan, known: Sequence[_Result]) -> Iterator[ArenaBlock]:
    """A block for each result, one for those that lie side by side at the same time."""
    for group in _groups([one for one in known if one.bytes.base == 0 and one.bytes.width]):
        start = min(one.bytes.start for one in group)
        end = max(one.bytes.end for one in group)
        last = max(one.last for one in group)
        label = called(plan.steps[group[0].first])
        if len(group) > 1:
            label = f"{label} and {len(group) - 1} more, side by side"
        yield ArenaBlock(label, "value", start, end - start, group[0].first, last, len(group))


def _groups(results: Sequence[_Result]) -> list[list[_Result]]:
    """Those whose bytes' ranges overlap while they live together; in the order of their steps."""
    groups: list[list[_Result]] = []
    live: list[list[_Result]] = []
    for one in sorted(results, key=lambda result: result.first):
        live = [group for group in live if any(member.last >= one.first for member in group)]
        beside = [group for group in live if any(_at_once(member, one) for member in group)]
        joined = [*(member for group in beside for member in group), one]
        joined.sort(key=lambda result: result.first)
        live = [*(group for group in live if group not in beside), joined]
        groups = [*(group for group in groups if group not in beside), joined]
    return groups


def _at_once(a: _Result, b: _Result) -> bool:
    return a.first <= b.last and b.first <= a.last and a.bytes.overlaps(b.bytes)


def _workspaces(plan: Plan) -> Iterator[ArenaBlock]:
    """What steps need while they run: temporaries, and scratch, which phases share."""
    for i, step in enumerate(plan.steps):
        label = f"{called(step)}: workspace"
        for start, end in _joined(sorted(_work(step, plan.threads))):
            yield ArenaBlock(label, "workspace", start, end - start, i, i, 1)


def _work(step: Step, threads: int) -> Iterator[tuple[int, int]]:
    for phase in step.phases:
        for argument in phase.arguments:
            if argument.ref.base == 0 and argument.role in (Role.TEMP, Role.SCRATCH):
                # Scratch is given by its size for one thread.
                each = threads if argument.role is Role.SCRATCH else 1
                yield argument.ref.offset, argument.ref.offset + argument.ref.nbytes * each


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted spans, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
