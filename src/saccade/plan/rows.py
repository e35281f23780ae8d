"""Steps that need not run for all the rows that there could be.

A plan is made for the bounds of what its steps find out, and what lies beyond is cut off results.
Once a number is found, steps behind it may leave those rows out: of a head over boxes, which has
memory for a hundred of them, for the five that an image has. What is true never comes from what is
not (`frontend/onnx/rows.py`), so that only rows which nobody sees are others then.

A device may do so for steps with `RowCount`, or not. Its part is that steps which go on reading
whole values find nothing there that could lead them astray, such as an index of no row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from saccade.ir import Dim, Graph, Op
from saccade.ir.counts import depends, multiple_of
from saccade.ir.derived import derived
from saccade.ir.dim import evaluate
from saccade.kernels.base import View
from saccade.layout import BufferKind, GraphLayout, StepLayout, copy_of
from saccade.plan.types import CountedSteps, Plan, RowCount, Slot, Step

__all__ = ["all_counted_steps", "all_row_counts", "rows_of", "with_rows"]

_HEAVY = 100.0
"""Microseconds of a step that is worth fewer rows; lighter ones follow where they read its."""
_WORTH = 2000.0
"""Microseconds of steps that are worth it together: calls find their arguments once, in some
milliseconds, and a run is in more pieces."""


def all_row_counts(
    graph: Graph, laid: GraphLayout, sizes: Mapping[str, int]
) -> dict[int, RowCount]:
    """For numbers of steps which of their rows have to be computed, where not all have.

    Args:
        graph: What was laid out.
        laid: Its steps.
        sizes: What its symbols are.
    """
    if not graph.counts:
        return {}
    of = _ShapeRows(graph)
    found: dict[int, RowCount] = {}
    known: dict[int, int] = {}
    for i, step in enumerate(laid.steps):
        factors = _factors(step, of, sizes)
        if factors is not None and factors[0] in known:
            count, ins, outs = factors
            found[i] = RowCount(count, known[count], ins, outs, (), ())
        for stored in step.outputs:
            buffer = laid.buffers[stored.buffer]
            if buffer.kind is BufferKind.OUTPUT:
                known[buffer.index] = i
    read = _reads(laid)
    for i, rows in found.items():
        by_rows, whole = set[int](), set[int]()
        for stored in laid.steps[i].outputs:
            for reader, operand in read[stored.buffer]:
                other = found.get(reader)
                alike = other is not None and other.source == rows.source and other.inputs[operand]
                if reader > i:
                    (by_rows if alike else whole).add(reader)
        found[i] = rows._replace(readers=tuple(sorted(by_rows)), whole=tuple(sorted(whole)))
    return found


def _reads(laid: GraphLayout) -> dict[int, list[tuple[int, int]]]:
    """For each buffer the steps that read it, and which of their operands it is."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i, step in enumerate(laid.steps):
        for operand, stored in enumerate(step.inputs):
            if not _names_rows(step.op, operand):
                found[stored.buffer].append((i, operand))
    return found


def _names_rows(op: Op, operand: int) -> bool:
    """Whether an operand is one of which other operands say which rows are read.

    They name none that is not true: the rest may hold anything.
    """
    return op.family == "ScatterRows" and operand == 2  # updates


class _ShapeRows:
    """What the outermost axes of shapes are counted by; those of a graph's values once for all."""

    def __init__(self, graph: Graph) -> None:
        self._outputs = _found_outputs(graph)
        self._known = _rows_of_shapes(graph)

    def __call__(self, shape: tuple[Dim, ...]) -> _Rows:
        """The output that holds the number, and the factor.

        Where nothing of the shape is found out the factor is 0; where more than rows is, None.
        """
        # The graph keeps its shapes, so that no other can have the id of one.
        found = self._known.get(id(shape))
        return _rows(shape, self._outputs) if found is None else found


_Rows: TypeAlias = tuple[int | None, Dim | None]


@derived
def _found_outputs(graph: Graph) -> dict[str, int]:
    """For symbols which output holds their numbers: these are the last."""
    return {c.symbol: len(graph.results) + i for i, c in enumerate(graph.counts)}


