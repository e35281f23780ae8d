"""Steps of one activation become one Pointwise.

    mul(x, sigmoid(x))                       ->  mul($0, sigmoid($0)) over (x)
    relu(add(mul(x, scale), shift))          ->  one expression over (x, scale, shift)

That is, two Pointwise operators merge when they read one tensor and constants. The tensor then
has one reader instead of several, so that whoever produces it can compute the activation as its
epilogue. Must not touch: merges over two tensors (the epilogues choose first; see
fuse_pointwise), results that are read elsewhere, smaller tensors that are broadcast, changes of
the element type.
"""

from __future__ import annotations

from saccade.ir import Node
from saccade.passes._editor import Editor
from saccade.passes._merge import Merge, inner_candidates, merge, operands_of, refuse_merge
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]


def match(editor: Editor, node: Node) -> Merge | None:
    """A Pointwise over another one, which together read one tensor of the result's shape."""
    for pair in inner_candidates(editor, node):
        tensors = [value for value in operands_of(pair) if editor.constant(value) is None]
        if len(tensors) == 1 and tensors[0].shape == node.output.shape:
            return pair
    return None


def refuse(editor: Editor, pair: Merge) -> str | None:
    """See the cases above."""
    return refuse_merge(editor, pair)


def rewrite(editor: Editor, pair: Merge) -> None:
    """Compute both in one."""
    merge(editor, pair)


PASS = Pass(
    "merge_activations",
    (Rule(match, refuse, rewrite),),
    after=("normalise_operands", "fold_scale_shift"),
)
