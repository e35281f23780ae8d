"""A laid-out graph to a plan: lifetimes, aliases, offsets, references."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from saccade.errors import OutOfMemoryError, PlanError
from saccade.ir import Graph
from saccade.ir.counts import multiple_of
from saccade.ir.dim import evaluate
from saccade.kernels.base import Packing, Temp, View, interned
from saccade.kernels.bind import Binder
from saccade.layout import BufferKind, GraphLayout, StepLayout, Stored
from saccade.limits import Deadline, Limits
from saccade.locks import cached_property
from saccade.plan.offsets import LiveBlock, assign_offsets, live_bytes
from saccade.plan.rows import all_row_counts
from saccade.plan.types import Constant, Cut, Plan, Port, Ref, RowCount, Slot, Step
from saccade.waits import behind_of

__all__ = ["make"]

_Key = int | tuple[int, object]
"""What a block of the arena is of: a buffer, or work memory of a step by number."""
# Plans for other sizes have most of them in common.
_constant = interned(Constant)
_ADDRESSES = 1 << 47
"""Bytes that a process can address, on the machines that there are."""
_LATER, _MORE = 64, 32 << 20
"""Where steps run side by side: how many steps late memory is given to steps that would wait for it
alone, and how many bytes that may cost. Whoever writes where another one has read waits for it,
which is most of what small steps take (one H200, the 90 classes of SSDLite: 5.3 ms one after the
other, 3.1 side by side)."""
_UP_TO = (1 << 62, 4 << 20, 256 << 10)
"""Bytes of what memory is given late of: all of it if there is room, or what is not that large."""


def make(
    graph: Graph,
    laid: GraphLayout,
    sizes: Mapping[str, int],
    threads: int,
    isa: str,
    limits: Limits | None = None,
) -> Plan:
    """The plan of a laid-out graph.

    Args:
        graph: What was laid out.
        laid: Its steps and buffers.
        sizes: What its symbols are.
        threads: Width of the team.
        isa: Of the kernels.
        limits: How large the arena may be, and how long placing what lies in it may take; the
            default ones if None.

    Raises:
        PlanError: If the arena would be larger, or if it takes longer.
        OutOfMemoryError: If it needs more memory than there are addresses.
    """
    planner = _Planner(graph, laid, sizes, Binder(threads, alignment=laid.alignment))
    planner.lifetimes()
    planner.merge_aliases()
    limits = limits or Limits()
    arena, live = planner.offsets(Deadline("planning memory", limits))
    _check_room(arena, laid, sizes, limits)

    def with_bodies(step: Step, bodies: Sequence[tuple[Graph, GraphLayout]]) -> Step:
        if not bodies:
            return step
        plans = tuple(
            make(b, inner, b.with_bounds({}), threads, isa, limits) for b, inner in bodies
        )
        # Of one turn: nobody knows how many there are.
        return replace(step, bodies=plans, estimate=max(plan.estimate for plan in plans))

    steps = tuple(with_bodies(planner.step(i, s), s.bodies) for i, s in enumerate(laid.steps))
    names = graph.output_names or tuple(v.name for v in graph.outputs)
    plan = Plan(
        dict(sizes),
        threads,
        isa,
        _ports([v.name for v in graph.inputs], laid.inputs),
        _ports(names, laid.outputs),
        planner.constant_list(),
        steps,
        arena,
        live,
        (*graph.remarks, *laid.notes),
        laid.speeds,
        laid.exact,
        laid.searched,
        laid.refused,
        len(graph.counts),
        _cuts(graph, sizes),
        device=laid.device,
    )
    # Outputs need addresses as well, though `Limits` bounds the arena alone.
    if plan.arena_bytes + plan.output_bytes > _ADDRESSES:
        raise OutOfMemoryError.of(plan.arena_bytes, plan.output_bytes)
    return plan


def _check_room(arena: int, laid: GraphLayout, sizes: Mapping[str, int], limits: Limits) -> None:
    """Raise if what a plan needs for its own sizes is more than it may take."""
    taken = arena + sum(buffer.nbytes for buffer in laid.buffers if buffer.made is not None)
    if taken > limits.arena_bytes:
        given = ", ".join(f"{name}={size}" for name, size in sizes.items()) or "these sizes"
        raise PlanError(
            f"with {given}, intermediate values take {taken} bytes, more than "
            f"{limits.arena_bytes} (Limits.arena_bytes)"
        )


def _cuts(graph: Graph, sizes: Mapping[str, int]) -> tuple[Cut, ...]:
    """Axes of the outputs whose size steps find out."""
    # The numbers stand behind the caller's results.
    at = {c.symbol: len(graph.results) + i for i, c in enumerate(graph.counts)}
    cuts = []
    for output, value in enumerate(graph.results):
        for axis, dim in enumerate(value.shape):
            found = multiple_of(dim, at)
            if found is not None:
                cuts.append(Cut(output, axis, at[found[0]], evaluate(found[1], sizes)))
    return tuple(cuts)


def _ports(names: Sequence[str], views: Sequence[View]) -> tuple[Port, ...]:
    return tuple(Port(n, v.dtype.value, v.shape) for n, v in zip(names, views, strict=True))


@dataclass
class _Planner:
    graph: Graph
    laid: GraphLayout
    symbols: Mapping[str, int]
    binder: Binder
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    root: dict[int, int] = field(default_factory=dict)
    where: dict[int, int] = field(default_factory=dict)
    extra: dict[tuple[int, object], int] = field(default_factory=dict)
    constants: dict[tuple[tuple[str, ...], Packing | None], int] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    slots: dict[int, Slot] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Mapping[int, RowCount]:
        """For numbers of steps, which of their rows have to be computed."""
        return all_row_counts(self.graph, self.laid, self.symbols)

    def lifetimes(self) -> None:
        """First and last step that touches each arena buffer, and the last one but it."""
        for i, step in enumerate(self.laid.steps):
            for stored in (*step.inputs, *step.outputs):
                if self.laid.buffers[stored.buffer].kind is BufferKind.ARENA:
                    first, last = self.spans.get(stored.buffer, (i, i))
                    if last != i:
                        self.before[stored.buffer] = last
                    self.spans[stored.buffer] = first, i

    def merge_aliases(self) -> None:
        """Let results take the places of operands that die at their step, if kernels allow it."""
        for i, step in enumerate(self.laid.steps):
            for source, result in step.choice.aliases:
                a, b = step.inputs[source], step.outputs[result]
                if self._may_share(i, a, b) and not self._read_twice(step, source):
                    taken, kept = self._find(b.buffer), self._find(a.buffer)
                    self.root[taken] = kept
                    # The result begins with the step that its operand ends with.
                    self.spans[kept] = self.spans[kept][0], self.spans[taken][1]
                    self.before[kept] = self.before.get(taken, self.before[kept])
                    break

    def _find(self, buffer: int) -> int:
        while buffer in self.root:
            buffer = self.root[buffer]
        return buffer

    def _may_share(self, i: int, a: Stored, b: Stored) -> bool:
        buffers = self.laid.buffers
        # In place, an element is overwritten by the one that is made of it: both must lie alike.
        arena = buffers[a.buffer].kind is buffers[b.buffer].kind is BufferKind.ARENA
        if not arena or a.view != b.view or a.offset or b.offset:
            return False
        source, result = self._find(a.buffer), self._find(b.buffer)
        # The root's size stands for all that share its memory.
        return (
            source != result
            and buffers[source].nbytes == buffers[result].nbytes
            and self.spans[source][1] == i
            and self.spans[result][0] == i
            # Else a step beside it would have to be done with the operand first.
            and self.laid.beside[self.before[source]] < i
        )

    def _read_twice(self, step: StepLayout, operand: int) -> bool:
        """Whether another operand has the same memory: it may be read after it is overwritten."""
        kept = self._find(step.inputs[operand].buffer)
        others = (s for i, s in enumerate(step.inputs) if i != operand)
        return any(self._find(s.buffer) == kept for s in others)

    def offsets(self, deadline: Deadline) -> tuple[int, int]:
        """Place buffers, temporaries and scratch; the arena's size and the live bytes of them."""
        keys: list[_Key] = []
        blocks: list[LiveBlock] = []
        alignment = self.laid.alignment
        key: object
        # Nothing has memory of what a step beside it needs: one would have to wait for the other.
        for buffer, (first, last) in self.spans.items():
            if buffer not in self.root:
                keys.append(buffer)
                nbytes = self.laid.buffers[buffer].nbytes
                blocks.append(LiveBlock.aligned(nbytes, first, self.laid.beside[last], alignment))
        # Workspaces live as long as their step, and lie where no value does meanwhile.
        for i, step in enumerate(self.laid.steps):
            needed = self.binder.workspace(step.launches)
            for key, nbytes in needed.temps.items():
                keys.append((i, key))
                blocks.append(LiveBlock.aligned(nbytes, i, self.laid.beside[i], alignment))
            if needed.scratch:
                keys.append((i, "scratch"))
                blocks.append(LiveBlock.aligned(needed.scratch, i, self.laid.beside[i], alignment))
        live = live_bytes(blocks)
        placed, size = self._placed(keys, blocks, live, deadline)
        for key, offset in zip(keys, placed, strict=True):
            if isinstance(key, int):
                self.where[key] = offset
            else:
                self.extra[key] = offset
        return size, live

    def _placed(
        self, keys: Sequence[_Key], blocks: Sequence[LiveBlock], live: int, deadline: Deadline
    ) -> tuple[list[int], int]:
        """Offsets, and the arena's size, so that few steps wait for memory alone."""
        if self.laid.side_by_side:
            pairs = self._waiting(keys, blocks)
            for most in _UP_TO:
                apart = [0] * len(blocks)
                for earlier, later in pairs:
                    if blocks[earlier].nbytes <= most:
                        apart[earlier] |= 1 << later
                        apart[later] |= 1 << earlier
                if not any(apart):
                    break
                placed, size = assign_offsets(blocks, deadline, apart)
                if size <= live + _MORE:
                    return placed, size
        return assign_offsets(blocks, deadline)

    def _waiting(self, keys: Sequence[_Key], blocks: Sequence[LiveBlock]) -> list[tuple[int, int]]:
        """Blocks, an earlier and a later one, that would make a step wait for their memory alone.

        Where they share it, whoever writes the later one waits for all that touched the earlier
        one. That costs nothing where it waits for them in any case.
        """
        behind = behind_of(step.uses() for step in self.laid.steps)
        touched: dict[int, int] = {}
        written: dict[int, int] = {}
        for i, step in enumerate(self.laid.steps):
            for stored in (*step.inputs, *step.outputs):
                buffer = self._find(stored.buffer)
                touched[buffer] = touched.get(buffer, 0) | 1 << i
            for stored in step.outputs:
                buffer = self._find(stored.buffer)
                written[buffer] = written.get(buffer, -1) & behind[i]
        # Work memory is its step's.
        touch = [touched[key] if isinstance(key, int) else 1 << key[0] for key in keys]
        after = [written[key] if isinstance(key, int) else behind[key[0]] for key in keys]
        order = sorted(range(len(blocks)), key=lambda i: blocks[i].first)
        firsts = [blocks[i].first for i in order]
        found = []
        for i, block in enumerate(blocks):
            begin, end = (bisect_right(firsts, block.last + late) for late in (0, _LATER))
            found += [(i, j) for j in order[begin:end] if touch[i] & ~after[j]]
        return found

    def step(self, i: int, step: StepLayout) -> Step:
        """One step with every operand resolved."""
        inputs, outputs = (
            tuple(map(self.slot, operands)) for operands in (step.inputs, step.outputs)
        )
        places = _StepMemory(self, i, step, inputs, outputs)
        phases = [self.binder.phase(launch, places) for launch in step.launches]
        kernel, measured = step.choice.kernel, step.choice.measured
        return Step(
            step.name,
            step.op,
            inputs,
            outputs,
            kernel.name if kernel else None,
            tuple(phases),
            step.choice.cost if measured is None else measured,
            (*step.op.excuses, *map(str, step.choice.passed)),
            step.note,
            measured is not None,
            step.least_flops,
            rows=self.rows.get(i),
        )

    def packed(self, step: StepLayout, packing: Packing) -> Ref:
        """A packed constant of a step."""
        names = tuple(self._constant_name(step.inputs[n]) for n in packing.inputs)
        return self._constant(names, packing, packing.nbytes)

    def _constant_name(self, stored: Stored) -> str:
        buffer = self.laid.buffers[stored.buffer]
        assert buffer.kind is BufferKind.CONSTANT
        return buffer.name

    def _constant(self, names: tuple[str, ...], packing: Packing | None, nbytes: int) -> Ref:
        key = names, packing
        if key not in self.constants:
            self.constants[key] = len(self.constants)
            self.sizes.append(nbytes)
        # In the table of bases the arena, the inputs and the outputs come first.
        before = 1 + len(self.laid.inputs) + len(self.laid.outputs)
        return Ref(before + self.constants[key], 0, nbytes)

    def slot(self, stored: Stored) -> Slot:
        """An operand or a result; one object of the layout is asked about once."""
        # The layout keeps every one of them, so that no id comes twice.
        found = self.slots.get(id(stored))
        if found is None:
            found = self.slots[id(stored)] = Slot(self._resolve(stored), stored.view)
        return found

    def _resolve(self, stored: Stored) -> Ref:
        buffer = self.laid.buffers[stored.buffer]
        nbytes = stored.view.extent * stored.view.dtype.itemsize
        if buffer.kind is BufferKind.ARENA:
            return Ref(0, self.where[self._find(stored.buffer)] + stored.offset, nbytes)
        if buffer.kind is BufferKind.CONSTANT:
            packing, names = buffer.made or (None, (buffer.name,))
            base = self._constant(names, packing, buffer.nbytes).base
            return Ref(base, stored.offset, nbytes)
        first = 1 if buffer.kind is BufferKind.INPUT else 1 + len(self.laid.inputs)
        return Ref(first + buffer.index, stored.offset, nbytes)

    def constant_list(self) -> tuple[Constant, ...]:
        """The constants that were referred to, in the order of their bases."""
        return tuple(
            _constant(names, packing, size)
            for (names, packing), size in zip(self.constants, self.sizes, strict=True)
        )


class _StepMemory(NamedTuple):
    """Memory of one step: of the arena, of the caller, of constants."""

    planner: _Planner
    number: int
    step: StepLayout
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]

    def input(self, index: int) -> Ref:
        return self.inputs[index].ref

    def output(self, index: int) -> Ref:
        return self.outputs[index].ref

    def packed(self, packing: Packing) -> Ref:
        return self.planner.packed(self.step, packing)

    def temp(self, operand: Temp) -> Ref:
        return Ref(0, self.planner.extra[self.number, operand.index], operand.nbytes)

    def scratch(self, before: int, nbytes: int) -> Ref:
        return Ref(0, self.planner.extra[self.number, "scratch"] + before, nbytes)
