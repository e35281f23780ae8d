"""Expressions of elements as lines of Triton.

Numbers are of one type, float32 unless said otherwise; comparisons and logic give truth values
(`tl.int1`), which become 0 and 1 where a number is wanted, as in the NumPy reference. What has no
instruction of its own is written out in `elementary` so that the interpreter has it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, isnan

import numpy as np

from saccade.ir.expr import Expr, subtrees

__all__ = [
    "FLOAT_OPERATORS", "INTEGER_OPERATORS", "WIDE_OPERATORS", "TritonLines", "missing_operator",
]  # fmt: skip

_COMPARISONS: Mapping[str, str] = {
    "equal": "{0} == {1}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}", "greater_equal": "{0} >= {1}",
}  # fmt: skip
"""Of numbers, or of two truth values."""
_LOGIC: Mapping[str, str] = {
    "not": "{0} == 0", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}",
}  # fmt: skip
"""Of truth values."""
_COMMON: Mapping[str, str] = {
    "neg": "-{0}", "abs": "tl.abs({0})", "add": "{0} + {1}", "sub": "{0} - {1}",
    "mul": "{0} * {1}", "relu": "elementary.maximum({0}, 0)",
    "min": "elementary.minimum({0}, {1})", "max": "elementary.maximum({0}, {1})",
    "clip": "elementary.clip({0}, {1}, {2})",
}  # fmt: skip
_WIDE: Mapping[str, str] = {
    **_COMMON, "div": "{0} / {1}", "reciprocal": "1.0 / {0}", "sqrt": "tl.sqrt({0})",
    "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
}  # fmt: skip
"""What float64 has, too."""
# Rounded as IEEE has it where Triton's own `/` and `sqrt` of float32 are approximations.
_FLOAT: Mapping[str, str] = {
    **_WIDE, "div": "tl.div_rn({0}, {1})", "reciprocal": "tl.div_rn(1.0, {0})",
    "sqrt": "tl.sqrt_rn({0})",
    "log": "tl.log({0})", "rsqrt": "tl.rsqrt({0})", "erf": "tl.erf({0})", "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    **{
        name: f"elementary.{name}({{0}})"
        for name in (
            "exp", "relu", "sign", "sigmoid", "tanh", "softplus", "softsign", "hardswish", "silu",
            "gelu", "mish",
        )
    },
    "round": "elementary.round_even({0})", "pow": "elementary.power({0}, {1})",
    "mod": "elementary.mod({0}, {1})", "fmod": "elementary.fmod({0}, {1})",
    "hard_sigmoid": "elementary.hard_sigmoid({0}, {1}, {2})",
    "leaky_relu": "elementary.leaky_relu({0}, {1})", "elu": "elementary.elu({0}, {1})",
}  # fmt: skip
_ROUNDED: Mapping[str, str] = {**_FLOAT, "gelu": "elementary.gelu_rounded({0})"}
"""Where the result is rounded to 16 bits."""
_INTEGER: Mapping[str, str] = {
    **_COMMON,
    "sign": "elementary.integer_sign({0})", "floor": "{0}", "ceil": "{0}", "round": "{0}",
    "div": "elementary.integer_div({0}, {1})", "mod": "elementary.integer_mod({0}, {1})",
    "fmod": "elementary.integer_fmod({0}, {1})", "min": "tl.minimum({0}, {1})",
    "max": "tl.maximum({0}, {1})", "clip": "tl.minimum(tl.maximum({0}, {1}), {2})",
    "relu": "tl.maximum({0}, tl.zeros_like({0}))",
    "bit_not": "~{0}", "bit_and": "{0} & {1}", "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}",
    "shift_left": "elementary.shift_left({0}, {1})",
    "shift_right": "elementary.shift_right({0}, {1})",
}  # fmt: skip
_POWERS: Mapping[float, str] = {
    1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", -1.0: "tl.div_rn(1.0, {0})",
}  # fmt: skip
"""To constant exponents, by multiplication as ONNX Runtime does."""
_TYPED = ("pow", "mod", "fmod")
"""Operators that ask for their operands' types."""
_TRUTHS = frozenset({*_COMPARISONS, *_LOGIC, "isnan"})
_ANY = _TRUTHS | {"where"}
FLOAT_OPERATORS = frozenset({*_FLOAT, *_ANY})
"""Operators on float32: all but those of bits."""
WIDE_OPERATORS = frozenset({*_WIDE, *_ANY})
"""Operators on float64."""
INTEGER_OPERATORS = frozenset({*_INTEGER, *_ANY})
"""Operators on integers of any width; arithmetic wraps around."""


