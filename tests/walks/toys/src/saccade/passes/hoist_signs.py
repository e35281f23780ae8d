"""A sign leaves an odd function, and becomes part of what reads the result.

    Cube(neg(x))  ->  neg(Cube(x))

Must not touch: a negation whose result is read elsewhere, which would have to stay.
"""

from __future__ import annotations

from saccade.ir import Node
from saccade.ir.expr import parse
from saccade.opdefs import Cube, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

_NEGATION = parse("neg($0)")


def match(editor: Editor, node: Node) -> tuple[Node, Node] | None:
    """A Cube, and the negation that it reads."""
    if not isinstance(node.op, Cube):
        return None
    inner = editor.producer(node.inputs[0])
    negates = inner is not None and isinstance(inner.op, Pointwise) and inner.op.expr == _NEGATION
    return (node, inner) if inner is not None and negates else None


def refuse(editor: Editor, found: tuple[Node, Node]) -> str | None:
    """See the case above."""
    _, negation = found
    if editor.single_use(negation.output):
        return None
    return f"%{negation.output.name} is read elsewhere"


def rewrite(editor: Editor, found: tuple[Node, Node]) -> None:
    """Negate what comes out."""
    cube, negation = found
    cubed = editor.emit(cube, cube.op, negation.inputs)
    editor.replace(cube, negation.op, [cubed])


PASS = Pass(
    "hoist_signs",
    (Rule(match, refuse, rewrite),),
    after=("simplify_expressions",),
)
