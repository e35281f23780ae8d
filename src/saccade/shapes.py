"""Shapes as users give them: those that a model is specialised to, and those of a run."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from saccade.errors import InputError, OptionError, printable
from saccade.signature import TensorInfo, shape_text

__all__ = [
    "ANY", "Axis", "FrozenShapes", "ShapesArgument", "as_shape", "as_symbol", "frozen_shapes",
    "shapes_text",
]  # fmt: skip

Axis: TypeAlias = "int | str | None"
"""A size, the name of one that varies, or None for one that varies by itself."""
ShapesArgument: TypeAlias = "Mapping[str, Sequence[int | str | None]]"
"""As users give them: by the names of inputs."""
FrozenShapes: TypeAlias = "tuple[tuple[str, tuple[int | str | None, ...]], ...]"
"""The same sorted by name, so that equal ones are equal."""

ANY = (None, "", "?", "-1", -1)
"""What stands for an axis of any size; each such axis has its own."""
_MOST_AXES = 64
_MOST_ELEMENTS = 1 << 47  # of an input: a process has no more addresses
_LONGEST_SYMBOL = 100  # characters


def frozen_shapes(given: object) -> FrozenShapes:
    """Shapes as `Options` keeps them.

    Args:
        given: `{"x": (1, 3, "H", "W")}`; sizes are 1 or more. -1 and `?` are as good as None. What
            this function returned is taken as it is.

    Raises:
        OptionError: If they are none.
    """
    if given is None:
        return ()
    try:
        pairs = [(name, axes) for name, axes in _items(given)]
    except (TypeError, ValueError):
        raise OptionError(
            "shapes= must be a mapping such as {'x': (1, 3, 'H', 'W')}, "
            f"given is {printable(repr(given))}"
        ) from None
    found: dict[str, tuple[Axis, ...]] = {}
    for name, axes in pairs:
        if not isinstance(name, str):
            raise OptionError(f"shapes= names an input {name!r}, which is no string")
        if isinstance(axes, (str, bytes)) or not isinstance(axes, Iterable):
            raise OptionError(f"shapes=: input {name!r} needs a tuple of sizes, given is {axes!r}")
        listed = list(axes)
        if len(listed) > _MOST_AXES:
            raise OptionError(f"shapes=: input {name!r} cannot have {len(listed)} axes")
        found[name] = tuple(_axis(name, axis) for axis in listed)
    return tuple(sorted(found.items()))


def as_symbol(label: str) -> str:
    """A name of the file as models show it, which has no other name's signs."""
    name = re.sub(r"\W", "_", label[:_LONGEST_SYMBOL])
    # A symbol's text must not begin like a number.
    return f"_{name}" if name[:1].isdigit() else name


def _items(given: object) -> Iterable[tuple[object, object]]:
    if isinstance(given, Mapping):
        return given.items()
    if isinstance(given, tuple):
        return given
    raise TypeError


def _axis(name: str, axis: object) -> Axis:
    if isinstance(axis, str):
        if axis in ANY:
            return None
        if not axis.isidentifier():
            raise OptionError(
                f"shapes=: input {name!r} calls a size {axis!r}: a name is letters, digits and _"
            )
        return axis
    if axis is None:
        return None
    try:
        size = 0 if isinstance(axis, bool) else operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        size = 0
    if size == -1:
        return None
    if not 1 <= size <= _MOST_ELEMENTS:
        raise OptionError(
            f"shapes=: input {name!r} cannot have a size of {axis!r}: sizes are 1 or more, "
            "names and None leave an axis free"
        )
    return size


def shapes_text(shapes: FrozenShapes) -> str:
    """As the command line spells them: `x=1x3xHx?`."""
    return ", ".join(
        f"{name}={'x'.join('?' if axis is None else str(axis) for axis in axes) or 'scalar'}"
        for name, axes in shapes
    )


def as_shape(info: TensorInfo, value: object) -> tuple[int, ...]:
    """A shape of numbers that an input is to have in a run.

    Raises:
        InputError: If it is none, or no memory holds it.
    """
    try:
        if not isinstance(value, Iterable):
            raise TypeError
        shape = tuple(operator.index(size) for size in value)
    except TypeError:
        # The text of an array could be of any length.
        short = isinstance(value, (tuple, list, str, int, float))
        given = repr(value) if short else f"a {type(value).__name__}"
        raise InputError(
            f"input {info.name!r} needs a shape, a tuple of integers, given is {given}"
        ) from None
    # A size of 0 must not hide that the others are more than any memory holds.
    if min(shape, default=0) < 0 or math.prod(max(size, 1) for size in shape) > _MOST_ELEMENTS:
        raise InputError(f"input {info.name!r} cannot have shape {shape_text(shape)}")
    return shape
