"""The algebra of Winograd's convolution in one dimension, for nested sets of sample points.

`y = Aᵀ [(G g) ⊙ (Bᵀ d)]` (Lavin and Gray, "Fast algorithms for convolutional neural networks",
2016). With stride 1, F(m, 3): m results from m+2 products, the values of two polynomials at m+2
points. With stride 2, `y_i = (g0 d_2i + g2 d_2i+2) + g1 d_2i+1`: even pixels and two taps are an
F(m, 2) at m+1 points; odd pixels are multiplied as they are, all m with the same weight; the way
back adds the two, so that m results take 2m+1 products rather than 3m.

The points of a base are 0, infinity and pairs ±p. A shorter tile takes some of the same points, so
that it shares the base's transformed weights: n points are the first ⌊(n-1)/2⌋ pairs, infinity, and
0 where n is even. Frequencies are numbered 0, infinity, +p, -p of the first pair, and so on, then
the odd pixels: the points of a shorter tile are neighbours, and so are its odd pixels.

Points decide the error. In fp32 against a float64 reference (relative L2, normal data, 16 to 512
channels) F(2x2, 3x3) is at 0.7 times the direct sum, F(4x4) at twice with 0, ±√½, ±√2 (four times
with 0, ±1, ±2), F(6x6) at ten times with 0, ±½, ±1, ±2; a search over 0, ±a, ±b, ±c found none
better by more than the noise. With stride 2 as many points have about the same error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from saccade.ir import Array
from saccade.locks import cached_property

__all__ = [
    "TAPS",
    "WinogradTile",
    "accurate",
    "bases",
    "count_of",
    "edge_for",
    "expected_error",
    "shorter",
    "weight_matrix",
    "whole_tile",
]

TAPS = {1: 3, 2: 2}
"""Taps that meet at points, by stride."""
# Lengths of the tiles that a kernel has code for beside whole ones. What is left of an image at
# its end takes the next longer one: all lengths would take three times the code, and save 2% of
# the products over sizes of 7 to 80 pixels.
_SHORTER = {
    **{(1, 2): (1,), (1, 4): (2,), (1, 6): (2, 4)},
    **{(2, 3): (1,), (2, 5): (1, 3), (2, 7): (2, 4)},
}
_PAIRS = {4: (1.0,), 6: (0.5**0.5, 2**0.5), 8: (1.0, 2.0, 0.5)}  # by the number of points
# Relative L2 error in units of 1e-6: √(first² + second² · channels), fitted to 16 … 512 channels.
_ERRORS = {4: (0.1, 0.033), 6: (0.3, 0.1), 8: (1.5, 0.37)}
_LIMIT = 1e-5  # relative L2 error beyond which a transform is not taken


def bases(stride: int) -> tuple[int, ...]:
    """Edges of the tiles of results whose points are known."""
    return tuple(points - TAPS[stride] + 1 for points in _PAIRS)


def shorter(base: int, stride: int) -> tuple[int, ...]:
    """Lengths of tiles on the points of a base that there is code for, but for whole ones."""
    return _SHORTER[stride, base]


@lru_cache(maxsize=1024)
def edge_for(size: int, base: int, stride: int) -> int:
    """Length of the tiles that end an axis of `size` results; 0 for whole ones, clipped or not."""
    left = size % base
    return next((m for m in shorter(base, stride) if 0 < left <= m), 0)


def expected_error(base: int, channels: int, stride: int = 1) -> float:
    """Relative L2 error of tiles of base x base results in fp32 over normal data."""
    fixed, grows = _ERRORS[base + TAPS[stride] - 1]
    return 1e-6 * float((fixed**2 + grows**2 * channels) ** 0.5)


@lru_cache(maxsize=1024)
def accurate(base: int, channels: int, stride: int = 1) -> bool:
    """Whether tiles of base x base results stay below a relative error of 1e-5."""
    return expected_error(base, channels, stride) < _LIMIT


@dataclass(frozen=True)
class WinogradTile:
    """m results on the points of a tile of `base` results, m ≤ base.

    Attributes:
        base: Whose points and transformed weights are used.
        m: Results.
        stride: Pixels from result to result, 1 or 2.
    """

    base: int
    m: int
    stride: int = 1

    @property
    def points(self) -> int:
        """Products at points, those of every `stride`-th pixel."""
        return self.m + TAPS[self.stride] - 1

    @property
    def count(self) -> int:
        """Products, and values of the data."""
        return self.points + self.m * (self.stride - 1)

    @property
    def whole(self) -> WinogradTile:
        """The tile of the base."""
        return whole_tile(self.base, self.stride)

    @property
    def edge(self) -> int:
        """Frequencies of a whole tile."""
        return self.whole.count

    @property
    def weights(self) -> int:
        """Frequencies that differ in their weights: those of odd pixels share the last one."""
        return self.whole.points + self.stride - 1

    @property
    def zero(self) -> bool:
        """Whether 0 is among the points."""
        return self.points % 2 == 0

    @property
    def first(self) -> int:
        """Number of the first frequency at a point; the others follow."""
        return 0 if self.zero else 1

    @property
    def gap(self) -> int:
        """Frequencies of the whole tile between its last point and the first odd pixel."""
        return self.whole.points - self.first - self.points if self.stride > 1 else 0

    @property
    def frequencies(self) -> tuple[int, ...]:
        """Their numbers."""
        found = range(self.first, self.first + self.count)
        return tuple(f if i < self.points else f + self.gap for i, f in enumerate(found))

    @property
    def pairs(self) -> tuple[float, ...]:
        """The p of all pairs ±p."""
        return _PAIRS[self.whole.points][: (self.points - 1) // 2]

    def product(self, without: int | None = None) -> tuple[float, ...]:
        """Coefficients of ∏ (y - p²) over all pairs but one, lowest power of y first."""
        roots = [p * p for i, p in enumerate(self.pairs) if i != without]
        return tuple(float(c) for c in np.poly(roots)[::-1]) if roots else (1.0,)

    @cached_property
    def scales(self) -> tuple[float, ...]:
        """For each finite point (0, +p, -p, …) what its row of Bᵀ has to be multiplied with.

        The weights of frequency j are divided by ∏ (p_j - p_k) over the points of the base; this
        tile would have divided by the product over its own.
        """
        own = [p for i, p in enumerate(_finite(self.pairs)) if i or self.zero]
        whole = _finite(self.whole.pairs)
        return tuple(_denominator(p, whole) / _denominator(p, own) for p in _finite(self.pairs))


@lru_cache(maxsize=64)
def count_of(base: int, m: int, stride: int) -> int:
    """`WinogradTile.count` of a tile of m results, 0 for none."""
    return WinogradTile(base, m, stride).count if m else 0


@lru_cache(maxsize=64)
def whole_tile(base: int, stride: int = 1) -> WinogradTile:
    """The tile of `base` results on all of its points."""
    return WinogradTile(base, base, stride)


def _finite(pairs: Sequence[float]) -> list[float]:
    return [0.0] + [signed for p in pairs for signed in (p, -p)]


def _denominator(point: float, points: Sequence[float]) -> float:
    return float(np.prod([point - p for p in points if p != point]))


def weight_matrix(base: int, stride: int = 1) -> Array:
    """`G` without the rows that repeat its last one: [`WinogradTile.weights`, 3] in float64."""
    points = _finite(WinogradTile(base, base, stride).pairs)
    taps = range(0, 3, stride)
    rows = np.zeros((len(points) + stride, 3))
    for row, p in zip((0, *range(2, len(points) + 1)), points, strict=True):
        rows[row, ::stride] = [p**i / _denominator(p, points) for i, _ in enumerate(taps)]
    rows[1, 2] = 1.0
    if stride > 1:
        rows[-1, 1] = 1.0
    return rows
