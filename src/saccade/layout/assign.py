"""Layout of a whole graph for given sizes.

Storage and kernels are chosen together (`search`), then written down: places in buffers, steps,
reorders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from saccade.ir import BodyOp, Dim, Graph, Node, Op, Value
from saccade.kernels.base import View
from saccade.layout.buffers import BufferBuilder
from saccade.layout.fitting import Fit, Fitter
from saccade.layout.formats import formats
from saccade.layout.order import interleaved
from saccade.layout.search import Storage, search
from saccade.layout.select import Available, Decisions, Selector
from saccade.layout.sizes import (
    add_shapes,
    bound,
    check_empty,
    check_guards,
    check_size_constants,
    fitted,
    shapes_of,
)
from saccade.layout.storage import place
from saccade.layout.types import BufferKind, GraphLayout, Pair, Passed, StepLayout, Stored, Timings
from saccade.layout.views import channels_last, part, row_major
from saccade.limits import Deadline, Limits
from saccade.opdefs import BitCast, Concat, Move, SizeConstant

if TYPE_CHECKING:
    from saccade.backend import Backend

__all__ = ["assign"]

_ELSEWHERE = "its operand lives elsewhere"
_FASTER = "its readers are faster with it, by more than the copy takes"
_WORTH = 1.05  # times what one step takes are what two have to take: estimates are no better


def assign(
    graph: Graph,
    sizes: Mapping[str, int],
    backend: Backend,
    *,
    threads: int,
    exact: bool = False,
    available: Available | None = None,
    timings: Timings | None = None,
    limits: Limits | None = None,
    reuse: bool = False,
    decisions: Decisions | None = None,
) -> GraphLayout:
    """Lay out `graph` for the given sizes of its symbols.

    Args:
        graph: The model.
        sizes: Of its symbols.
        backend: Whose kernels and fusions.
        threads: Width of the team.
        exact: Whether only algorithms without extra rounding may be taken.
        available: Says which code exists; all of it if None.
        timings: What was measured.
        limits: The default ones if None.
        reuse: Whether two steps with code may take the place of one without that is faster but
            gives the same bits.
        decisions: Of other sizes of the model.

    Raises:
        PlanError: If the sizes make a shape negative, divide by zero, or operands do not fit; if
            a value would be larger than `limits` allow, or if it takes longer.
    """
    limits = limits or Limits()
    deadline = Deadline("planning", limits)
    shapes = shapes_of(graph, sizes, limits)
    check_empty(graph, shapes, sizes)
    check_size_constants(graph, sizes, limits)
    # One for fusions and layout: what both ask about is answered once.
    asked = Selector(backend, available, timings, decisions)
    fitter = Fitter(asked, backend, threads, exact, deadline)
    lowered, graph = graph, backend.fusions.fuse(graph, shapes, fitter.takes(graph))
    add_shapes(shapes, graph, sizes)
    pairs = backend.fusions.pairs(graph, shapes, tuned=timings is not None)
    # A pair's node is not in the graph: it takes the place of two only where that is faster.
    ops = bound(graph, (pair.both for pair in pairs.joint.values()), sizes)
    check_guards(graph, fitted(lowered, graph), ops, shapes, sizes)
    deadline.check()
    chosen = search(graph, shapes, ops, formats(graph, backend.preferred), fitter)
    places = place(graph, shapes, ops, chosen.nhwc, backend.preferred)
    work = _Assignment(graph, ops, places, chosen, fitter, pairs.joint, dict(pairs.apart), reuse)
    work.nodes()
    work.outputs()
    alike = partial(assign, backend=backend, threads=threads, exact=exact, reuse=reuse)
    work.bodies(partial(alike, available=available, timings=timings, limits=limits))
    # The caller's arrays are row-major, however their values are stored.
    dense = {v: row_major(v.dtype, shapes[v]) for v in (*graph.inputs, *graph.outputs)}
    # By now all calls were asked about, so that it is known which tuned choices found no use.
    steps, beside = interleaved(work.steps, threads, side_by_side=backend.side_by_side)
    return GraphLayout(
        steps,
        tuple(places.buffers),
        tuple(dense[v] for v in graph.inputs),
        tuple(dense[v] for v in graph.outputs),
        (*chosen.notes, *places.notes),
        backend.speeds, exact, chosen.searched,
        () if timings is None else timings.refusals([step.name for step in work.steps]),
        device=backend.device, alignment=backend.alignment, side_by_side=backend.side_by_side,
        beside=beside,
    )  # fmt: skip


@dataclass
class _Assignment:
    """Steps under construction.

    Attributes:
        graph: What is laid out.
        ops: Its operators, bound.
        places: Where values live.
        chosen: Which values exist in another order too.
        fitter: Finds kernels.
        pairs: What may be one step, by the first node.
        apart: Why nodes are steps of their own that could be half of another one.
        reuse: As in `assign`.
        instead: The node of both for the second one of each pair that became one step.
        steps: So far.
        converted: Copies of stored values in other storage.
        inside: The graphs inside of operators, by number of the step.
    """

    graph: Graph
    ops: Mapping[Node, Op]
    places: BufferBuilder
    chosen: Storage
    fitter: Fitter
    pairs: Mapping[Node, Pair]
    apart: dict[Node, Passed]
    reuse: bool
    instead: dict[Node, Node] = field(default_factory=dict)
    steps: list[StepLayout] = field(default_factory=list)
    converted: dict[tuple[Stored, View], Stored] = field(default_factory=dict)
    inside: dict[int, tuple[Graph, ...]] = field(default_factory=dict)

    def nodes(self) -> None:
        """Append the steps of all nodes, in their order."""
        for node in self.graph.nodes:
            self.node(node)

    def node(self, node: Node) -> None:
        """Append the steps of one node; those of a pair when its second one's turn comes."""
        pair = self.pairs.get(node)
        if pair is not None and self._is_one_step(pair):
            # In the second one's turn: it may read what nodes between the two make.
            self.instead[pair.second] = pair.both
            return
        node = self.instead.get(node, node)
        if isinstance(node.op, SizeConstant):
            return  # a constant of the plan
        inputs = tuple(self.places.stored[v] for v in node.inputs)
        outputs = tuple(self.places.stored[v] for v in node.outputs)
        name = node.name or node.outputs[0].name
        op = self.ops[node]
        if isinstance(op, Concat):
            self._concat(op, name, node.inputs, outputs[0])
        # A movement within one buffer is a view, and no step; so are bits of another type.
        elif not (isinstance(op, (BitCast, Move)) and inputs[0].buffer == outputs[0].buffer):
            self._operator(name, node, outputs)

    def _is_one_step(self, pair: Pair) -> bool:
        """Whether a pair was measured, or else estimated, to be faster as one step."""
        family, both = pair.both.op.family, self._fit(pair.both)
        if both.choice.kernel is None or both.why:
            reason = both.why or "; ".join(map(str, both.choice.passed))
            self.apart[pair.first] = Passed(family, reason)
            return False
        # Calls are tuned as steps of a plan, so in that one the pair was one step.
        if both.choice.measured is not None:
            return True
        fits = [self._fit(node) for node in (pair.first, pair.second)]
        micros = sum(fit.micros for fit in fits)
        reason = f"{both.micros:.1f} µs estimated, {micros:.1f} as two steps"
        # Where the first was tuned there were two steps; measured times compare with no estimate.
        if fits[0].choice.measured is None and both.micros * _WORTH < micros:
            # The same bits from code that exists: a new size need not wait for a compiler.
            if not (self.reuse and pair.alike and self.fitter.reusable(both, fits, pair.alike)):
                return True
            reason += ", which have code"
        self.apart[pair.first] = Passed(family, reason)
        return False

    def outputs(self) -> None:
        """Copy what is not the caller's yet: inputs, constants, repeated or shared values."""
        for i, value in enumerate(self.graph.outputs):
            stored = self.places.stored[value]
            buffer = self.places.buffers[stored.buffer]
            if buffer.kind is BufferKind.OUTPUT and buffer.index == i and stored.offset == 0:
                continue
            dense = row_major(stored.view.dtype, stored.view.shape)
            target = self.places.new(BufferKind.OUTPUT, value.name, dense, i)
            name, why = f"{value.name} to the caller", "the caller's memory is row-major"
            self._copy(name, value, stored, target, why)

    def bodies(self, lay_out: Callable[[Graph, Mapping[str, int]], GraphLayout]) -> None:
        """Lay out the graphs inside of operators, each for itself."""
        for number, graphs in self.inside.items():
            laid = tuple((graph, lay_out(graph, graph.with_bounds({}))) for graph in graphs)
            self.steps[number] = self.steps[number]._replace(bodies=laid)

    def _views(self, value: Value) -> tuple[View, ...]:
        """The views that operators may read a value by; the one that is stored first."""
        # As `search` had them: what it estimated is what is laid out.
        view = self.places.stored[value].view
        if value not in self.chosen.copies:
            return (view,)
        other = row_major if value in self.chosen.nhwc else channels_last
        return view, other(view.dtype, view.shape)

    def _concat(self, op: Concat, name: str, inputs: Sequence[Value], result: Stored) -> None:
        at = 0
        for value in inputs:
            stored = self.places.stored[value]
            strides = result.view.strides
            view = part(result.view, op.axis, at, stored.view.shape)
            offset = result.offset + at * strides[op.axis] * view.dtype.itemsize
            slot = Stored(result.buffer, offset, view)
            at += view.shape[op.axis]
            if view.size and not stored.is_at(slot):
                self._copy(name, value, self._source(name, value, view), slot, _ELSEWHERE)

    def _source(self, name: str, value: Value, wanted: View) -> Stored:
        """The stored value, or its copy where that is in the order of what it is copied to."""
        stored = self.places.stored[value]
        for view in self._views(value)[1:]:
            if view.channels_last == wanted.channels_last != stored.view.channels_last:
                return self._converted(name, value, view, _FASTER)
        return stored

    def _copy(self, name: str, value: Value, source: Stored, target: Stored, why: str) -> None:
        fit = self.fitter.reorder(source.view, target.view)
        self._append(name, fit, (source,), (target,), self._dims(value, value), f"copy: {why}")

    def _dims(self, *values: Value) -> tuple[tuple[Dim, ...], ...]:
        """Shapes of a step's operands and results, where steps find out sizes."""
        return tuple(value.shape for value in values) if self.graph.counts else ()

    def _append(
        self,
        name: str,
        fit: Fit,
        inputs: tuple[Stored, ...],
        outputs: tuple[Stored, ...],
        dims: tuple[tuple[Dim, ...], ...],
        note: str = "",
    ) -> None:
        launches, op, choice = self.fitter.launches(fit), fit.call.op, fit.choice
        least = self.fitter.least_flops(fit)
        step = StepLayout(name, op, fit.call, inputs, outputs, choice, launches, note, least)
        self.steps.append(step._replace(dims=dims) if dims else step)

    def _fit(self, node: Node) -> Fit:
        """How an operator would be done where its operands and results are."""
        constant = tuple(v in self.graph.constants for v in node.inputs)
        views = [self._views(v) for v in node.inputs]
        results = [self.places.stored[v].view for v in node.outputs]
        return self.fitter.step(self.ops[node], views, results, constant)

    def _operator(self, name: str, node: Node, outputs: tuple[Stored, ...]) -> None:
        """The step of one operator, with reorders around it where no kernel takes the storage."""
        fit = self._fit(node)
        # Passed over, like a kernel: people find the reason with the step.
        if node in self.apart:
            passed = (*fit.choice.passed, self.apart[node])
            fit = fit._replace(choice=replace(fit.choice, passed=passed))
        ins = tuple(
            self._converted(name, value, view, fit.why or _FASTER)
            for value, view in zip(node.inputs, fit.call.inputs, strict=True)
        )
        # What a kernel writes in other storage lies in the arena until it is copied.
        outs = tuple(
            s if s.view == view else self.places.new(BufferKind.ARENA, f"{name}/reordered", view)
            for s, view in zip(outputs, fit.call.outputs, strict=True)
        )
        dims = self._dims(*node.inputs, *node.outputs)
        # With a size inside that a step finds out, it is another operator for fewer rows.
        if dims and not node.op.symbols.isdisjoint(c.symbol for c in self.graph.counts):
            dims = ()
        self._append(name, fit, ins, outs, dims)
        if isinstance(fit.call.op, BodyOp):
            self.inside[len(self.steps) - 1] = fit.call.op.graphs(node.inputs, self.graph.constants)
        for value, own, wanted in zip(node.outputs, outs, outputs, strict=True):
            if own != wanted:
                self._copy(name, value, own, wanted, fit.why)

    def _converted(self, name: str, value: Value, wanted: View, why: str) -> Stored:
        stored = self.places.stored[value]
        if wanted == stored.view:
            return stored
        # Values are written once, so that one copy serves all that read them later.
        key = (stored, wanted)
        if key not in self.converted:
            fresh = self.places.new(BufferKind.ARENA, f"{name}/reordered", wanted)
            self._copy(name, value, stored, fresh, why)
            self.converted[key] = fresh
        return self.converted[key]
