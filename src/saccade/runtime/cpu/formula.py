"""Numbers that follow from a count: computed once, then again for any other count.

Kernels derive sizes, offsets and numbers of chunks from shapes, in plain Python, which takes a
hundred microseconds. Where an extent is another one in nearly every call, as the boxes of a
detector, it is given to them as a `Number`: it remembers what was computed from it, and how
comparisons came out. `Formula.at` does that arithmetic alone for another count, which holds as long
as comparisons come out the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

__all__ = ["Formula", "Number", "UntraceableError", "larger", "smaller"]

Binary = Callable[[Any, Any], Any]

_OPPOSITE: dict[Binary, Binary] = {
    operator.lt: operator.ge,
    operator.le: operator.gt,
    operator.gt: operator.le,
    operator.ge: operator.lt,
    operator.eq: operator.ne,
    operator.ne: operator.eq,
}


Line = tuple[int, int, int]
"""A place, and what its value is multiplied with before something is added."""


class UntraceableError(TypeError):
    """A number that depends on the count was used for something that cannot be done again."""


class Formula:
    """What was computed from a count.

    Args:
        count: The count that it is computed for first.

    Attributes:
        count: The same as a `Number`.
    """

    def __init__(self, count: int) -> None:
        self._values: list[Any] = [count]
        self._steps: list[tuple[int, Binary, int, int]] = []
        self._places: dict[Any, int] = {}
        self._lines: dict[int, Line] = {}
        self.count = Number(self, 0)

    def at(self, count: int) -> list[Any] | None:
        """All numbers for another count, each at its `place`; None where comparisons differ."""
        values = self._values.copy()
        values[0] = count
        for place, function, left, right in self._steps:
            found = function(values[left], values[right])
            if place:
                values[place] = found
            elif not found:
                return None
        return values

    def value(self, place: int) -> Any:  # noqa: ANN401 - an integer or a float
        """What a number is for the first count."""
        return self._values[place]

    def number(self, function: Binary, left: Any, right: Any) -> Number:  # noqa: ANN401
        """The result of a function, for now and for later."""
        a, b = self._line(left), self._line(right)
        line = None if a is None or b is None else _combined(function, a, b)
        if line is None:
            return Number(self, self._step(function, self._place(left), self._place(right)))
        # Chains of sums and products with integers are one product and one sum.
        root, scale, more = line
        place = root if scale == 1 else self._step(operator.mul, root, self._place(scale))
        place = place if more == 0 else self._step(operator.add, place, self._place(more))
        self._lines[place] = line
        return Number(self, place)

    def _line(self, value: Any) -> Line | None:  # noqa: ANN401
        """An integer as a multiple of the value at a place and more."""
        if isinstance(value, Number):
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

    def keep(self, places: Iterable[int]) -> None:
        """No more than these numbers will be asked for."""
        needed, kept = set(places), []
        for step in reversed(self._steps):
            if not step[0] or step[0] in needed:
                kept.append(step)
                needed.update(step[2:])
        self._steps = kept[::-1]

    def decide(self, function: Binary, left: Any, right: Any) -> bool:  # noqa: ANN401
        """The result of a comparison, which has to be the same for other counts."""
        a, b = self._place(left), self._place(right)
        found = bool(function(self._values[a], self._values[b]))
        key = (function, a, b)
        if key not in self._places:
            self._places[key] = 0
            self._steps.append((0, function if found else _OPPOSITE[function], a, b))
        return found

    def _place(self, value: Any) -> int:  # noqa: ANN401
        if isinstance(value, Number):
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


def _forward(function: Binary) -> Any:  # noqa: ANN401 - a method
    return lambda self, other: self.formula.number(function, self, other)


def _backward(function: Binary) -> Any:  # noqa: ANN401
    return lambda self, other: self.formula.number(function, other, self)


def _compared(function: Binary) -> Any:  # noqa: ANN401
    return lambda self, other: self.formula.decide(function, self, other)


def _refused(*_: object) -> NoReturn:
    raise UntraceableError


class Number:
    """An integer or a float that depends on a count; in arithmetic like any other.

    It has no hash and becomes no plain number, so that nothing is decided by it unnoticed: whatever
    else is tried with it is a TypeError.
    """

    __slots__ = ("formula", "place")

    def __init__(self, formula: Formula, place: int) -> None:
        self.formula, self.place = formula, place

    @property
    def value(self) -> Any:  # noqa: ANN401 - an integer or a float
        """The number for the first count."""
        return self.formula.value(self.place)

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
        return self.formula.decide(operator.ne, self, 0)

    def __neg__(self) -> Number:
        return self.formula.number(operator.sub, 0, self)

    def __abs__(self) -> Number:
        return self if self.formula.decide(operator.ge, self, 0) else -self


def larger(left: int, right: int) -> int:
    """The maximum, without a decision that other counts have to share."""
    found: int = _extreme(max, left, right)
    return found


def smaller(left: int, right: int) -> int:
    """The minimum, likewise."""
    found: int = _extreme(min, left, right)
    return found


def _extreme(function: Binary, left: Any, right: Any) -> Any:  # noqa: ANN401
    if isinstance(left, Number) and isinstance(right, Number) and left.place == right.place:
        return left
    for value in (left, right):
        if isinstance(value, Number):
            return value.formula.number(function, left, right)
    return function(left, right)
