"""Storage of the open values, chosen together with the kernels: the cheapest states over the graph.

A state of a value is how its producer writes it, channels-last or row-major, and whether a copy in
the other order is made of it, once for all its readers. A table for each step holds its time for
every joint state of what it reads and writes; views (of a movement) follow what they are views of.
Times are estimates of the kernels that selection would take, so layouts and algorithms are chosen
together. Pitch plays no part: a value stands inside the result of its concatenation wherever both
are stored the same way, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from saccade.ir import Graph, IndexMap, Node, Op, Value
from saccade.kernels.base import View
from saccade.layout.elimination import Solution, Table, minimise
from saccade.layout.fitting import Fitter
from saccade.layout.formats import Formats
from saccade.layout.types import Searched
from saccade.layout.views import aligned, channels_last, fits_last, moved, row_major
from saccade.opdefs import Concat, Move, SizeConstant

__all__ = ["Storage", "search"]

MOST_STATES = 600
"""Joint states to estimate for values that are connected; where there are more, the rule stands."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How values are stored.

    Attributes:
        nhwc: Rank-4 values that are channels-last.
        copies: Values that also exist in the other order.
        searched: What the search did; None where there was nothing to choose.
        notes: What differs from the rule.
    """

    nhwc: frozenset[Value]
    copies: frozenset[Value] = frozenset()
    searched: Searched | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _State:
    last: bool  # made channels-last
    both: bool  # and copied to the other order

    def __str__(self) -> str:
        orders = ["channels-last", "row-major"]
        made, other = orders if self.last else reversed(orders)
        return f"{made}, copied to {other}" if self.both else made


def search(
    graph: Graph,
    shapes: Mapping[Value, tuple[int, ...]],
    ops: Mapping[Node, Op],
    rule: Formats,
    fitter: Fitter,
) -> Storage:
    """The cheapest storage of the open values; by rule for all others."""
    values = [v for v in graph.values() if v in rule.open and _differ(shapes[v])]
    if not values:
        return Storage(rule.nhwc)
    work = _Search(graph, shapes, ops, rule.nhwc, fitter, values)
    tables, unsearched = work.tables()
    start = [0] * len(values)  # the rule's
    found = minimise([len(d) for d in work.domains], tables, start)
    before = sum(float(t.costs[(0,) * len(t.scope)]) for t in tables)
    # Read now: `tables` leaves some of them the rule's state alone.
    states = {v: work.domains[i][found.states[i]] for i, v in enumerate(values)}
    return _storage(rule, work, states, before, found, unsearched)


def _storage(
    rule: Formats,
    work: _Search,
    states: Mapping[Value, _State],
    before: float,
    found: Solution,
    unsearched: float,
) -> Storage:
    last = {v for v, state in states.items() if state.last}
    notes = tuple(
        f"%{v.name} is stored {state}, not {work.domains[i][0]}"
        for i, (v, state) in enumerate(states.items())
        if state != work.domains[i][0]
    )
    return Storage(
        (rule.nhwc - states.keys()) | last,
        frozenset(v for v, state in states.items() if state.both),
        Searched(len(states), before - found.cost, found.gap + unsearched),
        notes,
    )


def _differ(shape: Sequence[int]) -> bool:
    """Whether channels-last and row-major are different orders of the elements."""
    _, c, h, w = shape
    return c > 1 and h * w > 1 and 0 not in shape


Cost = Callable[[Mapping[int, _State]], float]


class _Search:
    """The search's variables, one for each open value, and its tables."""

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[Value, tuple[int, ...]],
        ops: Mapping[Node, Op],
        nhwc: frozenset[Value],
        fitter: Fitter,
        values: Sequence[Value],
    ) -> None:
        self._graph, self._shapes, self._ops = graph, shapes, ops
        self._nhwc, self._fitter = nhwc, fitter
        self._variable = {v: i for i, v in enumerate(values)}
        self._uses = graph.uses()
        self.domains = [self._domain(v) for v in values]
        self._origin: dict[Value, tuple[Value, IndexMap]] = {}
        self._renamed: dict[Value, View | None] = {}
        self._scope: dict[Value, tuple[int, ...]] = {v: (i,) for v, i in self._variable.items()}
        # A movement's result may be a view, so what happens to it depends on its operand's state.
        for node in graph.nodes:
            bound = ops[node]
            if not isinstance(bound, Move):
                continue
            source = node.inputs[0]
            # A view of other axes is free; in the other order it is a copy, as `storage` has it.
            if source.rank != 4 and node.output in self._variable:
                whole = moved(row_major(source.dtype, shapes[source]), bound.map)
                self._renamed[node.output] = whole and whole[1]
            if self._scope.get(source):
                self._origin[node.output] = source, bound.map
                own = self._scope.get(node.output, ())
                self._scope[node.output] = (*self._scope[source], *own)

    def _domain(self, value: Value) -> list[_State]:
        """The states of a value; that of the rule first."""
        # The caller's memory is row-major: only a copy can be in the other order.
        if value in self._graph.inputs:
            return [_State(last=False, both=False), _State(last=False, both=True)]
        rule = value in self._nhwc
        states = [_State(rule, both=False), _State(not rule, both=False)]
        # Without a reader a copy serves nobody.
        if self._uses[value]:
            states += [_State(rule, both=True), _State(not rule, both=True)]
        return states

    def tables(self) -> tuple[list[Table], float]:
        """Costs of all steps that depend on an open value; what is left out, by the rule."""
        costs = [*self._copies(), *self._outputs()]
        # Steps that touch none of them cost the same in every state.
        for node in self._graph.nodes:
            values = (*node.inputs, *node.outputs)
            if any(v in self._scope for v in values):
                costs += self._concat(node) if isinstance(node.op, Concat) else [self._node(node)]
        entries = [(tuple(sorted(set(scope))), cost) for scope, cost in costs]
        # Before states are estimated: that is what takes time.
        fixed = self._too_many([scope for scope, _ in entries])
        for variable in fixed:
            self.domains[variable] = self.domains[variable][:1]
        tables, unsearched = [], 0.0
        for scope, cost in entries:
            table = self._table(scope, cost)
            if fixed.intersection(scope):
                # Other states could save all of it at most.
                unsearched += float(table.costs.flat[0])
            tables.append(table)
        return tables, unsearched

    def _too_many(self, scopes: Sequence[tuple[int, ...]]) -> set[int]:
        """Variables of connected parts that have more joint states than are worth estimating."""
        parts: list[tuple[set[int], int]] = []
        for scope in scopes:
            merged, states = set(scope), prod(len(self.domains[v]) for v in scope)
            apart = []
            for variables, count in parts:
                if variables & merged:
                    merged, states = merged | variables, states + count
                else:
                    apart.append((variables, count))
            parts = [*apart, (merged, states)]
        return {v for variables, states in parts if states > MOST_STATES for v in variables}

    def _table(self, scope: tuple[int, ...], cost: Cost) -> Table:
        domains = [self.domains[v] for v in scope]
        # The last variable changes fastest, as the last axis does.
        costs = [cost(dict(zip(scope, states, strict=True))) for states in product(*domains)]
        return Table(scope, np.array(costs, float).reshape([len(d) for d in domains]))

    def _copies(self) -> list[tuple[tuple[int, ...], Cost]]:
        def copy(value: Value, variable: int) -> Cost:
            def cost(states: Mapping[int, _State]) -> float:
                views = self._views(value, states)
                return self._fitter.reorder(*views).micros if states[variable].both else 0.0

            return cost

        return [(self._scope[v], copy(v, i)) for v, i in self._variable.items()]

    def _outputs(self) -> list[tuple[tuple[int, ...], Cost]]:
        """Copies of results to the caller's memory."""

        def out(value: Value) -> Cost:
            def cost(states: Mapping[int, _State]) -> float:
                source = self._views(value, states)[0]
                dense = row_major(source.dtype, source.shape)
                return 0.0 if source == dense else self._fitter.reorder(source, dense).micros

            return cost

        values = (v for v in self._graph.outputs if v in self._scope)
        return [(self._scope[v], out(v)) for v in values]

    def _concat(self, node: Node) -> list[tuple[tuple[int, ...], Cost]]:
        """Operands that are stored in another order than the result are copied."""

        def copy(value: Value) -> Cost:
            def cost(states: Mapping[int, _State]) -> float:
                views = self._views(value, states)
                whole = self._views(node.output, states)[0]
                # The copy lies inside the result, and has its strides.
                slot = View(views[0].dtype, views[0].shape, whole.strides)
                if any(_same_order(view, whole) for view in views):
                    return 0.0  # its producer writes it there
                return min(self._fitter.reorder(view, slot).micros for view in views)

            return cost

        values = (v for v in node.inputs if v in self._scope or node.output in self._scope)
        result = self._scope.get(node.output, ())
        return [((*self._scope.get(v, ()), *result), copy(v)) for v in values]

    def _node(self, node: Node) -> tuple[tuple[int, ...], Cost]:
        constant = tuple(v in self._graph.constants for v in node.inputs)

        def cost(states: Mapping[int, _State]) -> float:
            if isinstance(node.op, SizeConstant) or (
                isinstance(node.op, Move) and self._seen(node.output, states) is not None
            ):
                return 0.0  # no step, as a view is none
            inputs = [self._views(v, states) for v in node.inputs]
            outputs = [self._views(v, states)[0] for v in node.outputs]
            return self._fitter.step(self._ops[node], inputs, outputs, constant).micros

        values = (*node.inputs, *node.outputs)
        return tuple(i for v in values for i in self._scope.get(v, ())), cost

    def _views(self, value: Value, states: Mapping[int, _State]) -> tuple[View, ...]:
        """How a value is stored, and its copy if there is one."""
        shape = self._shapes[value]
        state = states.get(self._variable.get(value, -1))  # -1 is no variable
        found = self._seen(value, states)
        if found is not None:
            if state is None or not state.both:
                return (found,)
            return found, (row_major if state.last else channels_last)(value.dtype, shape)
        last = value in self._nhwc if state is None else state.last
        orders = (channels_last, row_major) if last else (row_major, channels_last)
        return tuple(
            f(value.dtype, shape) for f in (orders if state and state.both else orders[:1])
        )

    def _seen(self, value: Value, states: Mapping[int, _State]) -> View | None:
        """The view that a movement's result is of its operand, if it is one."""
        if value in self._renamed:
            view, state = self._renamed[value], states[self._variable[value]]
            return view if view is None or not state.last or fits_last(view) else None
        if value not in self._origin:
            return None
        source, index_map = self._origin[value]
        # Of what is stored, as `storage` makes views, not of its copy.
        found = moved(self._views(source, states)[0], index_map)
        if found is None:
            return None
        begin, view = found
        return aligned(view, begin * view.dtype.itemsize)


def _same_order(a: View, b: View) -> bool:
    return a.channels_last == b.channels_last
