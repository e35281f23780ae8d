"""Layout of a whole graph for given sizes.

Storage and kernels are chosen together (`search`), then written down: places in buffers, steps,
reorders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest

from saccade.errors import ModelError, PlanError
from saccade.ir import Dim, Graph, Node, Op, TensorType, Value, storage
from saccade.ir.dim import evaluate, is_static
from saccade.ir.verify import describe
from saccade.kernels.base import View
from saccade.kernels.machine import machine
from saccade.layout.excite import with_gates
from saccade.layout.fitting import Fit, Fitter
from saccade.layout.formats import Formats, formats
from saccade.layout.join import joined
from saccade.layout.search import Storage, search
from saccade.layout.select import Available, Selector
from saccade.layout.storage import Places, place
from saccade.layout.types import Backend, BufferKind, Laid, LaidStep, Stored, Timings
from saccade.layout.views import channels_last, row_major
from saccade.opdefs import Concat, Move

__all__ = ["assign"]

_ELSEWHERE = "its operand lives elsewhere"
_FASTER = "its readers are faster with it, by more than the copy takes"


def assign(
    graph: Graph,
    sizes: Mapping[str, int],
    backend: Backend,
    *,
    threads: int,
    exact: bool = False,
    available: Available | None = None,
    timings: Timings | None = None,
) -> Laid:
    """Lay out `graph` for the given sizes of its symbols.

    Raises:
        PlanError: If the sizes make a shape negative, divide by zero, or operands do not fit.
    """
    shapes = _shapes(graph, sizes)
    graph = with_gates(joined(graph, shapes, backend, threads), shapes, backend, threads)
    shapes |= {v: shape for v, shape in _shapes(graph, sizes).items() if v not in shapes}
    ops = {node: node.op.bind(sizes) for node in graph.nodes}
    for node in _guarded(graph):
        _check_guard(node, ops[node], shapes, sizes)
    maps = {node: op.map for node, op in ops.items() if isinstance(op, Move)}
    fitter = Fitter(Selector(backend, available, timings), backend, threads, exact)
    chosen = search(graph, shapes, ops, _formats(graph), fitter)
    places = place(graph, shapes, maps, chosen.pictures)
    work = _Assignment(graph, ops, places, chosen, fitter)
    for node in graph.nodes:
        work.node(node)
    work.outputs()
    dense = {v: row_major(v.dtype, shapes[v]) for v in (*graph.inputs, *graph.outputs)}
    return Laid(
        tuple(work.steps),
        tuple(places.buffers),
        tuple(dense[v] for v in graph.inputs),
        tuple(dense[v] for v in graph.outputs),
        (*chosen.notes, *places.notes),
        machine(backend.target),
        exact,
        chosen.searched,
        () if timings is None else timings.refusals([step.name for step in work.steps]),
    )


@lru_cache(maxsize=64)
def _formats(graph: Graph) -> Formats:
    return formats(graph)


def _shapes(graph: Graph, sizes: Mapping[str, int]) -> dict[Value, tuple[int, ...]]:
    fixed, varying = _fixed_shapes(graph)
    known: dict[Dim, int] = {}
    shapes = dict(fixed)
    for value in varying:
        dims = []
        for dim in value.shape:
            if isinstance(dim, int):
                dims.append(dim)
                continue
            if dim not in known:
                known[dim] = _evaluate(dim, sizes, value)
            dims.append(known[dim])
        shapes[value] = tuple(dims)
    return shapes


@lru_cache(maxsize=64)
def _fixed_shapes(graph: Graph) -> tuple[dict[Value, tuple[int, ...]], tuple[Value, ...]]:
    """Shapes that depend on no size, and the values of all others."""
    fixed: dict[Value, tuple[int, ...]] = {}
    varying = []
    for value in graph.values():
        shape = tuple(dim for dim in value.shape if isinstance(dim, int))
        if len(shape) == value.rank:
            fixed[value] = shape
        else:
            varying.append(value)
    return fixed, tuple(varying)


def _evaluate(dim: Dim, sizes: Mapping[str, int], value: Value) -> int:
    given = ", ".join(f"{k}={v}" for k, v in sizes.items())
    try:
        size = evaluate(dim, sizes)
    except ZeroDivisionError:
        raise PlanError(f"with {given}, dim {dim} of %{value.name} divides by zero") from None
    if size < 0:
        raise PlanError(
            f"with {given}, dim {dim} of %{value.name} is {size}: "
            "the input is too small for this model"
        )
    return size


@lru_cache(maxsize=64)
def _guarded(graph: Graph) -> tuple[Node, ...]:
    """Nodes that fit only if dims that differ as expressions turn out equal as numbers."""
    return tuple(node for node in graph.nodes if not _fits_for_all_sizes(graph, node))


def _fits_for_all_sizes(graph: Graph, node: Node) -> bool:
    inferred = storage.infer(node.op, [value.type for value in node.inputs])
    if any(kind.shape != value.shape for kind, value in zip(inferred, node.outputs, strict=True)):
        return False
    if isinstance(node.op, Move):
        return node.op.map.in_shape == node.inputs[0].shape
    varying = [v for v in node.inputs if v not in graph.constants]
    for axes in zip_longest(*(reversed(v.shape) for v in varying), fillvalue=1):
        if len({dim for dim in axes if dim != 1}) > 1 and not all(map(is_static, axes)):
            return False
    return True


def _check_guard(
    node: Node, op: Op, shapes: Mapping[Value, tuple[int, ...]], sizes: Mapping[str, int]
) -> None:
    """Decide what shape rules had to let pass while sizes were symbols: `2*(H//2)` beside `H`."""
    problem = ""
    try:
        types = storage.infer(op, [TensorType(v.dtype, shapes[v]) for v in node.inputs])
    except ModelError as error:
        problem = str(error)
    else:
        for kind, value in zip(types, node.outputs, strict=True):
            if kind.shape != shapes[value]:
                problem = f"%{value.name} is {list(kind.shape)}, not {list(shapes[value])}"
    if problem:
        given = ", ".join(f"{k}={v}" for k, v in sizes.items())
        raise PlanError(f"with {given}, {describe(node)} does not fit: {problem}")


@dataclass
class _Assignment:
    """Steps under construction.

    Attributes:
        graph: What is laid out.
        ops: Its operators, bound.
        places: Where values live.
        chosen: Which values exist in another order too.
        fitter: Finds kernels.
        steps: So far.
        converted: Copies of stored values in other storage.
    """

    graph: Graph
    ops: Mapping[Node, Op]
    places: Places
    chosen: Storage
    fitter: Fitter
    steps: list[LaidStep] = field(default_factory=list)
    converted: dict[tuple[Stored, View], Stored] = field(default_factory=dict)

    def node(self, node: Node) -> None:
        """Append the steps of one node."""
        inputs = tuple(self.places.stored[v] for v in node.inputs)
        outputs = tuple(self.places.stored[v] for v in node.outputs)
        name = node.name or node.outputs[0].name
        op = self.ops[node]
        if isinstance(op, Concat):
            self._concat(op, name, node.inputs, outputs[0])
        elif not (isinstance(op, Move) and inputs[0].buffer == outputs[0].buffer):
            self._operator(name, op, node.inputs, outputs)

    def outputs(self) -> None:
        """Copy what is not the caller's yet: inputs, constants, repeated or shared values."""
        for i, value in enumerate(self.graph.outputs):
            stored = self.places.stored[value]
            buffer = self.places.buffers[stored.buffer]
            if buffer.kind is BufferKind.OUTPUT and buffer.index == i and stored.offset == 0:
                continue
            dense = row_major(stored.view.dtype, stored.view.shape)
            target = self.places.new(BufferKind.OUTPUT, value.name, dense, i)
            self._copy(
                f"{value.name} to the caller", stored, target, "the caller's memory is row-major"
            )

    def _views(self, value: Value) -> tuple[View, ...]:
        """The views that operators may read a value by; the one that is stored first."""
        view = self.places.stored[value].view
        if value not in self.chosen.copies:
            return (view,)
        other = row_major if value in self.chosen.pictures else channels_last
        return view, other(view.dtype, view.shape)

    def _concat(self, op: Concat, name: str, inputs: Sequence[Value], result: Stored) -> None:
        at = 0
        for value in inputs:
            stored = self.places.stored[value]
            strides = result.view.strides
            view = View(stored.view.dtype, stored.view.shape, strides)
            offset = result.offset + at * strides[op.axis] * view.dtype.itemsize
            slot = Stored(result.buffer, offset, view)
            at += view.shape[op.axis]
            if stored != slot and view.size:
                self._copy(name, self._source(name, value, view), slot, _ELSEWHERE)

    def _source(self, name: str, value: Value, wanted: View) -> Stored:
        """The stored value, or its copy where that is in the order of what it is copied to."""
        stored = self.places.stored[value]
        for view in self._views(value)[1:]:
            if view.channels_last == wanted.channels_last != stored.view.channels_last:
                return self._converted(name, stored, view, _FASTER)
        return stored

    def _copy(self, name: str, source: Stored, target: Stored, why: str) -> None:
        fit = self.fitter.reorder(source.view, target.view)
        self._append(name, fit, (source,), (target,), f"copy: {why}")

    def _append(
        self,
        name: str,
        fit: Fit,
        inputs: tuple[Stored, ...],
        outputs: tuple[Stored, ...],
        note: str = "",
    ) -> None:
        self.steps.append(
            LaidStep(name, fit.call.op, fit.call, inputs, outputs, fit.choice, fit.launches, note)
        )

    def _operator(
        self, name: str, op: Op, inputs: Sequence[Value], outputs: tuple[Stored, ...]
    ) -> None:
        """The step of one operator, with reorders around it where no kernel takes the storage."""
        constant = tuple(v in self.graph.constants for v in inputs)
        views = [self._views(v) for v in inputs]
        fit = self.fitter.step(op, views, [s.view for s in outputs], constant)
        ins = tuple(
            self._converted(name, self.places.stored[value], view, fit.why or _FASTER)
            for value, view in zip(inputs, fit.call.inputs, strict=True)
        )
        outs = tuple(
            s if s.view == view else self.places.new(BufferKind.ARENA, f"{name}/reordered", view)
            for s, view in zip(outputs, fit.call.outputs, strict=True)
        )
        self._append(name, fit, ins, outs)
        for made, wanted in zip(outs, outputs, strict=True):
            if made != wanted:
                self._copy(name, made, wanted, fit.why)

    def _converted(self, name: str, stored: Stored, wanted: View, why: str) -> Stored:
        if wanted == stored.view:
            return stored
        key = (stored, wanted)
        if key not in self.converted:
            fresh = self.places.new(BufferKind.ARENA, f"{name}/reordered", wanted)
            self._copy(name, stored, fresh, why)
            self.converted[key] = fresh
        return self.converted[key]