@derived
def _rows_of_shapes(graph: Graph) -> dict[int, _Rows]:
    outputs = _found_outputs(graph)
    return {id(value.shape): _rows(value.shape, outputs) for value in graph.values()}


def _rows(shape: Sequence[Dim], outputs: Mapping[str, int]) -> _Rows:
    open_axes = [depends(dim, outputs) for dim in shape]
    if not any(open_axes):
        return None, 0
    # No axis but the outermost may depend on what steps find out.
    found = None if any(open_axes[1:]) else multiple_of(shape[0], outputs)
    return (None, None) if found is None else (outputs[found[0]], found[1])


def _factors(
    step: StepLayout, rows_of_shape: _ShapeRows, sizes: Mapping[str, int]
) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """The output that the rows of a kernel's step are counted by, and factors of its values.

    None where it treats rows together, or where values other than rows are found out.
    """
    if step.choice.kernel is None or not step.dims:
        return None
    counts, factors = set[int](), []
    for shape in step.dims:
        output, factor = rows_of_shape(shape)
        if factor is None:
            return None
        if output is not None:
            counts.add(output)
        factors.append(evaluate(factor, sizes))
    ins, outs = factors[: len(step.inputs)], factors[len(step.inputs) :]
    if len(counts) != 1 or 0 in outs:
        return None
    return counts.pop(), tuple(ins), tuple(outs)


def all_counted_steps(plan: Plan) -> tuple[CountedSteps, ...]:
    """Steps that are worth running for fewer rows, for each number that is found."""
    groups: dict[int, list[int]] = defaultdict(list)
    for i, step in enumerate(plan.steps):
        if step.rows is not None:
            groups[step.rows.source].append(i)
    found = []
    for count, able in groups.items():
        heavy = {i for i in able if plan.steps[i].estimate >= _HEAVY}
        micros = sum(plan.steps[i].estimate for i in heavy)
        if micros < _WORTH:
            continue
        taken = set[int]()
        read = set[int]()
        for i in able:  # in order, so that whoever reads comes later
            rows = plan.steps[i].rows
            if rows is not None and (i in heavy or i in read):
                taken.add(i)
                read.update(rows.readers, rows.whole)
        steps = tuple(sorted(taken))
        bound = max(_bound(plan.steps[i]) for i in steps)
        known = max(r.known for i in steps if (r := plan.steps[i].rows) is not None)
        found.append(CountedSteps(count, known, bound, micros, steps))
    return tuple(found)


def _bound(step: Step) -> int:
    """The number from which on a step computes all of its rows."""
    return max(-(-slot.view.shape[0] // factor) for slot, factor in _with_factors(step) if factor)


def _with_factors(step: Step) -> Iterator[tuple[Slot, int]]:
    assert step.rows is not None
    slots, factors = (*step.inputs, *step.outputs), (*step.rows.inputs, *step.rows.outputs)
    return zip(slots, factors, strict=True)


def rows_of(view: View, factor: int, number: int) -> int:
    """How many rows of a value there are for a number; all of them without a factor."""
    return min(number * factor, view.shape[0]) if factor else view.shape[0]


def with_rows(step: Step, number: int) -> tuple[Op, tuple[View, ...], tuple[View, ...]]:
    """A step with `RowCount` for fewer of them: operator, operands, results.

    Args:
        step: The step.
        number: What the count is.
    """
    assert step.rows is not None

    def cut(views: Sequence[View], factors: Sequence[int]) -> tuple[View, ...]:
        return tuple(
            view._replace(shape=(rows_of(view, factor, number), *view.shape[1:]))
            if factor
            else view
            for view, factor in zip(views, factors, strict=True)
        )

    ins = cut([slot.view for slot in step.inputs], step.rows.inputs)
    outs = cut([slot.view for slot in step.outputs], step.rows.outputs)
    # Of all operators that have sizes inside, only copies are made without a node of the graph.
    return (copy_of(outs[0].shape) if step.is_reorder else step.op), ins, outs
