"""Scalar expressions: what a pointwise chain, a prologue or an epilogue computes for one element.

An expression is a frozen tree over the operands `$0, $1, …` of its owner. Shared subtrees are equal
values, so whoever evaluates or emits one does each distinct subtree once. In an epilogue `$0` is
the accumulator and `$1…` are the owner's epilogue operands; in a prologue `$0` is the loaded
element.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

__all__ = [
    "ARITY",
    "BIT_OPERATORS",
    "IDENTITY",
    "Expr",
    "apply",
    "arg",
    "const",
    "fold",
    "parse",
    "substitute",
    "subtrees",
]

T = TypeVar("T")

ARITY: dict[str, int] = {
    # unary
    "neg": 1, "abs": 1, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "reciprocal": 1, "floor": 1,
    "ceil": 1, "round": 1, "sign": 1, "relu": 1, "sigmoid": 1, "tanh": 1, "erf": 1, "softplus": 1,
    "softsign": 1, "hardswish": 1, "silu": 1, "gelu": 1, "mish": 1, "sin": 1, "cos": 1, "not": 1,
    "isnan": 1, "bit_not": 1,
    # binary
    "add": 2, "sub": 2, "mul": 2, "div": 2, "pow": 2, "min": 2, "max": 2, "mod": 2, "fmod": 2,
    "equal": 2, "less": 2, "less_equal": 2, "greater": 2, "greater_equal": 2, "and": 2, "or": 2,
    "xor": 2,
    # of bits: see BIT_OPERATORS
    "bit_and": 2, "bit_or": 2, "bit_xor": 2, "shift_left": 2, "shift_right": 2,
    # ternary: where(condition, then, else); clip(x, low, high); hard_sigmoid(x, alpha, beta)
    "where": 3, "clip": 3, "hard_sigmoid": 3,
    # leaky_relu(x, slope) serves LeakyRelu and PRelu; elu(x, alpha)
    "leaky_relu": 2, "elu": 2,
}  # fmt: skip
"""Operators of expressions and how many operands each takes."""
BIT_OPERATORS = frozenset(("bit_not", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"))
"""Those that numbers other than integers do not have.

Shifts by less than none, or by at least as many bits as there are, leave what the sign's bit fills
up: 0, or -1 of a negative integer that is shifted to the right.
"""


@dataclass(frozen=True, slots=True)
class Expr:
    """One node: `arg` (operand `index`), `const` (`value`), or an operator of `ARITY` on `args`."""

    op: str
    args: tuple[Expr, ...] = ()
    index: int = 0
    value: float = 0.0
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    _text: str = field(init=False, repr=False, compare=False, default="")
    _operands: int = field(init=False, repr=False, compare=False, default=-1)

    def __post_init__(self) -> None:
        # Kept, because the hash of a tree with shared subtrees would otherwise visit each path.
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.index, self.value)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # Planning compares thousands, most of which are one object or have different hashes.
        if self is other:
            return True
        if not isinstance(other, Expr):
            return NotImplemented
        if self._hash != other._hash or (self.op, self.index) != (other.op, other.index):
            return False
        return (self.value, self.args) == (other.value, other.args)

    def __reduce__(self) -> tuple[type[Expr], tuple[object, ...]]:
        """Rebuild on unpickling: hashes of strings differ between processes."""
        return Expr, (self.op, self.args, self.index, self.value)

    def __str__(self) -> str:
        # Made once, as a tree with shared subtrees is as long as all of its paths.
        if not self._text:
            object.__setattr__(self, "_text", self._written())
        return self._text

    def _written(self) -> str:
        if self.op == "arg":
            return f"${self.index}"
        if self.op == "const":
            return repr(float(self.value))
        return f"{self.op}({', '.join(map(str, self.args))})"

    @property
    def operands(self) -> int:
        """One more than the largest operand index, 0 when there is none."""
        if self._operands < 0:
            object.__setattr__(self, "_operands", fold(self, _one_more, _none, _largest))
        return self._operands


def _one_more(index: int) -> int:
    return index + 1


def _none(_: float) -> int:
    return 0


def _largest(_: str, values: tuple[int, ...]) -> int:
    return max(values, default=0)


@lru_cache(maxsize=1024)  # every plan asks for the same few
def arg(index: int) -> Expr:
    """Operand `index`."""
    return Expr("arg", index=index)


def const(value: float) -> Expr:
    """A literal."""
    return Expr("const", value=float(value))


def apply(op: str, *args: Expr) -> Expr:
    """`op` over `args`.

    Raises:
        ValueError: If there is no such operator or the count of operands is wrong.
    """
    if ARITY.get(op) != len(args):
        raise ValueError(f"{op} over {len(args)} operands is not an expression")
    return Expr(op, tuple(args))


IDENTITY = arg(0)


def fold(
    expr: Expr,
    on_arg: Callable[[int], T],
    on_const: Callable[[float], T],
    on_apply: Callable[[str, tuple[T, ...]], T],
) -> T:
    """Evaluate bottom-up, each distinct subtree once."""
    done: dict[Expr, T] = {}

    def visit(e: Expr) -> T:
        if e not in done:
            if e.op == "arg":
                done[e] = on_arg(e.index)
            elif e.op == "const":
                done[e] = on_const(e.value)
            else:
                done[e] = on_apply(e.op, tuple(visit(a) for a in e.args))
        return done[e]

    return visit(expr)


def subtrees(expr: Expr) -> tuple[Expr, ...]:
    """Every distinct subtree, operands before what takes them."""
    # A dict as an ordered set: whoever emits code in this order has operands at hand.
    found: dict[Expr, None] = {}

    def visit(e: Expr) -> None:
        if e not in found:
            for operand in e.args:
                visit(operand)
            found[e] = None

    visit(expr)
    return tuple(found)


def substitute(expr: Expr, operands: Mapping[int, Expr]) -> Expr:
    """Replace operands by expressions; operands not named stay."""
    return fold(
        expr,
        lambda i: operands.get(i, arg(i)),
        const,
        Expr,
    )


# Only what a parenthesis follows is an operator, so that `inf` and `nan` are numbers. A sign
# belongs to its number: there are no infix operators.
_TOKEN = re.compile(r"\s*(\$\d+|[a-z_]+(?=\()|[(),]|[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan))")


def parse(text: str) -> Expr:
    """Inverse of `str(expr)`.

    Raises:
        ValueError: If it is not the text of an expression.
    """
    tokens = _TOKEN.findall(text)
    # `findall` skips what it does not know, so that nothing may be missing.
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise ValueError(f"{text!r} is not an expression")
    expr, position = _parse(tokens, 0)
    if position != len(tokens):
        raise ValueError(f"{text!r} is not an expression")
    return expr


def _parse(tokens: list[str], at: int) -> tuple[Expr, int]:
    if at >= len(tokens):
        raise ValueError("an expression ends too early")
    head = tokens[at]
    if head.startswith("$"):
        return arg(int(head[1:])), at + 1
    # For anything but a number `float` raises the ValueError that is promised.
    if head not in ARITY:
        return const(float(head)), at + 1
    args: list[Expr] = []
    at += 1
    for position in range(ARITY[head]):
        at = _expect(tokens, at, "," if position else "(")
        value, at = _parse(tokens, at)
        args.append(value)
    return apply(head, *args), _expect(tokens, at, ")")


def _expect(tokens: list[str], at: int, sign: str) -> int:
    if tokens[at : at + 1] != [sign]:
        raise ValueError(f"an expression lacks {sign!r}")
    return at + 1
