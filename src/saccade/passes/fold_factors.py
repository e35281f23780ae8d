"""A number that scales an operand of a matrix product scales its result instead.

    MatMul(c·a, d·b)  ->  MatMul(a, b) with epilogue f(c·d·$0)

as in attention. It sees what no epilogue has taken (the half of a gelu belongs to the product in
front of it, not to the one behind). Must not touch: scaled operands that others read too, factors
that are zero or not finite, integers, and factors so far from 1 that sums without them could
overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from saccade.ir import Node
from saccade.ir import expr as e
from saccade.opdefs import MatMul, Pointwise
from saccade.passes._editor import Editor
from saccade.passes._pass import Pass, Rule

__all__ = ["PASS"]

# float32 has exponents up to 127: sums may grow by so much and stay far from its ends.
_SMALLEST, _LARGEST = 2.0**-16, 2.0**16


@dataclass(frozen=True, slots=True)
class _FactorMatch:
    product: Node
    position: int
    pointwise: Node
    factor: float


def match(editor: Editor, node: Node) -> _FactorMatch | None:
    """A matrix product with an operand that a Pointwise multiplies with a number."""
    if not isinstance(node.op, MatMul):
        return None
    for position in (0, 1):
        maker = editor.producer(node.inputs[position])
        if maker is None or not isinstance(maker.op, Pointwise) or len(maker.inputs) != 1:
            continue
        expr = maker.op.expr
        if expr.op in ("mul", "div") and expr.args[0] == e.IDENTITY and expr.args[1].op == "const":
            value = expr.args[1].value
            factor = value if expr.op == "mul" or not value else 1 / value
            return _FactorMatch(node, position, maker, factor)
    return None


def refuse(editor: Editor, found: _FactorMatch) -> str | None:
    """See the cases above."""
    source, scaled = found.pointwise.inputs[0], found.pointwise.output
    if not editor.single_use(scaled) or found.product.inputs.count(scaled) > 1:
        return f"%{scaled.name} is also read elsewhere"
    if source.dtype is not scaled.dtype or not scaled.dtype.is_float:
        return "the arithmetic is not floating point throughout"
    size = abs(found.factor)
    if not math.isfinite(size) or not _SMALLEST <= size <= _LARGEST:
        return f"sums without the factor {found.factor:g} could overflow"
    return None


def rewrite(editor: Editor, found: _FactorMatch) -> None:
    """Scale the sums."""
    product = found.product
    assert isinstance(product.op, MatMul)
    scaled = e.apply("mul", e.arg(0), e.const(found.factor))
    inputs = list(product.inputs)
    inputs[found.position] = found.pointwise.inputs[0]
    op = replace(product.op, epilogue=e.substitute(product.op.epilogue, {0: scaled}))
    editor.replace(product, op, inputs)


PASS = Pass(
    "fold_factors",
    (Rule(match, refuse, rewrite),),
    after=("fuse_epilogue",),
)
