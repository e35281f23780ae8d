"""Numbers that follow from a count: computed once, then again for any other count.

Kernels derive sizes, offsets and numbers of chunks from shapes, in plain Python, which takes a
hundred microseconds. Where an extent is another one in nearly every call, as the boxes of a
detector, it is given to them as a `Number`: it remembers what was computed from it, and how
comparisons came out. `Formula.at` does that arithmetic alone for another count, which holds as long
as comparisons come out the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
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
        a, b = self._place(left), self._place(right)
        key = (function, a, b)
        place = self._places.get(key)
        if place is None:
            self._values.append(function(self._values[a], self._values[b]))
            place = self._places[key] = len(self._values) - 1
            self._steps.append((place, function, a, b))
        return Number(self, place)

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
    for value in (left, right):
        if isinstance(value, Number):
            return value.formula.number(function, left, right)
    return function(left, right)
