"""Sizes put into a graph: the shapes of its values, and whether operands fit at these sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from math import prod

from saccade.errors import ModelError, PlanError, printable
from saccade.ir import Dim, Graph, Node, Op, TensorType, Value, storage
from saccade.ir.derived import derived
from saccade.ir.dim import evaluate, is_static
from saccade.ir.verify import describe
from saccade.limits import Limits
from saccade.opdefs import Conv2d, MatMul, Move, Pointwise, SizeConstant
from saccade.opdefs.bounds import ALONG, too_long, too_many

__all__ = [
    "add_shapes",
    "bound",
    "check_empty",
    "check_guards",
    "check_size_constants",
    "fitted",
    "shapes_of",
]

_KEPT = 16  # operators of a node, as many as a model keeps plans


def shapes_of(
    graph: Graph, sizes: Mapping[str, int], limits: Limits | None = None
) -> dict[Value, tuple[int, ...]]:
    """The shape of every value.

    Args:
        graph: As it was lowered, which holds all that depends on no size to the same bounds.
        sizes: What the symbols are.
        limits: How many elements a value may have; the default ones if None.

    Raises:
        PlanError: If a dim is negative or divides by zero, or a shape exceeds its bound.
    """
    limits = limits or Limits()
    template = _template(graph)
    # Once for each dim: many values share theirs.
    found = [_evaluate(dim, sizes, value) for dim, value in template.dims]
    shapes = dict(template.fixed)
    for value, shape in template.varying:
        shapes[value] = here = tuple([n if n >= 0 else found[~n] for n in shape])
        if prod(here) > limits.elements:
            _refuse(f"%{printable(value.name)}", too_many(here, limits), sizes)
    for node in template.long:
        around = [shapes[value] for value in (node.inputs[0], *node.outputs)]
        # Over all axes, as few nodes come near it; `too_long` knows which of them count.
        if max(map(max, filter(None, around)), default=0) > limits.extent:
            _refuse(describe(node), too_long(node.op, around, limits), sizes)
    return shapes


def _refuse(what: str, problem: str | None, sizes: Mapping[str, int]) -> None:
    if problem is not None:
        given = ", ".join(f"{k}={v}" for k, v in sizes.items())
        raise PlanError(f"with {given}, {what}: {problem}")


def add_shapes(
    shapes: dict[Value, tuple[int, ...]], graph: Graph, sizes: Mapping[str, int]
) -> None:
    """Add those of values that came into the graph since.

    Raises:
        PlanError: If a dim is negative or divides by zero.
    """
    for node in graph.nodes:
        for value in node.outputs:
            if value not in shapes:
                shapes[value] = tuple(
                    dim if isinstance(dim, int) else _evaluate(dim, sizes, value)
                    for dim in value.shape
                )


def bound(graph: Graph, more: Iterable[Node], sizes: Mapping[str, int]) -> dict[Node, Op]:
    """The operators of a graph's nodes and of others, every dim evaluated."""
    ops = {one.node: one.op(sizes) for one in _bindings(graph)}
    return {**ops, **{node: node.op.bind(sizes) for node in more}}


@dataclass(frozen=True, slots=True)
class _Binding:
    """A node's operator for the sizes that were asked about: few depend on all of the symbols."""

    node: Node
    symbols: tuple[str, ...]
    known: dict[tuple[int, ...], Op] = field(default_factory=dict)

    def op(self, sizes: Mapping[str, int]) -> Op:
        values = tuple([sizes[name] for name in self.symbols])
        found = self.known.get(values)
        if found is None:
            if len(self.known) >= _KEPT:
                self.known.clear()
            found = self.known[values] = self.node.op.bind(sizes)
        return found


@derived
def _bindings(graph: Graph) -> tuple[_Binding, ...]:
    return tuple(_Binding(node, tuple(node.op.symbols)) for node in graph.nodes)


