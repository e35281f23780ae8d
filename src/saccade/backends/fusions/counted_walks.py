"""Operators that go through a result element by element, told how much of it is true.

    Pointwise(x), Gather(x, i)  ->  GatheredPointwise<counted>(x, …, numbers)

where steps find out how many elements there are: a map that is enlarged to a box has room for one
as large as the image. What is told goes through what is true, whatever it is planned for.

Must not touch axes whose number comes later, or is a part of another one; results that are small
whatever there is; slices by several axes of indices, or of what arithmetic does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from saccade.backends.fusions.gathered_pointwise import GatheredPointwise
from saccade.ir import Dim, DType, Graph, Node, Value
from saccade.ir.counts import multiple_of
from saccade.ir.dim import evaluate, product, substituted, symbols_of
from saccade.ir.expr import IDENTITY
from saccade.opdefs import Gather, Move, Pointwise
from saccade.passes._editor import Editor

__all__ = ["FoundNumbers", "tell_each", "tell_walk", "unconverted"]

_WORTH = 1 << 18
"""Elements of a result that take about as long as finding out how many there are (an estimate)."""
_SIDE = 512  # of images whose size is not known: what it decides is compared by this (by eye)
_NUMBERS = (DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.BOOL)
"""What slices may be of, to be walked as arithmetic is, which leaves them what they are."""


class FoundNumbers(NamedTuple):
    """What steps of a graph find out.

    Attributes:
        values: By symbol.
        bounds: What they never exceed.
        known: The values that are there without a step.
    """

    values: dict[str, Value]
    bounds: dict[str, Dim]
    known: frozenset[Value]

    @classmethod
    def of(cls, graph: Graph) -> FoundNumbers:
        """Those of a graph."""
        outputs = graph.outputs[len(graph.results) :]
        return cls(
            {c.symbol: value for c, value in zip(graph.counts, outputs, strict=True)},
            {c.symbol: c.bound for c in graph.counts},
            frozenset({*graph.inputs, *graph.constants}),
        )

    def number(self, editor: Editor, node: Node, size: Dim) -> Value | None:
        """What says how much of an axis is true, where that is known in front of a node."""
        found = multiple_of(size, self.values)
        if found is None or found[1] != 1:
            return None
        value = self.values[found[0]]
        maker = editor.producer(value)
        before = value in self.known if maker is None else editor.before(maker, node)
        return value if before else None


def tell_each(graph: Graph, tell: Callable[[Editor, Node, FoundNumbers], None]) -> Graph:
    """The graph once `tell` has seen each of its nodes, if there is anything to tell."""
    if not graph.counts:
        return graph
    numbers, editor = FoundNumbers.of(graph), Editor(graph)
    for node in editor.nodes():
        # What only slices were taken of may be gone.
        if editor.alive(node):
            tell(editor, node, numbers)
    return editor.graph()


def tell_walk(editor: Editor, node: Node, numbers: FoundNumbers, *, inside: bool = False) -> None:
    """Tell a node of the sizes of its result, if it is one that may be told.

    Args:
        editor: The graph.
        node: Any.
        numbers: What is found out in it.
        inside: Whether only results are worth it that an axis but the outermost is open of, and
            slices have the type of what they are of.
    """
    op, result = node.op, node.output if len(node.outputs) == 1 else None
    if result is None or not isinstance(op, Gather | Pointwise | GatheredPointwise):
        return
    room = product(tuple(substituted(dim, numbers.bounds) for dim in result.shape))
    if evaluate(room, dict.fromkeys(symbols_of(room), _SIDE)) < _WORTH:
        return
    found = [numbers.number(editor, node, dim) for dim in result.shape]
    counted = tuple(axis for axis, number in enumerate(found) if number is not None)
    if not any(counted) if inside else not counted:
        return
    inputs = node.inputs
    if isinstance(op, Gather):
        if inputs[1].rank != 1 or result.dtype not in _NUMBERS:
            return
        op, inputs = _sliced(editor, node, inputs[0] if inside else None)
    elif isinstance(op, Pointwise):
        op = GatheredPointwise(op.expr, op.dtype, ((-1, -1),) * len(inputs))
    assert isinstance(op, GatheredPointwise)
    if not op.counted:
        told = (number for number in found if number is not None)
        editor.replace(node, replace(op, counted=counted), (*inputs, *told))


def _sliced(
    editor: Editor, node: Node, source: Value | None
) -> tuple[GatheredPointwise, tuple[Value, ...]]:
    """Slices that nothing is computed of, as arithmetic: the operator and its operands."""
    op, (data, where) = node.op, node.inputs
    assert isinstance(op, Gather)
    fused = GatheredPointwise(IDENTITY, node.output.dtype.arithmetic, ((op.axis, 0),))
    return fused, (source or unconverted(editor, data, node), where)


def unconverted(editor: Editor, data: Value, node: Node) -> Value:
    """What is converted to another storage, and perhaps moved then, for slices alone."""
    maker = editor.producer(data)
    if maker is None or editor.is_output(data) or not _is_sliced_alone(editor, data):
        return data
    if isinstance(maker.op, Move):
        source = unconverted(editor, maker.inputs[0], node)
        return data if source is maker.inputs[0] else editor.emit(node, maker.op, (source,))
    if maker.op != Pointwise(IDENTITY, data.dtype.arithmetic):
        return data
    (source,) = maker.inputs
    return source if source.dtype.arithmetic is data.dtype.arithmetic else data


def _is_sliced_alone(editor: Editor, data: Value) -> bool:
    return all(isinstance(reader.op, Gather | Move) for reader in editor.readers(data))
