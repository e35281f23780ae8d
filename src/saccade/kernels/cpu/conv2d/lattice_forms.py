"""How the rows of a lattice algorithm's matrices are numbered.

With taps `d` apart, every d-th pixel of an axis belongs to one lattice. Of `size` pixels the first
`size % d` lattices have one more than the others; so there are up to two lengths along an axis, and
up to four forms of tiles, each tile a whole lattice of one image. Rows are sorted: (long, short),
(long, long), (short, long), (short, short), so that frequencies which short tiles lack find their
rows side by side.

Code knows two sorts of axes, of lattices of 3 and 2 pixels and of 2 and 1; how many there are of
each is a number of the run, which may be zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from saccade.kernels.cpu.conv2d.lattice_points import POINTS, points_of

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder
    from saccade.backends.cpu.codegen.values import Int

__all__ = ["LONG", "Form", "LatticeAxis", "Lattices", "frequency_rows", "lengths", "long_of"]

# Forms in the order of their rows: whether each axis's lattices are the short ones.
_ORDER = ((0, 1), (0, 0), (1, 0), (1, 1))
LONG = (2, 3)
"""Lengths of an axis's long lattices that there is code for; the short ones have a pixel less."""


def lengths(size: int, apart: int) -> tuple[tuple[int, int], ...]:
    """Pixels of a lattice and how many lattices have as many, the longest first."""
    pixels, more = divmod(size, apart)
    found = ((pixels + 1, more), (pixels, apart - more))
    return tuple((n, count) for n, count in found if n and count)


def long_of(axis: tuple[tuple[int, int], ...]) -> int:
    """Which of `LONG` an axis with these `lengths` takes."""
    return max(LONG[0], axis[0][0])


@dataclass(frozen=True, slots=True)
class Form:
    """Tiles of one form: for both axes the length, and whether it is the shorter one."""

    pixels: tuple[int, int]
    short: tuple[bool, bool]


def _forms(pixels: tuple[tuple[int, ...], tuple[int, ...]]) -> list[Form]:
    """All forms, in the order of their rows."""
    found = [side for side in _ORDER if side[0] < len(pixels[0]) and side[1] < len(pixels[1])]
    return [Form((pixels[0][i], pixels[1][j]), (bool(i), bool(j))) for i, j in found]


def _has(bases: tuple[int, int], form: Form, frequency: tuple[int, int]) -> bool:
    return all(
        f < points_of(base, n) for f, base, n in zip(frequency, bases, form.pixels, strict=True)
    )


@lru_cache(maxsize=256)
def frequency_rows(
    images: int, axes: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
) -> tuple[int, ...]:
    """Rows of every frequency, in order; `axes` are `lengths` of both."""
    counts = [dict(axis) for axis in axes]
    forms = _forms((tuple(counts[0]), tuple(counts[1])))
    bases = axes[0][0][0], axes[1][0][0]
    return tuple(
        images
        * sum(
            counts[0][form.pixels[0]] * counts[1][form.pixels[1]]
            for form in forms
            if _has(bases, form, (down, along))
        )
        for down, along in product(*(range(POINTS[base]) for base in bases))
    )


@dataclass(frozen=True, slots=True)
class LatticeAxis:
    """One axis while the code runs.

    Attributes:
        long: Pixels of long lattices, of `LONG`; 0 where the code does not depend on it.
        counts: How many long and short lattices there are.
        points: Products of the longest lattice that there is, and of a short one.
        apart: Distance of the pixels of one.
    """

    long: int
    counts: tuple[Int, Int]
    points: tuple[Int, Int]
    apart: Int


@dataclass(frozen=True, slots=True)
class Lattices:
    """The tiles of a batch.

    Attributes:
        images: Images.
        axes: Down and along.
    """

    images: Int
    axes: tuple[LatticeAxis, LatticeAxis]

    @property
    def forms(self) -> list[Form]:
        """In the order of their rows."""
        down, along = self.bases
        return _forms(((down, down - 1), (along, along - 1)))

    @property
    def bases(self) -> tuple[int, int]:
        """Lengths of the long lattices."""
        return self.axes[0].long, self.axes[1].long

    def size(self, form: Form) -> Int:
        """How many tiles have this form."""
        down, along = self._counts(form)
        return self.images * down * along

    def first(self, k: KernelBuilder, form: Form) -> Int:
        """The first row of a form."""
        row = k.int(0)
        for other in self.forms[: self.forms.index(form)]:
            row = row + self.size(other)
        return row

    def pixel(self, form: Form, tile: Int) -> tuple[Int, Int, Int]:
        """Image, row and column of a tile's first pixel."""
        down, along = self._counts(form)
        line = tile // along
        image = line // down
        row, column = line - image * down, tile - line * along
        if form.short[0]:
            row = row + self.axes[0].counts[0]
        if form.short[1]:
            column = column + self.axes[1].counts[0]
        return image, row, column

    def rows_with(self, k: KernelBuilder, down: Int, along: Int) -> tuple[Int, Int]:
        """The first row that has frequency (down, along), and how many."""
        first, count = k.int(0), k.int(0)
        for form in self.forms:
            rows, columns = (
                axis.points[short] for axis, short in zip(self.axes, form.short, strict=True)
            )
            have = ((down < rows) & (along < columns)).select(self.size(form), 0)
            count = count + have
            if form.short == (False, True):
                first = self.size(form) - have
        return first, count

    def _counts(self, form: Form) -> tuple[Int, Int]:
        down, along = (
            axis.counts[short] for axis, short in zip(self.axes, form.short, strict=True)
        )
        return down, along
