"""Whether one box drops another one: overlap over union above the threshold, as rounded.

    overlap / (area + area' - overlap) > threshold

Most pairs are decided without the division. With t the threshold, what exceeds it has

    overlap > t / (1 + t) · (area + area')

but for rounding, so that a factor a little below t / (1 + t), taken into each box's `bound`,
leaves no pair out; those of a vector that has any are then divided as the definition says. Where
areas are so small that products underflow the bound is 0: what exceeds a threshold of 0 or more has
an overlap. A negative one is exceeded without; then the bound is NaN, and every pair is divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Mask, Vec
from saccade.kernels.cpu import floats

__all__ = ["SMALL", "Box", "BoxPairs", "holds", "pair_integers"]

SMALL = 2.0**-80
"""Areas from here on keep their relative precision, and so do overlaps that matter."""

# Of the cheap test's bound: rounding of areas and their sum cannot lose a pair.
_MARGIN = 1 - 2.0**-19


def pair_integers(threshold: float) -> dict[str, int]:
    """The integers that `BoxPairs` declares; the threshold is one of the element's numbers."""
    negative = threshold < 0
    factor = 0.0 if negative else threshold / (1 + threshold) * _MARGIN
    return {
        "threshold": real_word(threshold),
        "factor": real_word(factor),
        "small": real_word(inf if negative else SMALL),
        "least_area": real_word(nan if negative else 0.0),
        "negative": int(negative),
    }


def holds(k: KernelBuilder, mask: Mask) -> Bool:
    """A comparison of scalars as a condition."""
    return Bool(k.b, mask.value)


@dataclass(frozen=True, slots=True)
class Box:
    """A box in every lane, and its centre (twice its height) and height as scalars."""

    corners: list[Vec]
    area: Vec
    bound: Vec
    centre: Vec
    height: Vec


class BoxPairs:
    """Emits comparisons.

    Attributes:
        lanes: Boxes of one vector.
    """

    def __init__(self, k: KernelBuilder, element: str) -> None:
        self.k, self.lanes = k, floats.lanes_of(k, element)
        reals = [k.real(n) for n in ("threshold", "factor", "small", "least_area")]
        self.threshold, self.factor, self.small, self.least = (k.convert(r, element) for r in reals)
        self.negative = k.integer("negative").differs(0)

    def measure(self, corners: list[Vec]) -> tuple[Vec, Vec]:
        """Area and bound of a box; NaN for the area of one that takes no part."""
        k = self.k
        x1, y1, x2, y2 = corners
        width, height = x2 - x1, y2 - y1
        area = width * height
        usual = width.compare(">", 0.0) & height.compare(">", 0.0)
        # The product of positive sides may underflow or overflow.
        usual = usual & area.compare(">", 0.0) & area.compare("<", inf)
        takes_part = holds(k, usual) | self.negative
        known = Mask(k.b, takes_part.value).select(area, area.like(float("nan")))
        bound = area.compare(">=", self.small).select(area * self.factor, self.least)
        return known, bound

    def box(self, record: Ptr) -> Box:
        """A box that is to be compared with vectors of others."""
        values = [record.load(i) for i in range(7)]
        spread = [self.k.broadcast(v, self.lanes) for v in values[:6]]
        return Box(spread[:4], spread[4], spread[5], values[6], values[3] - values[1])

    def near(self, box: Box, others: Ptr) -> Mask:
        """Which boxes of a vector may drop the box."""
        x1, y1, x2, y2, bound = (others.vec(i * self.lanes, lanes=self.lanes) for i in _COMPARED)
        k = self.k
        width = k.maximum(
            x1.like(0.0), k.minimum(box.corners[2], x2) - k.maximum(box.corners[0], x1)
        )
        # A negative height makes a negative product, which is as good as none.
        height = k.minimum(box.corners[3], y2) - k.maximum(box.corners[1], y1)
        # Not `>`: where the bound is NaN every pair has to be divided.
        return ~(width * height).compare("<=", box.bound + bound)

    def exceed(self, box: Box, others: Ptr) -> Mask:
        """Which boxes of a vector drop the box."""
        k = self.k
        x1, y1, x2, y2, area = (others.vec(i * self.lanes, lanes=self.lanes) for i in range(5))
        zero = x1.like(0.0)
        width = k.maximum(zero, k.minimum(box.corners[2], x2) - k.maximum(box.corners[0], x1))
        height = k.maximum(zero, k.minimum(box.corners[3], y2) - k.maximum(box.corners[1], y1))
        overlap = width * height
        ratio = overlap / (box.area + area - overlap)
        return ratio.compare(">", k.broadcast(self.threshold, self.lanes))


_COMPARED = (0, 1, 2, 3, 5)  # corners and bound
