"""Symbolic traces: numbers that follow from a count, computed once, then again for any other count.

Kernels derive sizes, offsets and numbers of chunks from shapes, in plain Python, which takes a
hundred microseconds. Where an extent is another one in nearly every call, as the boxes of a
detector, it is given to them as a `SymbolicNumber`: it remembers what was computed from it, and how
comparisons came out, which are the trace's guards. `SymbolicTrace.replay` does that arithmetic
alone for another count, as Python code of its own; it holds as long as comparisons come out the
same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

__all__ = ["Replay", "SymbolicNumber", "SymbolicTrace", "UntraceableError", "larger", "smaller"]

Binary = Callable[[Any, Any], Any]
Replay = Callable[[Any, int], tuple[Any, ...] | None]

_TEXTS: dict[Binary, str] = {
    operator.add: "{0} + {1}",
    operator.sub: "{0} - {1}",
    operator.mul: "{0} * {1}",
    operator.floordiv: "{0} // {1}",
    operator.truediv: "{0} / {1}",
    operator.mod: "{0} % {1}",
    operator.lt: "{0} < {1}",
    operator.le: "{0} <= {1}",
    operator.gt: "{0} > {1}",
    operator.ge: "{0} >= {1}",
    operator.eq: "{0} == {1}",
    operator.ne: "{0} != {1}",
    max: "{1} if {1} > {0} else {0}",
    min: "{1} if {1} < {0} else {0}",
}

Line = tuple[int, int, int]
"""A place, and what its value is multiplied with before something is added."""

Step = tuple[int, Binary, int, int]
"""The place of a result, how it is computed, the places of both operands. Comparisons have a
negative place, which says how they came out."""

_TRUE, _FALSE = -1, -2  # places of comparisons that came out so


class UntraceableError(TypeError):
    """A number that depends on the count was used for something that cannot be done again."""


class SymbolicTrace:
    """What was computed from a count.

    Args:
        count: The count that it is computed for first.

    Attributes:
        count: The same as a `SymbolicNumber`.
    """

    def __init__(self, count: int) -> None:
        self._values: list[Any] = [count]
        self._steps: list[Step] = []
        self._places: dict[Any, int] = {}
        self._lines: dict[int, Line] = {}
        self.count = SymbolicNumber(self, 0)

    def replay(
        self, places: Mapping[int, SymbolicNumber], given: Sequence[int | SymbolicNumber]
    ) -> Replay:
        """`fill(words, count)`, which writes numbers to their places in `words` and gives others.

        It gives None and writes nothing where a guard fails: a comparison comes out otherwise. It
        is Python code of its own: a loop over the steps would take four times as long.
        """
        asked = [
            number.place
            for number in (*places.values(), *given)
            if isinstance(number, SymbolicNumber)
        ]
        steps = self._needed(asked)
        names = [_literal(value) for value in self._values]
        for place in (0, *(place for place, *_ in steps if place > 0)):
            names[place] = f"n{place}"
        lines = ["def fill(words, n0):"]
        for place, function, left, right in steps:
            text = _TEXTS[function].format(names[left], names[right])
            if place > 0:
                lines.append(f"    n{place} = {text}")
            else:
                lines.append(f"    if {'not ' if place == _TRUE else ''}({text}): return None")
        lines += [f"    words[{at}] = {names[number.place]}" for at, number in places.items()]
        results = [names[n.place] if isinstance(n, SymbolicNumber) else _literal(n) for n in given]
        lines.append(f"    return ({''.join(result + ', ' for result in results)})")
        scope: dict[str, Any] = {"inf": math.inf, "nan": math.nan}
        exec("\n".join(lines), scope)
        fill: Replay = scope["fill"]
        return fill

    def _needed(self, places: Sequence[int]) -> list[Step]:
        """All comparisons, and the steps that they and these places depend on."""
        needed, kept = set(places), []
        for step in reversed(self._steps):
            if step[0] < 0 or step[0] in needed:
                kept.append(step)
                needed.update(step[2:])
        return kept[::-1]

    def value(self, place: int) -> Any:  # noqa: ANN401 - an integer or a float
        """What a number is for the first count."""
        return self._values[place]

    def number(self, function: Binary, left: Any, right: Any) -> SymbolicNumber:  # noqa: ANN401
        """The result of a function, for now and for later."""
        a, b = self._line(left), self._line(right)
        line = None if a is None or b is None else _combined(function, a, b)
        if line is None:
            return SymbolicNumber(self, self._step(function, self._place(left), self._place(right)))
        # Chains of sums and products with integers are one product and one sum.
        root, scale, more = line
        place = root if scale == 1 else self._step(operator.mul, root, self._place(scale))
        place = place if more == 0 else self._step(operator.add, place, self._place(more))
        self._lines[place] = line
        return SymbolicNumber(self, place)

    def _line(self, value: Any) -> Line | None:  # noqa: ANN401
        """An integer as a multiple of the value at a place and more."""
        if isinstance(value, SymbolicNumber):
            integral = isinstance(self._values[value.place], int)
            return self._lines.get(value.place, (value.place, 1, 0)) if integral else None
        return (0, 0, value) if isinstance(value, int) else None

    def _step(self, function: Binary, a: int, b: int) -> int:
        key = (function, a, b)
        if key not in self._places:
            self._values.append(function(self._values[a], self._values[b]))
            self._places[key] = len(self._values) - 1
            self._steps.append((self._places[key], function, a, b))
        return self._places[key]

    def decide(self, function: Binary, left: Any, right: Any) -> bool:  # noqa: ANN401
        """The result of a comparison, which has to be the same for other counts."""
        a, b = self._place(left), self._place(right)
        found = bool(function(self._values[a], self._values[b]))
        key = (function, a, b)
        if key not in self._places:
            self._places[key] = _TRUE if found else _FALSE
            self._steps.append((self._places[key], function, a, b))
        return found

    def _place(self, value: Any) -> int:  # noqa: ANN401
        if isinstance(value, SymbolicNumber):
            return value.place
        if not isinstance(value, (int, float)):
            raise UntraceableError
        key = (type(value), value)
        if key not in self._places:
            self._values.append(value)
            self._places[key] = len(self._values) - 1
        return self._places[key]


def _combined(function: Binary, left: Line, right: Line) -> Line | None:
    """The sum, difference or product of two, if that is one as well.

    A constant is 0 times any place.
    """
    (a, m, more), (b, n, rest) = left, right
    if function is operator.mul and 0 in (m, n):
        return (b, n * more, rest * more) if m == 0 else (a, m * rest, more * rest)
    if function in (operator.add, operator.sub) and (a == b or 0 in (m, n)):
        sign = 1 if function is operator.add else -1
        return (a if m else b), m + sign * n, more + sign * rest
    return None


def _literal(value: Any) -> str:  # noqa: ANN401 - an integer or a float
    return f"({value!r})" if value < 0 else repr(value)


def _forward(function: Binary) -> Any:  # noqa: ANN401 - a method
    return lambda self, other: self.trace.number(function, self, other)


def _backward(function: Binary) -> Any:  # noqa: ANN401
    return lambda self, other: self.trace.number(function, other, self)


def _compared(function: Binary) -> Any:  # noqa: ANN401
    return lambda self, other: self.trace.decide(function, self, other)


def _refused(*_: object) -> NoReturn:
    raise UntraceableError


class SymbolicNumber:
    """An integer or a float that depends on a count; in arithmetic like any other.

    It has no hash and becomes no plain number, so that nothing is decided by it unnoticed: whatever
    else is tried with it is a TypeError.
    """

    __slots__ = ("place", "trace")

    def __init__(self, trace: SymbolicTrace, place: int) -> None:
        self.trace, self.place = trace, place

    @property
    def value(self) -> Any:  # noqa: ANN401 - an integer or a float
        """The number for the first count."""
        return self.trace.value(self.place)

    __add__, __radd__ = _forward(operator.add), _backward(operator.add)
    __sub__, __rsub__ = _forward(operator.sub), _backward(operator.sub)
    __mul__, __rmul__ = _forward(operator.mul), _backward(operator.mul)
    __floordiv__, __rfloordiv__ = _forward(operator.floordiv), _backward(operator.floordiv)
    __truediv__, __rtruediv__ = _forward(operator.truediv), _backward(operator.truediv)
    __mod__, __rmod__ = _forward(operator.mod), _backward(operator.mod)
    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __eq__, __ne__ = _compared(operator.eq), _compared(operator.ne)
    __hash__ = __index__ = __int__ = __float__ = _refused

    def __getattr__(self, name: str) -> NoReturn:
        raise UntraceableError

    def __bool__(self) -> bool:
        return self.trace.decide(operator.ne, self, 0)

    def __neg__(self) -> SymbolicNumber:
        return self.trace.number(operator.sub, 0, self)

    def __abs__(self) -> SymbolicNumber:
        return self if self.trace.decide(operator.ge, self, 0) else -self


def larger(left: int, right: int) -> int:
    """The maximum, without a decision that other counts have to share."""
    found: int = _extreme(max, left, right)
    return found


def smaller(left: int, right: int) -> int:
    """The minimum, likewise."""
    found: int = _extreme(min, left, right)
    return found


def _extreme(function: Binary, left: Any, right: Any) -> Any:  # noqa: ANN401
    if (
        isinstance(left, SymbolicNumber)
        and isinstance(right, SymbolicNumber)
        and left.place == right.place
    ):
        return left
    for value in (left, right):
        if isinstance(value, SymbolicNumber):
            return value.trace.number(function, left, right)
    return function(left, right)