@dataclass(frozen=True, slots=True)
class _Template:
    """The shapes of a graph, before its sizes are known.

    Attributes:
        fixed: Those that depend on no size.
        dims: Every dim that does, with a value that has it.
        varying: The shapes of all other values: a size, or ~i for the i-th of `dims`.
        long: Nodes with a bound on the axes that they run along.
    """

    fixed: Mapping[Value, tuple[int, ...]]
    dims: tuple[tuple[Dim, Value], ...]
    varying: tuple[tuple[Value, tuple[int, ...]], ...]
    long: tuple[Node, ...]


@derived
def _template(graph: Graph) -> _Template:
    fixed: dict[Value, tuple[int, ...]] = {}
    numbers: dict[Dim, int] = {}
    dims: list[tuple[Dim, Value]] = []
    varying = []
    for value in graph.values():
        shape = []
        for dim in value.shape:
            if isinstance(dim, int):
                shape.append(dim)
                continue
            if dim not in numbers:
                numbers[dim] = len(dims)
                dims.append((dim, value))
            # ~i, which is negative for place 0 as well; no dim of a graph is.
            shape.append(~numbers[dim])
        if min(shape, default=0) < 0:
            varying.append((value, tuple(shape)))
        else:
            fixed[value] = tuple(shape)
    long = tuple(node for node in graph.nodes if isinstance(node.op, ALONG))
    return _Template(fixed, tuple(dims), tuple(varying), long)


def _evaluate(dim: Dim, sizes: Mapping[str, int], value: Value) -> int:
    try:
        size = evaluate(dim, sizes)
    except ZeroDivisionError:
        raise PlanError(_about(dim, sizes, value, "divides by zero")) from None
    if size < 0:
        problem = f"is {size}: the input is too small for this model"
        raise PlanError(_about(dim, sizes, value, problem))
    return size


def _about(dim: Dim, sizes: Mapping[str, int], value: Value, problem: str) -> str:
    given = ", ".join(f"{k}={v}" for k, v in sizes.items())
    return f"with {given}, dim {dim} of %{printable(value.name)} {problem}"


def check_empty(
    graph: Graph, shapes: Mapping[Value, tuple[int, ...]], sizes: Mapping[str, int]
) -> None:
    """Ask the rules of what gives nothing once more: a window may be larger than all there is.

    Symbols never look too small, and one row too few is a result of none.

    Args:
        graph: As it was lowered.
        shapes: Of every value.
        sizes: What the symbols are.

    Raises:
        PlanError: If an operator does not take sizes like these.
    """
    for node in graph.nodes:
        if any(0 in shapes[value] for value in node.outputs):
            _check_guard(node, node.op.bind(sizes), shapes, sizes)


def check_size_constants(graph: Graph, sizes: Mapping[str, int], limits: Limits) -> None:
    """Decide of the graphs behind constants that sizes make what is decided of the graph itself.

    Args:
        graph: As it was lowered.
        sizes: What the symbols are.
        limits: How many elements a value may have.

    Raises:
        PlanError: As of `shapes_of`, or if operands do not fit.
    """
    for inner, own in _inner_graphs(graph):
        known = sizes if own is None else dict(own)
        shapes = shapes_of(inner, known, limits)
        check_empty(inner, shapes, known)
        fit = _fitted(inner)
        ops = {node: node.op.bind(known) for node in inner.nodes if node not in fit}
        check_guards(inner, fit, ops, shapes, known)


@derived
def _inner_graphs(graph: Graph) -> tuple[tuple[Graph, tuple[tuple[str, int], ...] | None], ...]:
    """The graphs behind `SizeConstant`s, with sizes that are known already."""
    return tuple(
        (inner, node.op.sizes)
        for node in graph.nodes
        if isinstance(node.op, SizeConstant)
        for inner in node.op.graphs(node.inputs, graph.constants)
    )


