"""The algebra of Winograd's convolution F(m, 3) in one dimension, for nested sets of sample points.

`y = Aᵀ [(G g) ⊙ (Bᵀ d)]` (Lavin and Gray, "Fast algorithms for convolutional neural networks",
2016): m results from m+2 products, the values of two polynomials at m+2 points. The points of a
base are 0, infinity and pairs ±p. A shorter tile takes some of the same points, so that it shares
the base's transformed weights: F(m) takes the first ⌈m/2⌉ pairs, infinity, and 0 where m is even.
Frequencies are numbered 0, infinity, +p, -p of the first pair, and so on: those of a shorter tile
are neighbours.

Points decide the error. In fp32 against a float64 reference (relative L2, normal data, 16 to 512
channels) F(2x2) is at 0.7 times the direct sum, F(4x4) at twice with 0, ±√½, ±√2 (four times with
0, ±1, ±2), F(6x6) at ten times with 0, ±½, ±1, ±2; a search over 0, ±a, ±b, ±c found none better
by more than the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from saccade.ir import Array

__all__ = ["BASES", "Tile", "accurate", "expected_error", "weight_matrix"]

_PAIRS = {2: (1.0,), 4: (0.5**0.5, 2**0.5), 6: (1.0, 2.0, 0.5)}
BASES = tuple(_PAIRS)
"""Edges of tiles whose points are known."""
# Relative L2 error in units of 1e-6: √(first² + second² · channels), fitted to 16 … 512 channels.
_ERRORS = {2: (0.1, 0.033), 4: (0.3, 0.1), 6: (1.5, 0.37)}
_LIMIT = 1e-5


def expected_error(base: int, channels: int) -> float:
    """Relative L2 error of F(base x base, 3x3) in fp32 over normal data."""
    fixed, grows = _ERRORS[base]
    return 1e-6 * float((fixed**2 + grows**2 * channels) ** 0.5)


def accurate(base: int, channels: int) -> bool:
    """Whether F(base x base, 3x3) stays below a relative error of 1e-5."""
    return expected_error(base, channels) < _LIMIT


@dataclass(frozen=True)
class Tile:
    """F(m, 3) on points of F(base, 3), m ≤ base.

    Attributes:
        base: Whose points and transformed weights are used.
        m: Results.
    """

    base: int
    m: int

    @property
    def count(self) -> int:
        """Products, and values of the data."""
        return self.m + 2

    @property
    def edge(self) -> int:
        """Frequencies of a whole tile."""
        return self.base + 2

    @property
    def zero(self) -> bool:
        """Whether 0 is among the points."""
        return self.m % 2 == 0

    @property
    def first(self) -> int:
        """Number of the first frequency; the others follow."""
        return 0 if self.zero else 1

    @property
    def pairs(self) -> tuple[float, ...]:
        """The p of all pairs ±p."""
        return _PAIRS[self.base][: (self.m + 1) // 2]

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
        whole = _finite(_PAIRS[self.base])
        return tuple(_denominator(p, whole) / _denominator(p, own) for p in _finite(self.pairs))


def _finite(pairs: Sequence[float]) -> list[float]:
    return [0.0] + [signed for p in pairs for signed in (p, -p)]


def _denominator(point: float, points: Sequence[float]) -> float:
    return float(np.prod([point - p for p in points if p != point]))


def weight_matrix(base: int) -> Array:
    """`G`: [base+2, 3] in float64."""
    points = _finite(_PAIRS[base])
    rows = [[p**i / _denominator(p, points) for i in range(3)] for p in points]
    return np.array([rows[0], [0.0, 0.0, 1.0], *rows[1:]])
