"""Sizes of a model's inputs as numbers that a run computes with, made of operators that there are.

A size that is planned anew for each shape is no constant of the graph, nor is anything that a step
leaves. Running sums of ones, all of which are one element that is read again and again, count from
0; the last of one more of them is the size.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from saccade.ir import Array, Dim, Expr, Factor, IndexMap
from saccade.ir.dim import add
from saccade.ir.expr import apply, arg, const
from saccade.opdefs import CumSum, Move

__all__ = ["ONE", "UP_TO", "last_of", "more", "repeated", "times"]

ONE: Array = np.ones((), np.int64)
UP_TO = CumSum(0, exclusive=True)
"""0, 1, 2 and so on, as many as there are ones."""


def repeated(extent: Dim) -> Move:
    """One element along an axis of a size."""
    return Move(IndexMap((), (Factor(extent, None),), (1,)))


def more(extent: Dim) -> Dim:
    """How many numbers there are from 0 up to a size."""
    return add(extent, 1)


def last_of(extent: Dim) -> Move:
    """The last of the numbers from 0 up to a size, [1]."""
    return Move(IndexMap(((more(extent),),), (Factor(1, 0, extent),), (1,)))


def times(factor: Fraction) -> Expr:
    """A number times a fraction."""
    # The divisor last: a size over a number is rounded once, as the file's own division.
    return apply("div", apply("mul", arg(0), const(factor.numerator)), const(factor.denominator))
