"""What of an operand a run of a result's elements reads, along one axis of the image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

__all__ = ["SAME", "Chain", "Interval", "Reading", "interval_read", "scale_of"]


class Interval(NamedTuple):
    """Elements along an axis, and whether more was asked for than there is.

    Attributes:
        first: The first element.
        last: The last one.
        at_start: Whether what lies before the axis is looked at: padding, or the edge repeated.
        at_end: The same behind it.
    """

    first: int
    last: int
    at_start: bool = False
    at_end: bool = False

    def joined(self, other: Interval) -> Interval:
        """The smallest span that holds both."""
        return Interval(
            min(self.first, other.first),
            max(self.last, other.last),
            self.at_start or other.at_start,
            self.at_end or other.at_end,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """Elements `a` to `b` of a result read from `(a·up + low) // down` to `(b·up + high) // down`.

    Attributes:
        up, down: Elements of the operand for each of the result, as a fraction.
        low, high: Of the first and the last element that is read, in parts of `down`.
        mirrored: Whether the operand's mirror image lies around it, and not padding or its edge.
    """

    up: int = 1
    down: int = 1
    low: int = 0
    high: int = 0
    mirrored: bool = False


Chain = tuple[Reading, ...]
"""One after the other, from the result to the operand."""
SAME: Chain = ()
"""Each element reads the one at its place."""


def scale_of(chain: Chain) -> Fraction:
    """Elements of the result for each of the operand."""
    scale = Fraction(1)
    for reads in chain:
        scale *= Fraction(reads.down, reads.up)
    return scale


def interval_read(chain: Chain, span: Interval, size: int) -> Interval:
    """What a span of the result reads of an operand of so many elements."""
    first, last = span.first, span.last
    for reads in chain:
        first = (first * reads.up + reads.low) // reads.down
        last = (last * reads.up + reads.high) // reads.down
    inside = Interval(min(max(first, 0), size - 1), max(min(last, size - 1), 0))
    if any(reads.mirrored for reads in chain):
        inside = inside.joined(_mirror_image(first, last, size))
    return inside._replace(at_start=first < 0, at_end=last >= size)


def _mirror_image(first: int, last: int, size: int) -> Interval:
    """Elements whose mirror images beyond an edge are in a span; the span's own ends, if none."""
    mirrored: Iterable[int] = (
        *((-first,) if first < 0 else ()),
        *((2 * (size - 1) - last,) if last >= size else ()),
        min(max(first, 0), size - 1),
    )
    places = [min(max(at, 0), size - 1) for at in mirrored]
    return Interval(min(places), max(places))
