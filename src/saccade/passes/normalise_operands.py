"""Let a Pointwise read each tensor once, and no tensor for a number.

    mul(x, x)          ->  mul($0, $0) over (x)
    mul(x, const [1])  ->  mul($0, 0.5) over (x)

Must not touch operands that give the result its shape or its element type, nor integers that a
float64 literal cannot hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saccade.ir import Array, DType, Expr, Node, Value, storage
from saccade.ir import expr as e
from saccade.ir.op import TensorType
from saccade.opdefs import Pointwise
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

# Literals are float64, which holds all integers below this.
_EXACT = 1 << 53


@dataclass(frozen=True, slots=True)
class _LiteralMatch:
    node: Node
    literals: dict[Value, float]


def match(editor: Editor, node: Node) -> _LiteralMatch | None:
    """A Pointwise with a number or a repeated tensor among its operands."""
    if not isinstance(node.op, Pointwise):
        return None
    literals = {
        value: float(storage.widened(array).reshape(())) for value in node.inputs
        if (array := editor.constant(value)) is not None and _is_number(storage.widened(array))
    }  # fmt: skip
    repeated = len(set(node.inputs)) < len(node.inputs)
    return _LiteralMatch(node, literals) if literals or repeated else None


def _is_number(array: Array) -> bool:
    if array.size != 1 or array.dtype == bool:
        return False
    return array.dtype.kind == "f" or abs(int(array.reshape(()))) < _EXACT


def refuse(_editor: Editor, found: _LiteralMatch) -> str | None:
    """Operands that are needed for the type of the result."""
    node = found.node
    rest = [value for value in node.inputs if value not in found.literals]
    # Literals take the type of the other operands.
    if all(value.dtype is DType.BOOL for value in rest):
        return "no other operand tells in which type to compute"
    op, inputs = _normal(found)
    (result,) = storage.infer(op, [value.type for value in inputs])
    if result != TensorType(node.output.dtype, node.output.shape):
        return "the numbers' axes belong to the shape of the result"
    return None


def rewrite(editor: Editor, found: _LiteralMatch) -> None:
    """Write the numbers into the expression."""
    op, inputs = _normal(found)
    editor.replace(found.node, op, inputs)


def _normal(found: _LiteralMatch) -> tuple[Pointwise, tuple[Value, ...]]:
    assert isinstance(found.node.op, Pointwise)
    places: dict[Value, int] = {}
    put: dict[int, Expr] = {}
    for index, value in enumerate(found.node.inputs):
        if value in found.literals:
            put[index] = e.const(found.literals[value])
        else:
            put[index] = e.arg(places.setdefault(value, len(places)))
    return replace(found.node.op, expr=e.substitute(found.node.op.expr, put)), tuple(places)


PASS = Pass("normalise_operands", (Rule(match, refuse, rewrite),), after=("fold_constants",))
