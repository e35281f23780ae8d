"""Places of a grid: pixels along each axis, their weights, and sums over all combinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Bool, Int, Vec
from saccade.kernels.cpu import floats
from saccade.kernels.cpu.sample.pixel_places import pixel_place, within_reach

if TYPE_CHECKING:
    from saccade.kernels.cpu.sample.grid import GridConfig

__all__ = ["Grid"]

_CUBIC = -0.75  # the kernel's parameter, as the standard and PyTorch have it


@dataclass(frozen=True, slots=True)
class _Tap:
    """A pixel along an axis; `inside` is None where all count."""

    index: Int
    weight: Vec | None
    inside: Bool | None


class Grid:
    """The code of one configuration."""

    def __init__(self, k: KernelBuilder, config: GridConfig) -> None:
        self.k, self.config = k, config
        x, grid, y = config.elements
        self.x, self.grid, self.y = k.pointer("x", x), k.pointer("grid", grid), k.pointer("y", y)
        self.channels, self.rows, self.share = k.integers("channels rows share")
        self.sizes, self.places = k.array("sizes", config.axes), k.array("places", config.axes)
        rank = config.axes + 2
        self.x_strides, self.grid_strides, self.y_strides = (
            k.array(name, rank) for name in ("x_strides", "grid_strides", "y_strides")
        )

    def emit(self) -> None:
        """Chunks of rows of places."""
        k = self.k
        with k.chunks((self.rows + (self.share - 1)) // self.share) as chunk:
            low = chunk * self.share
            with k.range(low, k.minimum_int(low + self.share, self.rows)) as row:
                at = self._row(row)
                with k.range(0, self.places[-1]) as column:
                    self._place([*at, column])

    def _row(self, row: Int) -> list[Int]:
        """The image, and the place along all axes but the last."""
        found: list[Int] = []
        rest = row
        for size in reversed(self.places[:-1]):
            found.insert(0, rest % size)
            rest = rest // size
        return [rest, *found]

    def _place(self, at: list[Int]) -> None:
        k, (image, *places) = self.k, at
        grid = _offset(at, self.grid_strides[:-1])
        taps = []
        for axis, size in enumerate(self.sizes):
            # The grid names the last axis first.
            number = self.config.axes - 1 - axis
            place = floats.load_one(k, self.grid, grid + self.grid_strides[-1] * number, "float32")
            taps.append(self._taps(place, size))
        x = self.x + image * self.x_strides[0]
        to = self.y + (image * self.y_strides[0] + _offset(places, self.y_strides[2:]))
        chosen = [self._pixel(x, pixels) for pixels in product(*taps)]
        if self.config.vectors:
            with k.range(0, self.channels, k.lanes) as c:
                count = k.minimum_int(self.channels - c, k.lanes)
                total = k.zero()
                for pixel, weight, inside in chosen:
                    mask = k.first(count if inside is None else inside.select(count, 0))
                    value = floats.load(k, pixel, c, k.lanes, "float32", mask)
                    total = value if weight is None else k.fma(value, k.broadcast(weight), total)
                floats.store(k, to, total, c, k.first(count))
            return
        with k.range(0, self.channels) as c:
            total = k.number(0.0, 1)
            for pixel, weight, inside in chosen:
                value = floats.load_one(k, pixel, c * self.x_strides[1], "float32")
                if inside is not None:
                    value = inside.choose(value, k.number(0.0, 1))
                total = value if weight is None else value * weight + total
            floats.store(k, to, total, c * self.y_strides[1])

    def _pixel(self, x: Ptr, pixels: tuple[_Tap, ...]) -> tuple[Ptr, Vec | None, Bool | None]:
        """Where a pixel is, its share, and whether it counts."""
        place = x + _offset([tap.index for tap in pixels], self.x_strides[2:])
        weights = [tap.weight for tap in pixels if tap.weight is not None]
        conditions = [tap.inside for tap in pixels if tap.inside is not None]
        weight = reduce(lambda a, b: a * b, weights) if weights else None
        return place, weight, reduce(lambda a, b: a & b, conditions) if conditions else None

    # -- one axis --------------------------------------------------------------------------------

    def _taps(self, place: Vec, size: Int) -> list[_Tap]:
        k, mode = self.k, self.config.mode
        real = k.to_real(size)
        at = pixel_place(place, real, aligned=self.config.aligned)
        at = within_reach(self._padded(at, real), real)
        if mode == "nearest":
            return [self._tap(k.to_int(k.call("rint", at)), None, size, real)]
        base = k.call("floor", at)
        t, first = at - base, k.to_int(base)
        if mode == "linear":
            weights = [1.0 - t, t]
        else:
            weights, first = _cubic(t), first - 1
        return [self._tap(first + n, w, size, real) for n, w in enumerate(weights)]

    def _tap(self, index: Int, weight: Vec | None, size: Int, real: Vec) -> _Tap:
        k, config = self.k, self.config
        inside = (index >= 0) & (index < size) if config.padding == "zeros" else None
        if config.padding == "reflection" and config.mode == "cubic":
            index = k.to_int(k.call("rint", self._reflected(k.to_real(index), real)))
        return _Tap(k.maximum_int(k.minimum_int(index, size - 1), 0), weight, inside)

    def _padded(self, at: Vec, size: Vec) -> Vec:
        config = self.config
        if config.padding == "reflection":
            at = self._reflected(at, size)
        # Of cubic places each pixel is moved inside.
        if config.padding == "zeros" or config.mode == "cubic":
            return at
        at = at.compare(">", 0.0).select(at, at.like(0.0))
        last = size - 1.0
        return at.compare("<", last).select(at, last)

    def _reflected(self, at: Vec, size: Vec) -> Vec:
        k, aligned = self.k, self.config.aligned
        low = 0.0 if aligned else -0.5
        length = size - 1.0 if aligned else size
        shift = at - low
        shift = shift - k.call("floor", shift / (length * 2.0)) * (length * 2.0)
        back = shift.compare(">", length).select(length * 2.0 - shift, shift) + low
        # An image of one pixel, of which all are mirrors.
        return length.compare(">", 0.0).select(back, at.like(0.0))


def _cubic(t: Vec) -> list[Vec]:
    a = _CUBIC

    def outer(d: Vec) -> Vec:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    def inner(d: Vec) -> Vec:
        return (d * (a + 2) - (a + 3)) * d * d + 1.0

    return [outer(t + 1.0), inner(t), inner(1.0 - t), outer(2.0 - t)]


def _offset(at: Sequence[Int], strides: Sequence[Int]) -> Int:
    parts = [index * stride for index, stride in zip(at, strides, strict=True)]
    return reduce(lambda a, b: a + b, parts)
