"""Trees of Pointwise operators become one each: a whole expression is one pass over memory.

    Pointwise f(…, g(x…), …)  ->  Pointwise f∘g

Must not touch: results that are read elsewhere; a costly expression over a smaller tensor (it would
be computed again for every element that it is broadcast to); more than eight operands; changes of
the element type on the way; expressions longer than a bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.ir import Node
from saccade.opdefs import Pointwise
from saccade.passes._editor import Editor
from saccade.passes._merge import Merge, inner_candidates, is_cheap, merge, refuse_merge
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]


def match(editor: Editor, node: Node) -> list[Merge] | None:
    """A Pointwise and those that it reads."""
    return inner_candidates(editor, node) or None


def refuse(editor: Editor, pairs: Sequence[Merge]) -> str | None:
    """The last reason, if none of them can be merged."""
    reason = None
    for pair in pairs:
        reason = _refuse(editor, pair)
        if reason is None:
            return None
    return reason


def _refuse(editor: Editor, pair: Merge) -> str | None:
    assert isinstance(pair.inner.op, Pointwise)
    smaller = pair.inner.output.shape != pair.outer.output.shape
    if smaller and not is_cheap(pair.inner.op.expr):
        return f"%{pair.inner.output.name} is broadcast and costly to compute again"
    return refuse_merge(editor, pair)


def rewrite(editor: Editor, pairs: Sequence[Merge]) -> None:
    """Merge the first that can be."""
    merge(editor, next(pair for pair in pairs if _refuse(editor, pair) is None))


PASS = Pass(
    "fuse_pointwise",
    (Rule(match, refuse, rewrite),),
    after=("merge_activations", "fuse_epilogue", "fuse_store"),
)
