"""Whether one variant is faster than another, beyond the noise, by times taken in turns."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt

import numpy as np

from saccade.ir import Array

__all__ = ["Verdict", "judge"]

CHANCE = 0.01  # probability of calling equals different
_DEVIATION = 1.4826  # standard deviation of a normal distribution over its median deviation
_MEDIAN = 1.2533  # standard error of a median over that of a mean


@dataclass(frozen=True, slots=True)
class Verdict:
    """What pairs of times say.

    Attributes:
        before, after: Medians.
        gain: Median of the paired savings, as a share of `before`; negative when slower.
        faster: Whether the saving is beyond the noise.
    """

    before: float
    after: float
    gain: float
    faster: bool


def judge(before: Array, after: Array, *, least: float = 0.0) -> Verdict:
    """Compare times [rounds] that were taken in turns.

    A saving is beyond the noise when its median is over twice its standard error, when so many
    rounds agree that equals would by chance in one of a hundred cases, and when it is over `least`
    (a share of the time before).
    """
    saved = np.asarray(before, np.float64) - np.asarray(after, np.float64)
    # Medians: a turn that something disturbed is far off, and would draw a mean along.
    rounds, middle = len(saved), float(np.median(before))
    median = float(np.median(saved))
    deviation = _DEVIATION * float(np.median(np.abs(saved - median)))
    error = _MEDIAN * deviation / sqrt(rounds)
    gain = median / middle if middle > 0 else 0.0
    # A tie is no win.
    agree = _chance(int((saved > 0).sum()), rounds) <= CHANCE
    return Verdict(
        middle, float(np.median(after)), gain, agree and median > 2 * error and gain > least
    )


def _chance(wins: int, rounds: int) -> float:
    """Of at least so many wins between equals."""
    return float(sum(comb(rounds, k) for k in range(wins, rounds + 1)) / 2**rounds)
