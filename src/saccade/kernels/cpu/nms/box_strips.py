"""Boxes that stay, kept in strips by the height of their centres.

With t the threshold, boxes of heights h and h' whose overlap over union exceeds t have more than
t·h and t·h' of their heights in common, so that h' lies between t·h and h / t, and the distance of
their centres is below

    (h + h') / 2 - t · max(h, h')  <=  h · max(1 - t, (1 / t - 1) / 2)

A strip has space for all boxes whose centres lie in it: as many vectors, each with four corners,
areas and bounds (see `BoxPairs`) side by side. Lanes without a box have an infinite bound and no
area.

There is one strip where that might miss a pair: where the threshold is negative or close to 0,
where products of sides underflow, or where sums of coordinates overflow.
"""

from __future__ import annotations

from math import inf, nan

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr, Var
from saccade.backends.cpu.codegen.values import Bool, Int, Vec
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.nms.box_iou import SMALL, Box, BoxPairs, holds
from saccade.kernels.cpu.nms.config import FIELDS, most_strips

__all__ = ["Strips", "strip_integers"]

_LEAST_THRESHOLD = 2.0**-10  # with lower ones there is one strip
_ROUNDING = 2.0**-18  # relative, of heights, centres and the threshold: more than they have
_LARGE = 2.0**100  # from such coordinates on there is one strip


