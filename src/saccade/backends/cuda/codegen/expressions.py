"""Expressions of elements as lines of Triton, in float32.

What has no instruction of its own is written out so that the interpreter has it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isnan

from saccade.ir.expr import Expr, subtrees

__all__ = ["TritonLines"]

_UNARY: Mapping[str, str] = {
    "neg": "-{0}", "abs": "tl.abs({0})", "exp": "tl.exp({0})", "log": "tl.log({0})",
    "sqrt": "tl.sqrt_rn({0})", "rsqrt": "tl.rsqrt({0})", "reciprocal": "1.0 / {0}",
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})", "relu": "elementary.relu({0})",
    "sigmoid": "elementary.sigmoid({0})", "tanh": "elementary.tanh({0})", "erf": "tl.erf({0})",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})",
}  # fmt: skip
_BINARY: Mapping[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
}  # fmt: skip


class TritonLines:
    """TritonLines of a Triton function that compute expressions, each distinct subtree once.

    Args:
        names: What operands are called.

    Attributes:
        names: The same; more may be added.
        lines: So far.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self.lines: list[str] = []
        self._done: dict[Expr, str] = {}

    def add(self, line: str) -> None:
        """A line of the caller's."""
        self.lines.append(line)

    def expression(self, expr: Expr) -> str:
        """Compute it; what the result is called."""
        for part in subtrees(expr):
            if part not in self._done:
                self._done[part] = self._visit(part)
        return self._done[expr]

    def _visit(self, part: Expr) -> str:
        if part.op == "arg":
            return self.names[part.index]
        if part.op == "const":
            return _literal(part.value)
        text = _TEXTS[part.op](*(self._done[arg] for arg in part.args))
        name = f"t{len(self.lines)}"
        self.add(f"{name} = {text}")
        return name


def _literal(value: float) -> str:
    if isnan(value):
        return "float('nan')"
    if value in (inf, -inf):
        return f"float('{value}')"
    return repr(float(value))


_TEXTS: Mapping[str, Callable[..., str]] = {
    name: text.format for name, text in {**_UNARY, **_BINARY}.items()
}
