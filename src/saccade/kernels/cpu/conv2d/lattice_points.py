"""Products for a short row of pixels between zeros under three taps.

`y_i = Σ_t w_t x_{i+t-1}` for n pixels with zeros on both sides is a matrix of three diagonals times
a vector. The zeros save products against Winograd's F(n, 3), which takes n+2. Over complex numbers
n+1 are enough (a cyclic convolution of that length); over real ones they are for n ≤ 3, and a
numerical search found none for n = 4 to 7.

- n = 1: `w1 x0`.
- n = 2, after Karatsuba: `w1 (x0 + x1)`, `(w2 - w1) x1`, `(w0 - w1) x0`. A single pixel needs the
  first of these weights alone, so that rows of two and of one share them.
- n = 3: the identity and the two shifts lie in the span of four matrices of rank 1,
  `(1, ±s, 1)ᵀ (1, ±s, 1)` and `(1, ∓e, -1)ᵀ (1, ±e, -1)`, if s² - e² = 2. Rows of two use the same
  four with a zero pixel.

With s = 3/2 and e = 1/2 transforms of small integers are exact. In fp32 over normal data the error
is 1.5 times that of the direct sum; 1.4 times with e = 3/4 or 1, 3 times with 1/4 or 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.ir import Array

if TYPE_CHECKING:
    from saccade.backends.cpu.codegen.language import KernelBuilder
    from saccade.backends.cpu.codegen.values import Vec

__all__ = ["LONGEST", "POINTS", "forward", "inverse", "points_of", "weight_matrix"]

POINTS = (0, 1, 3, 4)
"""Products of a row of so many pixels."""
LONGEST = len(POINTS) - 1
# Of a row's middle pixel in the four products for three (docs/performance/winograd.md).
_S, _E = 1.5, 0.5
_WEIGHTS = {
    1: ([[0, 1, 0]], 1),
    2: ([[0, 1, 0], [0, -1, 1], [1, -1, 0]], 1),
    3: ([[2, 3, 2], [-2, 3, -2], [-6, 3, 6], [6, 3, -6]], 12),
}


def weight_matrix(base: int) -> tuple[Array, int]:
    """What the taps of rows of up to `base` pixels are multiplied by: [products, 3], and a divisor.

    Both are integers.
    """
    numerators, divisor = _WEIGHTS[base]
    return np.array(numerators, np.float64), divisor


def points_of(base: int, n: int) -> int:
    """How many of the products for rows of `base` pixels one of n takes, the first ones."""
    return POINTS[base] if base == LONGEST else POINTS[n]


def forward(k: KernelBuilder, base: int, x: Sequence[Vec]) -> list[Vec]:
    """What the transformed weights are multiplied by, from the pixels of a row."""
    if base < LONGEST:
        return [x[0]] if len(x) == 1 else [x[0] + x[1], x[1], x[0]]
    even, odd = (x[0] + x[2], x[0] - x[2]) if len(x) == LONGEST else (x[0], x[0])
    pairs = ((even, _S), (even, -_S), (odd, _E), (odd, -_E))
    return [k.fma(x[1], x[1].like(factor), end) for end, factor in pairs]


def inverse(k: KernelBuilder, base: int, n: int, m: Sequence[Vec]) -> list[Vec]:
    """The n results of a row from its products."""
    if base < LONGEST:
        return [m[0]] if n == 1 else [m[0] + m[1], m[0] + m[2]]
    even, odd = m[0] + m[1], m[2] + m[3]
    slope = m[3] - m[2]
    middle = k.fma(slope, slope.like(_E), (m[0] - m[1]) * _S)
    return [even + odd, middle, even - odd][:n]