def strip_integers(threshold: float, count: int) -> dict[str, int]:
    """The integers that `Strips` declares."""
    if not _LEAST_THRESHOLD <= threshold < inf:
        # Within one strip nothing is out of reach.
        return {"strips": 1, "share": 1, "reach": real_word(0.0)}
    t = threshold * (1 - _ROUNDING)
    reach = max(1 - t, (1 / t - 1) / 2, 0.0)
    most = most_strips(count)
    return {
        "strips": most,
        "share": max(1, -(-count // most)),
        # Centres are noted as sums of two corners, twice as far apart.
        "reach": real_word(2 * reach * (1 + _ROUNDING)),
    }


class Strips:
    """Emits their making and use, for one run of boxes after the other.

    Pointers are declared at once, to scratch if each thread has strips of its own; integers by
    `declare_integers`.
    """

    def __init__(self, k: KernelBuilder, element: str, *, scratch: bool = False) -> None:
        self.k, self.element = k, element
        self.lanes = floats.lanes_of(k, element)
        declare = k.scratch if scratch else k.pointer
        self.vectors = declare("vectors", element)
        self.firsts, self.filled, self.places = (
            declare(name, "int64") for name in ("firsts", "filled", "places")
        )
        self.low: Vec
        self.scale: Vec
        self.slack: Vec
        self.last: Vec
        self.count: Int
        self._extremes: tuple[Var, Var, Var]

    def declare_integers(self) -> None:
        """How many strips at most, for how many boxes each; how far centres may be apart."""
        self.most, self.share = self.k.integers("strips share")
        self.reach = self.k.convert(self.k.real("reach"), self.element)

    def begin(self) -> None:
        """Nothing is known of a run's boxes."""
        limits = (inf, -inf, inf)
        low, high, area = (self.k.var(self.k.number(v, 1, self.element)) for v in limits)
        self._extremes = low, high, area

    def note(self, area: Vec, centre: Vec) -> None:
        """Look at one of its boxes."""
        k = self.k
        with k.when(_takes_part(k, area)):
            low, high, least = self._extremes
            low.set(k.minimum(low.get(), centre))
            high.set(k.maximum(high.get(), centre))
            least.set(k.minimum(least.get(), area))

    def divide(self, boxes: Int) -> None:
        """Decide how many strips there are, of what height."""
        k = self.k
        self.low, high, least = (v.get() for v in self._extremes)
        extent, largest = high - self.low, k.maximum(high, -self.low)
        usual = extent.compare(">", 0.0) & largest.compare("<", _LARGE)
        usual = usual & least.compare(">=", SMALL)
        wanted = k.minimum_int(k.maximum_int(boxes // self.share, 1), self.most)
        # With one strip `_strip` gives 0, whatever becomes of the scale.
        self.count = holds(k, usual).select(wanted, 1)
        self.scale = k.to_real(self.count, self.element) / extent
        self.last = k.to_real(self.count - 1, self.element)
        self.slack = largest * _ROUNDING
        with k.range(0, self.count) as i:
            self.filled.store_int(0, i)

    def reserve(self, place: Int, record: Ptr) -> None:
        """Make space for a box, and remember its strip; -1 where it takes no part."""
        k = self.k
        strip = k.var(-1)
        with k.when(_takes_part(k, record.load(4))):
            at = self._strip(record.load(6))
            strip.set(at)
            self.filled.store_int(self.filled.load_int(at) + 1, at)
        self.places.store_int(strip.get(), place)

    def clear(self) -> None:
        """Vectors without boxes, for as many as space is wanted for."""
        k, lanes = self.k, self.lanes
        # `filled` said how many boxes space is wanted for; from here on how many are there.
        vectors = k.var(0)
        with k.range(0, self.count) as i:
            self.firsts.store_int(vectors.get(), i)
            vectors.set(vectors.get() + (self.filled.load_int(i) + (lanes - 1)) // lanes)
            self.filled.store_int(0, i)
        contents = [k.number(v, lanes, self.element) for v in (0.0, 0.0, 0.0, 0.0, nan, inf)]
        with k.range(0, vectors.get()) as vector:
            for field, content in enumerate(contents):
                self.vectors.store(content, (vector * FIELDS + field) * lanes)

    def look(self, pairs: BoxPairs, box: Box, own: Int, dropped: Var) -> None:
        """Set `dropped` if a box that stays drops this one.

        It begins in the box's own strip, which is the likeliest to have one, and goes on to both
        sides in turn.
        """
        k, size = self.k, FIELDS * self.lanes
        half = box.height * self.reach + self.slack
        first, end = self._strip(box.centre - half), self._strip(box.centre + half) + 1
        number = k.var(0)

        def undecided(at: Var, stop: Int) -> Bool:
            place, found = at.get(), dropped.get()
            more: Bool = (place < stop) & found.equals(0)
            return more

        # Number by number 0, 1, -1, 2, -2 and so on from the box's own strip; one side may end
        # before the other.
        furthest = k.maximum_int(own - first, end - 1 - own)
        with k.repeat_while(lambda: undecided(number, furthest * 2 + 1)):
            step = (number.get() + 1) >> 1
            strip = own + (number.get() & 1).differs(0).select(step, 0 - step)
            with k.when((strip >= first) & (strip < end)):
                vector, filled = self.firsts.load_int(strip), self.filled.load_int(strip)
                # Vectors of which no lane is filled are left out.
                at, stop = k.var(vector * size), (vector * self.lanes + filled) * FIELDS
                with k.repeat_while(lambda: undecided(at, stop)):
                    others = self.vectors + at.get()
                    near = k.any_lane(pairs.near(box, others))
                    with k.when(near), k.when(k.any_lane(pairs.exceed(box, others))):
                        dropped.set(1)
                    at.set(at.get() + size)
            number.set(number.get() + 1)

    def join(self, strip: Int, record: Ptr) -> None:
        """A box that stays."""
        lanes = self.lanes
        filled = self.filled.load_int(strip)
        vector = self.firsts.load_int(strip) + filled // lanes
        at = vector * (FIELDS * lanes) + filled % lanes
        for i in range(FIELDS):
            self.vectors.store(record.load(i), at + i * lanes)
        self.filled.store_int(filled + 1, strip)

    def _strip(self, centre: Vec) -> Int:
        """Where a centre lies; what is beyond them all, or NaN, in the first or the last strip."""
        k = self.k
        at = (centre - self.low) * self.scale
        # NaN compares false and becomes 0: integers are made of finite numbers only.
        at = at.compare(">", 0.0).select(at, at.like(0.0))
        return k.to_int(k.minimum(at, self.last))


def _takes_part(k: KernelBuilder, area: Vec) -> Bool:
    return holds(k, area.compare("==", area))
