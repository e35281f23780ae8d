"""Operators that are told how much of an operand, or of their result, there is.

    RoiAlign(x, boxes, images)  ->  RoiAlign<counted>(x, boxes, images, number)
    TopK(x)                     ->  TopK<counted>(x, number)
    Pointwise(x), Gather(x, i)  ->  GatheredPointwise<counted>(x, …, numbers)

where steps find out how many boxes or elements there are: a plan has room for the most there could
be, each level of a pyramid for the boxes of all of them, a map that is enlarged to a box for one as
large as the image. CPUs run steps for fewer rows (`plan/rows.py`); a graph of launches has as
many programs in each run. Of those that have nothing to do most end at once; those that walk a
result are few, and go through what is true.

Must not touch operands whose number comes later, or is a part of another one; results that are
small whatever there is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from saccade.backends.cuda.fusions import GatheredPointwise
from saccade.backends.cuda.passes.fuse_gathers import sliced
from saccade.ir import Dim, DType, Graph, Node, Value
from saccade.ir.counts import multiple_of
from saccade.ir.dim import evaluate, product, substituted, symbols_of
from saccade.opdefs import Gather, Pointwise, RoiAlign, TopK
from saccade.passes import Pass
from saccade.passes._editor import Editor

__all__ = ["PASS", "tell"]

_WORTH = 1 << 18
"""Elements of a result that take about as long as finding out how many there are (an estimate)."""
_SIDE = 512  # of images whose size is not known: what it decides is compared by this (by eye)
_NUMBERS = (DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.BOOL)
"""What slices may be of, to be walked as arithmetic is, which leaves them what they are."""


class _FoundNumbers(NamedTuple):
    """What steps find out.

    Attributes:
        values: By symbol.
        bounds: What they never exceed.
        known: The values that are there without a step.
    """

    values: dict[str, Value]
    bounds: dict[str, Dim]
    known: frozenset[Value]


def tell(graph: Graph) -> Graph:
    """The graph with numbers of boxes and elements, where they are known."""
    if not graph.counts:
        return graph
    outputs = graph.outputs[len(graph.results) :]
    numbers = _FoundNumbers(
        {c.symbol: value for c, value in zip(graph.counts, outputs, strict=True)},
        {c.symbol: c.bound for c in graph.counts},
        frozenset({*graph.inputs, *graph.constants}),
    )
    editor = Editor(graph)
    for node in editor.nodes():
        # What only slices were taken of may be gone.
        if editor.alive(node):
            _tell(editor, node, numbers)
    return editor.graph()


def _tell(editor: Editor, node: Node, numbers: _FoundNumbers) -> None:
    op = node.op
    if isinstance(op, RoiAlign | TopK) and not op.counted:
        size = node.inputs[0].shape[op.axis] if isinstance(op, TopK) else node.inputs[1].shape[0]
        number = _number(editor, node, size, numbers)
        if number is not None:
            editor.replace(node, replace(op, counted=True), (*node.inputs, number))
    elif isinstance(op, Gather | Pointwise | GatheredPointwise):
        _tell_walk(editor, node, numbers)


def _tell_walk(editor: Editor, node: Node, numbers: _FoundNumbers) -> None:
    """An operator that goes through its result element by element."""
    op, result = node.op, node.output
    room = product(tuple(substituted(dim, numbers.bounds) for dim in result.shape))
    if evaluate(room, dict.fromkeys(symbols_of(room), _SIDE)) < _WORTH:
        return
    found = [_number(editor, node, dim, numbers) for dim in result.shape]
    counted = tuple(axis for axis, number in enumerate(found) if number is not None)
    if not counted:
        return
    inputs = node.inputs
    if isinstance(op, Gather):
        if inputs[1].rank != 1 or result.dtype not in _NUMBERS:
            return
        op, inputs = sliced(editor, node)
    elif isinstance(op, Pointwise):
        op = GatheredPointwise(op.expr, op.dtype, ((-1, -1),) * len(inputs))
    assert isinstance(op, GatheredPointwise)
    if not op.counted:
        told = (number for number in found if number is not None)
        editor.replace(node, replace(op, counted=counted), (*inputs, *told))


def _number(editor: Editor, node: Node, size: Dim, numbers: _FoundNumbers) -> Value | None:
    """What says how much of an axis is true, where that is known in front of a node."""
    found = multiple_of(size, numbers.values)
    if found is None or found[1] != 1:
        return None
    value = numbers.values[found[0]]
    maker = editor.producer(value)
    before = value in numbers.known if maker is None else editor.before(maker, node)
    return value if before else None


PASS = Pass("tell_numbers", whole=tell)
