"""Reads the text form of dims back (a small precedence parser, no `eval`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache

from saccade.ir import dim as d

__all__ = ["parse_dims"]

# `//` stands before `/`, or it would be read as two truncating divisions.
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|//|[-+*/%(),]|\d+|[^\W\d][\w.]*)')
_PRODUCTS: dict[str, Callable[[d.Dim, d.Dim], d.Dim]] = {
    "*": d.mul,
    "//": d.floordiv,
    "/": d.truncdiv,
    "%": d.mod,
}


# The values of a graph repeat a few dims, and dims are frozen.
@lru_cache(maxsize=4096)
def parse_dims(text: str) -> d.Dim:
    """Inverse of `str(dim)`; understands `+ - * // / %`, parentheses, `min` and `max`.

    Raises:
        ValueError: If it is not the text of a dim.
    """
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} is not a dim")
        tokens.append(match[1])
        at = match.end()
    value, rest = _sum(tokens)
    if rest:
        raise ValueError(f"{text!r} is not a dim: {rest[0]!r} is left over")
    return value


def _sum(tokens: list[str]) -> tuple[d.Dim, list[str]]:
    value, tokens = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign, (right, tokens) = tokens[0], _product(tokens[1:])
        value = d.add(value, right) if sign == "+" else d.sub(value, right)
    return value, tokens


def _product(tokens: list[str]) -> tuple[d.Dim, list[str]]:
    value, tokens = _unary(tokens)
    while tokens and tokens[0] in _PRODUCTS:
        combine, (right, tokens) = _PRODUCTS[tokens[0]], _unary(tokens[1:])
        value = combine(value, right)
    return value, tokens


def _unary(tokens: list[str]) -> tuple[d.Dim, list[str]]:
    if not tokens:
        raise ValueError("a dim ends too early")
    head, rest = tokens[0], tokens[1:]
    if head == "-":
        value, rest = _unary(rest)
        return d.neg(value), rest
    if head == "(":
        value, rest = _sum(rest)
        return value, _expect(rest, ")")
    if head.isdigit():
        return int(head), rest
    # A symbol of that name is quoted where it is written.
    if head in ("min", "max") and rest[:1] == ["("]:
        left, rest = _sum(rest[1:])
        right, rest = _sum(_expect(rest, ","))
        combine = d.minimum if head == "min" else d.maximum
        return combine(left, right), _expect(rest, ")")
    if head[0] == '"':
        return d.symbol(json.loads(head)), rest
    # A sign or a closing parenthesis is a token, too.
    if not (head[0].isalpha() or head[0] == "_"):
        raise ValueError(f"a dim has {head!r} where an operand belongs")
    return d.symbol(head), rest


def _expect(tokens: list[str], sign: str) -> list[str]:
    if tokens[:1] != [sign]:
        raise ValueError(f"a dim lacks {sign!r}")
    return tokens[1:]
