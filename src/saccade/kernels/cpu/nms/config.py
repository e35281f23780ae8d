"""What the phases of suppression depend on, and how their temporaries lie."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DIGITS",
    "FIELDS",
    "RADIX",
    "RECORD",
    "ClassesConfig",
    "NmsConfig",
    "most_strips",
    "strip_capacity",
]

RADIX = 256
"""Values of a digit that is sorted by."""

DIGITS = {"float32": 4, "float64": 8, "int64": 8}
"""Digits of a key, by the type that it is made of."""

RECORD = 8
"""Numbers noted of a box: x1, y1, x2, y2, area, bound, centre, nothing."""

FIELDS = 6
"""Of these, how many are kept of a box that stays."""

_SHARE = 64  # boxes of a strip, so that those that stay fill some vectors
_MOST = 128  # strips


@dataclass(frozen=True)
class NmsConfig:
    """The code of one phase.

    Attributes:
        phase: "scores" and "groups" sort by these, "greedy" suppresses.
        element: What is sorted by, or the element of the boxes.
        grouped: Whether boxes of different groups leave each other alone.
    """

    phase: str
    element: str
    grouped: bool = False


@dataclass(frozen=True)
class ClassesConfig:
    """The code of one phase of `nms.classes`.

    Attributes:
        phase: "select" suppresses each class, "places" counts, "rows" writes what stays.
        boxes, scores: Their elements.
        centred: Whether boxes are given by their centres.
    """

    phase: str
    boxes: str = "float32"
    scores: str = "float32"
    centred: bool = False


def most_strips(count: int) -> int:
    """How many strips so many boxes may be distributed over."""
    return max(1, min(count // _SHARE, _MOST))


def strip_capacity(count: int, lanes: int) -> int:
    """Vectors that hold the boxes of all strips, each of them begun anew."""
    return -(-count // lanes) + most_strips(count)