class TritonLines:
    """Lines of a Triton function that compute expressions, each distinct subtree once.

    Args:
        names: What operands are called.
        kind: What numbers are: "float32", "float64" or an integer type, as Triton calls them.
        truths: Operands that are truth values.
        rounded: Whether results are rounded to 16 bits, from float32.

    Attributes:
        names: The same; more may be added.
        lines: So far.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        kind: str = "float32",
        truths: Collection[int] = (),
        *,
        rounded: bool = False,
    ) -> None:
        self.names = dict(names)
        self.lines: list[str] = []
        self._kind = kind
        self._truths = frozenset(truths)
        self._floats = kind.startswith("float")
        tables = {"float32": _ROUNDED if rounded else _FLOAT, "float64": _WIDE}
        self._table = tables[kind] if self._floats else _INTEGER
        # By kind, too: a subtree may be wanted as a number here and as a truth value there.
        self._done: dict[tuple[str, Expr], str] = {}

    def add(self, line: str) -> None:
        """A line of the caller's."""
        self.lines.append(line)

    def expression(self, expr: Expr) -> str:
        """Compute it as a number; what the result is called.

        Raises:
            KeyError: If there is no such operator on numbers of the kind.
        """
        self._each(expr)
        return self._number(expr)

    def truth(self, expr: Expr) -> str:
        """Compute whether it is not 0; what the result is called."""
        self._each(expr)
        return self._truth(expr)

    def _each(self, expr: Expr) -> None:
        """All of it, operands before what takes them."""
        for part in subtrees(expr):
            if self._is_truth(part):
                self._truth(part)
            else:
                self._number(part)

    def _is_truth(self, part: Expr) -> bool:
        if part.op == "where":
            return self._is_truth(part.args[1]) and self._is_truth(part.args[2])
        return part.op in _TRUTHS or (part.op == "arg" and part.index in self._truths)

    def _number(self, part: Expr) -> str:
        key = ("number", part)
        if key not in self._done:
            self._done[key] = self._number_of(part)
        return self._done[key]

    def _truth(self, part: Expr) -> str:
        key = ("truth", part)
        if key not in self._done:
            self._done[key] = self._truth_of(part)
        return self._done[key]

    def _number_of(self, part: Expr) -> str:
        if self._is_truth(part):
            return self._named(f"{self._truth(part)}.to(tl.{self._kind})")
        if part.op == "arg":
            return self.names[part.index]
        if part.op == "const":
            return self._literal(part.value)
        if part.op == "where":
            condition, yes, no = part.args
            chosen = f"{self._number(yes)}, {self._number(no)}"
            return self._named(f"tl.where({self._truth(condition)}, {chosen})")
        names = self._numbers(part.args)
        if part.op in _TYPED:
            shape = next((f"{n}.shape" for n in names if n.isidentifier()), "()")
            pairs = zip(part.args, names, strict=True)
            names = [self._typed(arg, name, shape) for arg, name in pairs]
        return self._named(self._text(part).format(*names))

    def _truth_of(self, part: Expr) -> str:
        if not self._is_truth(part):
            (number,) = self._numbers((part,))
            return self._named(f"{number} != 0")
        if part.op == "arg":
            return self.names[part.index]
        if part.op == "where":
            condition, yes, no = (self._truth(arg) for arg in part.args)
            return self._named(f"({condition} & {yes}) | (({condition} == 0) & {no})")
        if part.op in _LOGIC:
            return self._named(_LOGIC[part.op].format(*(self._truth(arg) for arg in part.args)))
        if part.op == "isnan":
            (number,) = self._numbers(part.args)
            return self._named(f"{number} != {number}")
        if all(self._is_truth(arg) for arg in part.args):
            # One bit would be compared as -1 and 0.
            values = [f"{self._truth(arg)}.to(tl.int32)" for arg in part.args]
        else:
            values = self._numbers(part.args)
        return self._named(_COMPARISONS[part.op].format(*values))

    def _numbers(self, args: tuple[Expr, ...]) -> list[str]:
        """Operands of one operator; those that are all literals become values of Triton's."""
        names = [self._number(arg) for arg in args]
        if self._floats and all(arg.op == "const" for arg in args):
            names = [self._typed(*pair) for pair in zip(args, names, strict=True)]
        return names

    def _typed(self, arg: Expr, name: str, shape: str = "()") -> str:
        """A literal as a value of Triton's; the interpreter wants operands alike for some."""
        plain = arg.op == "const" and not name.startswith("tl.")
        return f"tl.full({shape}, {name}, tl.{self._kind})" if plain else name

    def _text(self, part: Expr) -> str:
        if part.op == "pow" and part.args[1].op == "const":
            return _POWERS.get(part.args[1].value, self._table[part.op])
        return self._table[part.op]

    def _named(self, text: str) -> str:
        name = f"t{len(self.lines)}"
        self.add(f"{name} = {text}")
        return name

    def _literal(self, value: float) -> str:
        if not self._floats:
            return _integer_literal(value, self._kind)
        if self._kind == "float32":
            # Constants beyond float32 become infinite, which NumPy would warn of.
            with np.errstate(all="ignore"):
                value = float(np.float32(value))
        if isnan(value):
            return "float('nan')"
        if value in (inf, -inf):
            return f"float('{value}')"
        if 0 < abs(value) < _SMALLEST_NORMAL:  # which Triton would take for float64
            return f"tl.full((), {value!r}, tl.{self._kind})"
        return repr(value)


_SMALLEST_NORMAL = 2.0**-126  # of float32


def _integer_literal(value: float, kind: str) -> str:
    """The number truncated; infinite bounds of a clip saturate."""
    info = np.iinfo(kind)
    low, high = int(info.min), int(info.max)
    number = int(min(max(value, low), high))
    # Of its own type: what Triton makes of plain numbers may be wider than the operands.
    return f"tl.full((), {number}, tl.{kind})"


def missing_operator(expr: Expr, kind: str) -> str | None:
    """The first operator, in the alphabet, that numbers of a kind do not have; None if all are."""
    tables = {"float32": FLOAT_OPERATORS, "float64": WIDE_OPERATORS}
    known = tables.get(kind, INTEGER_OPERATORS)
    found = {part.op for part in subtrees(expr)} - {"arg", "const"}
    return min(found - known, default=None)
