"""The error function over arrays, in float64, without SciPy."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from saccade.ir.op import Array

__all__ = ["erf"]

_STEP = 1 / 64
_END = 6.0  # erf(6) is 1 in float64
_ORDER = 8


@lru_cache(maxsize=1)
def _taylor() -> Array:
    """Taylor coefficients of erf around 0, 1/64, 2/64 and so on: [order + 1, points]."""
    x = np.arange(round(_END / _STEP) + 1) * _STEP
    rows = [np.array([math.erf(v) for v in x])]
    slope = 2 / math.sqrt(math.pi) * np.exp(-x * x)
    hermite = [np.ones_like(x), 2 * x]  # d^n erf = slope · (-1)^(n-1) · H_(n-1)
    for n in range(1, _ORDER + 1):
        rows.append(slope * (-1) ** (n - 1) * hermite[n - 1] / math.factorial(n))
        hermite.append(2 * x * hermite[n] - 2 * n * hermite[n - 1])
    return np.stack(rows)


def erf(x: Array) -> Array:
    """The error function, computed in float64 to about 1 ulp and returned in the type of `x`."""
    wide = np.minimum(np.abs(np.asarray(x, dtype=np.float64)), _END)
    known = np.where(np.isnan(wide), 0.0, wide)
    nearest = np.rint(known / _STEP).astype(np.intp)
    distance = known - nearest * _STEP
    table = _taylor()
    value = table[_ORDER][nearest]
    for row in table[_ORDER - 1 :: -1]:
        value = value * distance + row[nearest]
    value = np.where(np.isnan(wide), np.nan, np.copysign(value, x))
    return value.astype(np.asarray(x).dtype, copy=False)
