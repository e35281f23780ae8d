"""Evaluate what does not depend on the inputs.

    op(c1, c2, …)  ->  constant        when every operand is a constant

Must not touch nodes whose result is much larger than their operands (an Expand of one number to a
feature map is cheaper to repeat than to store), or takes long to compute with NumPy, or differs
from run to run (random numbers).
"""

from __future__ import annotations

from saccade.ir import BodyOp, Node, storage
from saccade.ir.dim import product
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

# Of one result: what is folded is kept in memory and in the cache on disk.
_MOST_BYTES = 64 << 20
# Up to here a result may be any number of times as large as its operands.
_SMALL_BYTES = 64 << 10
_GROWTH = 4
_MOST_FLOPS = 1 << 32  # seconds of NumPy


def match(editor: Editor, node: Node) -> Node | None:
    """A node whose operands are all constants."""
    known = bool(node.inputs) and all(editor.constant(v) is not None for v in node.inputs)
    return node if known else None


def refuse(editor: Editor, node: Node) -> str | None:
    """Results that each run makes anew, that are symbolic, or too large to keep."""
    if not node.op.pure:
        return "each run has results of its own"
    # Nobody knows for how long it would run.
    if isinstance(node.op, BodyOp):
        return "its bodies run with the model"
    total = 0
    for value in node.outputs:
        count = product(value.shape)
        if not isinstance(count, int):
            return f"the size of {value.name} is not known yet"
        total += count * value.dtype.itemsize
    # None of anything are as many at any size.
    if node.op.symbols:
        return "what it does depends on sizes"
    read = sum(array.nbytes for v in node.inputs if (array := editor.constant(v)) is not None)
    if total > _MOST_BYTES or total > max(_GROWTH * read, _SMALL_BYTES):
        return f"the result would take {total} bytes in place of {read}"
    most = editor.known_bytes + editor.limits.folded_bytes
    if editor.added_bytes + total > most:
        return f"folded constants would take more than {most} bytes"
    flops = node.op.work([v.type for v in node.inputs], [v.type for v in node.outputs]).flops
    return f"takes {flops} operations" if flops > _MOST_FLOPS else None


def rewrite(editor: Editor, node: Node) -> None:
    """Read the result instead of computing it."""
    arrays = [array for v in node.inputs if (array := editor.constant(v)) is not None]
    for value, array in zip(node.outputs, storage.reference(node.op, arrays), strict=True):
        editor.alias(value, editor.add_constant(array, value.name))


PASS = Pass("fold_constants", (Rule(match, refuse, rewrite),))
