"""What a pass is: rules that match, refuse with a reason, or rewrite; and how they are applied."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from saccade.ir import Graph, Node
from saccade.limits import Deadline, Limits
from saccade.passes._editor import Editor

__all__ = ["Note", "Pass", "Rule", "apply"]

M = TypeVar("M")

_REWRITES_PER_NODE = 50
"""A pass that rewrites more often than this runs in a circle."""


@dataclass(frozen=True, slots=True)
class Note:
    """Why a pass left a node alone.

    Attributes:
        node: Name of the node.
        pass_name: Name of the pass.
        reason: For people.
    """

    node: str
    pass_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rule(Generic[M]):
    """One rewrite.

    Attributes:
        match: What the rewrite would work on, seen from a node; None if it looks different.
        refuse: Why a match must stay as it is; None when the rewrite may go ahead.
        rewrite: Does it.
    """

    match: Callable[[Editor, Node], M | None]
    refuse: Callable[[Editor, M], str | None]
    rewrite: Callable[[Editor, M], None]

    def apply(self, editor: Editor, node: Node) -> bool | str:
        """Rewrite what matches at a node.

        Returns:
            Whether anything was rewritten; the reason where the match must stay as it is.
        """
        found = self.match(editor, node)
        if found is None:
            return False
        reason = self.refuse(editor, found)
        if reason is not None:
            return reason
        editor.touched.clear()
        self.rewrite(editor, found)
        return True


class Rewriter(Protocol):
    """A rule, whatever its matches are: the rules of one pass hold different ones."""

    def apply(self, editor: Editor, node: Node) -> bool | str:
        """See `Rule.apply`."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Graph -> Graph.

    Attributes:
        name: As traces and notes show it.
        rules: Each is applied until nothing matches, one rule after the other.
        whole: A rewrite of the graph as a whole, before the rules: of what changes everywhere at
            once, or not at all.
        after: Names of passes that must have run before it.
        remarks: What it means that a node was left alone, if plans are to say so, and why.
    """

    name: str
    rules: tuple[Rewriter, ...] = ()
    after: tuple[str, ...] = ()
    remarks: str = ""
    whole: Callable[[Graph], Graph] | None = None


def apply(
    step: Pass, graph: Graph, limits: Limits | None = None, deadline: Deadline | None = None
) -> tuple[Graph, tuple[Note, ...]]:
    """The rewritten graph, and why nodes were left alone.

    Args:
        step: The pass.
        graph: Left as it is.
        limits: What rewrites may come to; the default ones if None.
        deadline: When to be done; `limits.seconds` from now if None.

    Raises:
        PlanError: After the deadline.
        RuntimeError: If the rules undo each other (a bug in Saccade).
    """
    limits = limits or Limits()
    deadline = deadline or Deadline(f"pass {step.name}", limits)
    deadline.check()
    refused: dict[tuple[Node, str], None] = {}
    with np.errstate(all="ignore"):  # folding computes what the file says, infinities included
        editor = Editor(graph if step.whole is None else step.whole(graph), limits)
        for rule in step.rules:
            _exhaust(rule, editor, refused, deadline)
    notes = tuple(Note(n.name, step.name, reason) for n, reason in refused if editor.alive(n))
    result = editor.graph()
    if step.remarks:
        said = (f"{n.node} {step.remarks}: {n.reason}" for n in notes)
        result = replace(result, remarks=(*result.remarks, *said))
    return result, notes


def _exhaust(
    rule: Rewriter, editor: Editor, refused: dict[tuple[Node, str], None], deadline: Deadline
) -> None:
    queue = deque(editor.nodes())
    budget = _REWRITES_PER_NODE * (len(queue) + 1)
    while queue:
        deadline.check()
        node = queue.popleft()
        done = editor.alive(node) and rule.apply(editor, node)
        if isinstance(done, str):
            refused[node, done] = None
        # The reason is kept, and the node may come up again: a rewrite near it can remove it.
        if done is not True:
            continue
        # First of all: what was just made is most likely to match once more.
        queue.extendleft(_disturbed(editor))
        budget -= 1
        if budget < 0:
            raise RuntimeError(f"rewriting does not come to an end at {node.name!r}")


def _disturbed(editor: Editor) -> list[Node]:
    """New nodes and those that read what they produce, the first to look at last."""
    fresh = [node for node in editor.touched if editor.alive(node)]
    near = dict.fromkeys(fresh)
    for node in fresh:
        for value in node.outputs:
            near.update(dict.fromkeys(editor.readers(value)))
    return list(near)[::-1]
