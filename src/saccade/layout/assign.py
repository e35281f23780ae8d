"""Layout of a whole graph for given sizes.

Storage first, then a kernel for each step, reorders where none fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest

from saccade.errors import ModelError, PlanError
from saccade.ir import Dim, Factor, Graph, IndexMap, Node, Op, TensorType, Value, storage
from saccade.ir.dim import evaluate, is_static
from saccade.ir.verify import describe
from saccade.kernels.base import Call, View
from saccade.layout.formats import channels_last_values
from saccade.layout.select import Available, Selector
from saccade.layout.storage import Places, place
from saccade.layout.types import Backend, BufferKind, Choice, Laid, LaidStep, Stored
from saccade.layout.views import channels_last, row_major
from saccade.opdefs import Concat, Move

__all__ = ["assign"]


def assign(
    graph: Graph,
    sizes: Mapping[str, int],
    backend: Backend,
    *,
    threads: int,
    exact: bool = False,
    available: Available | None = None,
) -> Laid:
    """Lay out `graph` for the given sizes of its symbols.

    Raises:
        PlanError: If the sizes make a shape negative, divide by zero, or operands do not fit.
    """
    shapes = _shapes(graph, sizes)
    ops = {node: node.op.bind(sizes) for node in graph.nodes}
    for node in _guarded(graph):
        _check_guard(node, ops[node], shapes, sizes)
    maps = {node: op.map for node, op in ops.items() if isinstance(op, Move)}
    places = place(graph, shapes, maps, _pictures(graph))
    work = _Assignment(graph, ops, places, Selector(backend, available), backend, threads, exact)
    for node in graph.nodes:
        work.node(node)
    work.outputs()
    dense = {v: row_major(v.dtype, shapes[v]) for v in (*graph.inputs, *graph.outputs)}
    return Laid(
        tuple(work.steps),
        tuple(places.buffers),
        tuple(dense[v] for v in graph.inputs),
        tuple(dense[v] for v in graph.outputs),
        tuple(places.notes),
    )


@lru_cache(maxsize=64)
def _pictures(graph: Graph) -> frozenset[Value]:
    return channels_last_values(graph)


def _shapes(graph: Graph, sizes: Mapping[str, int]) -> dict[Value, tuple[int, ...]]:
    known: dict[Dim, int] = {}
    shapes = {}
    for value in graph.values():
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


def identity_map(shape: tuple[int, ...]) -> IndexMap:
    """The map that moves nothing."""
    factors = tuple(Factor(n, i) for i, n in enumerate(shape))
    return IndexMap(tuple((n,) for n in shape), factors, (1,) * len(shape))


@dataclass
class _Assignment:
    graph: Graph
    ops: Mapping[Node, Op]
    places: Places
    selector: Selector
    backend: Backend
    threads: int
    exact: bool
    steps: list[LaidStep] = field(default_factory=list)
    converted: dict[tuple[Stored, View], Stored] = field(default_factory=dict)

    def node(self, node: Node) -> None:
        """Append the steps of one node."""
        inputs = tuple(self.places.stored[v] for v in node.inputs)
        outputs = tuple(self.places.stored[v] for v in node.outputs)
        name = node.name or node.outputs[0].name
        op = self.ops[node]
        if isinstance(op, Concat):
            self._concat(op, name, inputs, outputs[0])
        elif not (isinstance(op, Move) and self._is_view(op, inputs[0], outputs[0])):
            constant = tuple(v in self.graph.constants for v in node.inputs)
            self._operator(name, op, inputs, outputs, constant)

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

    def _is_view(self, op: Move, source: Stored, result: Stored) -> bool:
        del op
        return source.buffer == result.buffer

    def _concat(self, op: Concat, name: str, inputs: tuple[Stored, ...], result: Stored) -> None:
        at = 0
        for stored in inputs:
            strides = result.view.strides
            view = View(stored.view.dtype, stored.view.shape, strides)
            offset = result.offset + at * strides[op.axis] * view.dtype.itemsize
            slot = Stored(result.buffer, offset, view)
            at += view.shape[op.axis]
            if stored != slot and view.size:
                self._copy(name, stored, slot, "its operand lives elsewhere")

    def _copy(self, name: str, source: Stored, target: Stored, why: str) -> None:
        op = Move(identity_map(source.view.shape))
        call = self._call(op, (source,), (target,), (False,))
        found = self.selector.select(call)
        choice, launches = found or (Choice(None, 0.0, self.selector.refusals(call)), ())
        self.steps.append(
            LaidStep(name, op, call, (source,), (target,), choice, launches, f"copy: {why}")
        )

    def _call(
        self,
        op: Op,
        inputs: tuple[Stored, ...],
        outputs: tuple[Stored, ...],
        constant: tuple[bool, ...],
    ) -> Call:
        return Call(
            op,
            tuple(s.view for s in inputs),
            tuple(s.view for s in outputs),
            constant,
            self.backend.target,
            self.threads,
            self.exact,
        )

    def _operator(
        self,
        name: str,
        op: Op,
        inputs: tuple[Stored, ...],
        outputs: tuple[Stored, ...],
        constant: tuple[bool, ...],
    ) -> None:
        """The step of one operator, with reorders around it where no kernel takes the storage."""
        asked = self._call(op, inputs, outputs, constant)
        for change_outputs, change_inputs in (
            (False, False),
            (True, False),
            (False, True),
            (True, True),
        ):
            ins = self._dense(inputs, constant) if change_inputs else inputs
            outs = self._dense(outputs, (False,) * len(outputs)) if change_outputs else outputs
            if (change_inputs and ins == inputs) or (change_outputs and outs == outputs):
                continue
            call = self._call(op, tuple(ins), tuple(outs), constant)
            found = self.selector.select(call)
            if found is None:
                continue
            why = (
                "; ".join(map(str, self.selector.refusals(asked)))
                if ins != inputs or outs != outputs
                else ""
            )
            real_ins = tuple(
                self._converted(name, a, b, why) for a, b in zip(inputs, ins, strict=True)
            )
            real_outs = tuple(
                self._temporary(name, a, b) for a, b in zip(outputs, outs, strict=True)
            )
            self.steps.append(LaidStep(name, op, call, real_ins, real_outs, *found))
            for temporary, wanted in zip(real_outs, outputs, strict=True):
                if temporary != wanted:
                    self._copy(name, temporary, wanted, why)
            return
        choice = Choice(None, 0.0, self.selector.refusals(asked))
        self.steps.append(LaidStep(name, op, asked, inputs, outputs, choice, ()))

    def _dense(self, stored: tuple[Stored, ...], fixed: tuple[bool, ...]) -> tuple[Stored, ...]:
        """The same values in the storage that kernels like best; constants stay."""
        changed = []
        for s, keep in zip(stored, fixed, strict=True):
            dense = channels_last if len(s.view.shape) == 4 else row_major
            view = dense(s.view.dtype, s.view.shape)
            same = keep or view.strides == s.view.strides
            changed.append(s if same else Stored(-1, 0, view))
        return tuple(changed)

    def _converted(self, name: str, stored: Stored, wanted: Stored, why: str) -> Stored:
        if wanted.buffer != -1:
            return stored
        key = (stored, wanted.view)
        if key not in self.converted:
            fresh = self.places.new(BufferKind.ARENA, f"{name}/reordered", wanted.view)
            self._copy(name, stored, fresh, why)
            self.converted[key] = fresh
        return self.converted[key]

    def _temporary(self, name: str, stored: Stored, wanted: Stored) -> Stored:
        if wanted.buffer != -1:
            return stored
        return self.places.new(BufferKind.ARENA, f"{name}/reordered", wanted.view)
