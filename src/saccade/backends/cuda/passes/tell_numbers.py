"""Operators that are told how much of an operand, or of their result, there is.

    RoiAlign(x, boxes, images)  ->  RoiAlign<counted>(x, boxes, images, number)
    TopK(x)                     ->  TopK<counted>(x, number)
    Pointwise(x), Gather(x, i)  ->  GatheredPointwise<counted>(x, …, numbers)

where steps find out how many boxes or elements there are: a plan has room for the most there could
be, each level of a pyramid for the boxes of all of them. CPUs run steps for fewer rows
(`plan/rows.py`); a graph of launches has as many programs in each run. Of those that have nothing
to do most end at once; those that walk a result (`fusions/counted_walks.py`) are few, and go
through what is true.

Must not touch operands whose number comes later, or is a part of another one.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.fusions.counted_walks import FoundNumbers, tell_each, tell_walk
from saccade.ir import Graph, Node
from saccade.opdefs import RoiAlign, TopK
from saccade.passes import Pass
from saccade.passes._editor import Editor

__all__ = ["PASS", "tell"]


def tell(graph: Graph) -> Graph:
    """The graph with numbers of boxes and elements, where they are known."""
    return tell_each(graph, _tell)


def _tell(editor: Editor, node: Node, numbers: FoundNumbers) -> None:
    op = node.op
    if not isinstance(op, RoiAlign | TopK):
        tell_walk(editor, node, numbers)
    elif not op.counted:
        size = node.inputs[0].shape[op.axis] if isinstance(op, TopK) else node.inputs[1].shape[0]
        number = numbers.number(editor, node, size)
        if number is not None:
            editor.replace(node, replace(op, counted=True), (*node.inputs, number))


PASS = Pass("tell_numbers", whole=tell)