def check_guards(
    graph: Graph,
    fitted: frozenset[Node],
    ops: Mapping[Node, Op],
    shapes: Mapping[Value, tuple[int, ...]],
    sizes: Mapping[str, int],
) -> None:
    """Decide what shape rules had to let pass while sizes were symbols: `2*(H//2)` beside `H`.

    Args:
        graph: After nodes were fused for these sizes.
        fitted: Nodes that need no check. Others are asked with numbers, which costs less than
            asking them with symbols.
        ops: Of every node, bound.
        shapes: Of every value.
        sizes: For the message.

    Raises:
        PlanError: If operands do not fit.
    """
    for node in graph.nodes:
        if node not in fitted:
            _check_guard(node, ops[node], shapes, sizes)


@derived
def fitted(graph: Graph, fused: Graph) -> frozenset[Node]:
    """Nodes of a graph, before and after some were fused, that fit whatever the sizes.

    New ones do where all that they took the place of did; else they had better be asked.

    Args:
        graph: As it was lowered.
        fused: With nodes in place of others.
    """
    known = _fitted(graph)
    before, after = frozenset(graph.nodes), frozenset(fused.nodes)
    return known | (after - before) if before - after <= known else known


@derived
def _fitted(graph: Graph) -> frozenset[Node]:
    """Nodes that fit whatever the sizes; others do if dims that differ are equal as numbers."""
    return frozenset(node for node in graph.nodes if _fits_for_all_sizes(graph, node))


def _fits_for_all_sizes(graph: Graph, node: Node) -> bool:
    inferred = storage.infer(node.op, [value.type for value in node.inputs])
    if any(kind.shape != value.shape for kind, value in zip(inferred, node.outputs, strict=True)):
        return False
    if isinstance(node.op, SizeConstant):
        return True  # its own graph is asked instead
    if isinstance(node.op, Move):
        index_map = node.op.map
        inside = all(map(index_map.is_inside, index_map.factors))
        return inside and index_map.in_shape == node.inputs[0].shape
    varying = [v for v in node.inputs if v not in graph.constants]
    if not _weights_fit(graph, node):
        return False
    # Operands are broadcast from the last axis on.
    for axes in zip_longest(*(reversed(v.shape) for v in varying), fillvalue=1):
        # Different symbols, or a symbol and a number, may only have been assumed to be equal.
        if len({dim for dim in axes if dim != 1}) > 1 and not all(map(is_static, axes)):
            return False
    return True


def _weights_fit(graph: Graph, node: Node) -> bool:
    """Whether no constant's axis stands against a size that varies.

    Known of the operators that models have most of; others are asked if they have both.
    """
    constant = [v for v in node.inputs if v in graph.constants and any(d != 1 for d in v.shape)]
    sized = [v for v in (*node.inputs, *node.outputs) if v not in graph.constants]
    # From the last axis on, as operands are broadcast.
    varying = {
        axis for v in sized for axis, dim in enumerate(reversed(v.shape)) if not is_static(dim)
    }
    if not constant or not varying:
        return True
    match node.op, node.inputs:
        case Pointwise(), _:
            beside = constant
        case Conv2d(), (x, w, *_) if is_static(x.shape[1]) and w in constant:
            beside = [v for v in constant if v is not w]
        case MatMul(transpose_a=False), (a, b, *_) if is_static(a.shape[-1]) and b in constant:
            beside = [v for v in constant if v is not b or b.rank > 2]
        case _:
            return False
    against = (enumerate(reversed(v.shape)) for v in beside)
    return not any(dim != 1 and axis in varying for axes in against for axis, dim in axes)


def _check_guard(
    node: Node, op: Op, shapes: Mapping[Value, tuple[int, ...]], sizes: Mapping[str, int]
) -> None:
    problem = ""
    try:
        types = storage.infer(op, [TensorType(v.dtype, shapes[v]) for v in node.inputs])
    except ModelError as error:
        problem = str(error)
    else:
        for kind, value in zip(types, node.outputs, strict=True):
            if kind.shape != shapes[value]:
                problem = (
                    f"%{printable(value.name)} is {list(kind.shape)}, not {list(shapes[value])}"
                )
    if problem:
        given = ", ".join(f"{k}={v}" for k, v in sizes.items())
        raise PlanError(f"with {given}, {describe(node)} does not fit: {problem}")
