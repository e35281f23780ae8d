"""One Pointwise in place of two: what both merging passes share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from saccade.ir import DType, Expr, Node, Value
from saccade.ir.expr import ARITY, fold
from saccade.opdefs import Pointwise
from saccade.passes._editor import Editor
from saccade.passes._operands import inline, too_large

__all__ = [
    "Merge",
    "inner_candidates",
    "is_cheap",
    "merge",
    "operands_of",
    "refuse_merge",
]

_MOST_OPERANDS = 8
"""A kernel keeps a pointer for each operand in a register."""

_CHEAP = frozenset(("neg", "abs", "relu", "add", "sub", "mul", "min", "max", "clip", "leaky_relu"))
_LOGICAL = frozenset(
    ("equal", "less", "less_equal", "greater", "greater_equal", "not", "and", "or", "xor", "isnan")
)

_OF_TRUTH = frozenset(("not", "and", "or", "xor"))


@dataclass(frozen=True, slots=True)
class Merge:
    """A Pointwise and one that it reads."""

    outer: Node
    inner: Node


def inner_candidates(editor: Editor, node: Node) -> list[Merge]:
    """The Pointwise operators that a Pointwise reads."""
    if not isinstance(node.op, Pointwise):
        return []
    found = (editor.producer(value) for value in node.inputs)
    return [Merge(node, n) for n in found if n is not None and isinstance(n.op, Pointwise)]


def operands_of(pair: Merge) -> tuple[Value, ...]:
    """The operands of what both would be."""
    others = (value for value in pair.outer.inputs if value is not pair.inner.output)
    return tuple(dict.fromkeys((*pair.inner.inputs, *others)))


def merged(pair: Merge) -> tuple[Expr, tuple[Value, ...]]:
    """The expression of both, and its operands."""
    outer, inner = pair.outer.op, pair.inner.op
    assert isinstance(outer, Pointwise)
    assert isinstance(inner, Pointwise)
    return inline(outer.expr, pair.outer.inputs, pair.inner.output, inner.expr, pair.inner.inputs)


def merge(editor: Editor, pair: Merge) -> None:
    """Compute both in one."""
    expr, inputs = merged(pair)
    editor.replace(pair.outer, Pointwise(expr, pair.outer.output.dtype), inputs)


def refuse_merge(editor: Editor, pair: Merge) -> str | None:
    """What holds for every merge: one reader, one type of arithmetic, and few operands."""
    if not editor.single_use(pair.inner.output):
        return f"%{pair.inner.output.name} is also read elsewhere"
    reason = _refuse_types(pair)
    if reason is not None:
        return reason
    count = len(operands_of(pair))
    if count > _MOST_OPERANDS:
        return f"together they have {count} operands, more than {_MOST_OPERANDS}"
    outer, inner = pair.outer.op, pair.inner.op
    assert isinstance(outer, Pointwise)
    assert isinstance(inner, Pointwise)
    between = pair.inner.output
    return too_large(outer.expr, pair.outer.inputs, between, inner.expr, editor.limits)


def _refuse_types(pair: Merge) -> str | None:
    """Literals and arithmetic must stay in the type that they were in."""
    between = pair.inner.output
    inner = _arithmetic(pair.inner.inputs)
    outer = _arithmetic(v for v in pair.outer.inputs if v is not between)
    if between.dtype is DType.BOOL:
        assert isinstance(pair.inner.op, Pointwise)
        # The cast is `!= 0`, done where the result is stored: inlined, the number would be read.
        if pair.inner.op.expr.op not in _LOGICAL:
            return f"%{between.name} is a cast to bool"
        # With truth values alone beside it, the outer one computes in its result's type. Merged, it
        # would compute in that of the inner one's operands.
        if inner and not outer and not _only_logic(pair.outer):
            return f"the arithmetic after %{between.name} has no type of its own"
        same = not inner or not outer or inner == outer
    else:
        same = inner == {between.dtype} and outer <= inner
    return None if same else f"%{between.name} changes the element type"


def _only_logic(node: Node) -> bool:
    """Whether it computes truth values of truth values, in which no number has a part."""
    assert isinstance(node.op, Pointwise)
    used = set[str]()
    fold(node.op.expr, lambda _: None, lambda _: used.add("const"), lambda op, _: used.add(op))
    return node.op.dtype is DType.BOOL and used <= _OF_TRUTH


def _arithmetic(values: Iterable[Value]) -> set[DType]:
    # What narrow elements are loaded as is their own only to memory.
    kinds = (value.dtype.arithmetic if value.dtype.is_narrow else value.dtype for value in values)
    return {kind for kind in kinds if kind is not DType.BOOL}


def is_cheap(expr: Expr) -> bool:
    """Whether doing it again for every element costs less than a load."""
    used: set[str] = set()
    fold(expr, lambda _: None, lambda _: None, lambda op, _: used.add(op))
    assert used <= set(ARITY)
    return used <= _CHEAP
