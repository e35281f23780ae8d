"""Slices that indices name are no intermediates of arithmetic.

    a = Gather(x, i)
    y = Pointwise(a, b, …)   ->   y = GatheredPointwise(x, b, …, i)

for each operand that is one: interpolation to a size that a step found reads four slices of every
image, which would be as large as its result. A conversion of x to another storage that only slices
are taken of goes, too.

Must not touch: slices that anyone else reads or the caller gets; slices that the result repeats,
which would be looked up again for each element; indices of several axes, or of none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from saccade.backends.fusions import GatheredPointwise
from saccade.backends.fusions.counted_walks import unconverted
from saccade.ir import Node, Value
from saccade.opdefs import Gather, Pointwise
from saccade.passes import Pass, Rule
from saccade.passes._editor import Editor

__all__ = ["PASS"]


@dataclass(frozen=True, slots=True)
class _Sliced:
    """What is fused.

    Attributes:
        node: The arithmetic.
        slices: For operands of it what takes them.
    """

    node: Node
    slices: Mapping[int, Node]


def match(editor: Editor, node: Node) -> _Sliced | None:
    """Arithmetic on slices."""
    if not isinstance(node.op, Pointwise):
        return None
    makers = ((place, editor.producer(value)) for place, value in enumerate(node.inputs))
    slices = {place: m for place, m in makers if m is not None and isinstance(m.op, Gather)}
    return _Sliced(node, slices) if slices else None


def _refusal(editor: Editor, found: _Sliced, gather: Node) -> str | None:
    if gather.inputs[1].rank != 1:
        return "its indices have several axes, or none"
    if not editor.single_use(gather.output):
        return "its slices are read elsewhere"
    repeated = gather.output.shape != found.node.output.shape
    return "the result repeats its slices" if repeated else None


def refuse(editor: Editor, found: _Sliced) -> str | None:
    """Why none of the slices can be read where they are."""
    refused = [_refusal(editor, found, gather) for gather in found.slices.values()]
    return refused[0] if all(refused) else None


def rewrite(editor: Editor, found: _Sliced) -> None:
    """Read them where they are."""
    node, op = found.node, found.node.op
    assert isinstance(op, Pointwise)
    operands, picks, indices = list(node.inputs), [(-1, -1)] * len(node.inputs), list[Value]()
    sources = dict[Value, Value]()  # several slices are of one value
    for place, gather in found.slices.items():
        if _refusal(editor, found, gather) is not None:
            continue
        assert isinstance(gather.op, Gather)
        data, where = gather.inputs
        if where not in indices:
            indices.append(where)
        if data not in sources:
            sources[data] = unconverted(editor, data, node)
        operands[place] = sources[data]
        picks[place] = gather.op.axis, indices.index(where)
    fused = GatheredPointwise(op.expr, op.dtype, tuple(picks))
    editor.replace(node, fused, (*operands, *indices))


PASS = Pass("fuse_gathers", (Rule(match, refuse, rewrite),), after=("fuse_pointwise",))
