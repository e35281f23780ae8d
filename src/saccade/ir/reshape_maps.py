"""Reshapes as index maps: the common refinement of two factorisations of the same elements.

Both shapes are walked from the outermost axis. As long as one of the two open axes divides the
other exactly, for all values of the symbols, the smaller one is a factor of both. `[6, 4] -> [4,
6]` has no such refinement, and neither has `[H] -> [2, H // 2]`, which only holds for even H.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from saccade.ir.dim import Affine, Dim, factors, floordiv, mul, product
from saccade.ir.index_map import Factor, IndexMap

__all__ = [
    "Monomial",
    "assumed",
    "divisible",
    "infer_reshape",
    "meeting",
    "quotient",
    "refine",
    "reshape",
]


@dataclass(frozen=True, slots=True)
class Monomial:
    """A dim as `coefficient · Π atom`, atoms being dims that do not factor further."""

    coefficient: int
    atoms: Counter[Affine]

    @classmethod
    def of(cls, dim: Dim) -> Monomial:
        """The factors of a dim."""
        return cls(*factors(dim))

    @property
    def dim(self) -> Dim:
        """The dim again."""
        return mul(product(sorted(self.atoms.elements(), key=str)), self.coefficient)


def quotient(left: Dim, right: Dim) -> Dim | None:
    """`left / right` where `right` divides `left` factor by factor for all sizes, else None."""
    a, b = Monomial.of(left), Monomial.of(right)
    if b.coefficient == 0 or a.coefficient % b.coefficient or b.atoms - a.atoms:
        return None
    return Monomial(a.coefficient // b.coefficient, a.atoms - b.atoms).dim


def infer_reshape(
    shape: Sequence[Dim], target: Sequence[Dim], *, assume: bool = False
) -> tuple[Dim, ...] | None:
    """`target` with its one -1 replaced.

    Args:
        shape: Of the operand.
        target: Of the result; one -1 at most.
        assume: Round down where it is not certain that integers divide; the plan checks it.

    Returns:
        None if the rest of the target does not divide the elements for all sizes.
    """
    if -1 not in target:
        return tuple(target)
    whole, rest = Monomial.of(product(shape)), Monomial.of(product(d for d in target if d != -1))
    # Symbols are divided factor by factor: none of the rest may be left over.
    if rest.coefficient == 0 or rest.atoms - whole.atoms:
        return None
    left = Monomial(whole.coefficient, whole.atoms - rest.atoms)
    # Numbers alone cannot be assumed to divide: they are known not to.
    if left.coefficient % rest.coefficient and not (assume and left.atoms):
        return None
    # In lowest terms: `6*N//4` and `3*N//2` are equal, but not as dims.
    common = gcd(left.coefficient, rest.coefficient)
    left = Monomial(left.coefficient // common, left.atoms)
    missing = floordiv(left.dim, rest.coefficient // common)
    return tuple(missing if d == -1 else d for d in target)


def divisible(shape: Sequence[Dim], target: Sequence[Dim]) -> tuple[Dim, ...]:
    """`shape` with axes that divide as `target` has it: `[H] -> [H // 2, 2]` makes H `2*(H//2)`.

    The equality is an assumption that the plan checks: for odd H the reshape is an error anyway.
    """
    assumed = list(shape)
    divisors = [d for d in target if isinstance(d, int) and d > 1]
    for axis, size in enumerate(shape):
        for divisor in divisors if isinstance(size, Affine) else ():
            part = floordiv(size, divisor)
            # Only where the target has the quotient itself: nothing else says that it divides.
            if quotient(size, divisor) is None and part in target:
                assumed[axis] = mul(part, divisor)
                break
    return tuple(assumed)


def refine(
    first: Sequence[Dim], second: Sequence[Dim]
) -> tuple[tuple[tuple[Dim, ...], ...], tuple[tuple[Dim, ...], ...]] | None:
    """Split the axes of both shapes into the same factors, outermost first; axes of 1 have none.

    Returns:
        The factors of each axis of `first` and of `second`, or None if there is no common
        refinement for all sizes.
    """
    sides: tuple[list[list[Dim]], list[list[Dim]]] = ([], [])
    queues = (list(first)[::-1], list(second)[::-1])
    open_axes: list[Dim] = [1, 1]
    while True:
        for side in (0, 1):
            # Axes of 1 are opened as well: they get a group of no factors.
            while open_axes[side] == 1 and queues[side]:
                open_axes[side] = queues[side].pop()
                sides[side].append([])
        if open_axes == [1, 1]:
            return _frozen(sides[0]), _frozen(sides[1])
        if 1 in open_axes:  # one side has run out of elements
            return None
        factor, rests = _common(open_axes[0], open_axes[1])
        if factor is None:
            return None
        for side in (0, 1):
            sides[side][-1].append(factor)
            open_axes[side] = rests[side]


def _common(left: Dim, right: Dim) -> tuple[Dim | None, tuple[Dim, Dim]]:
    """The outermost common factor and what it leaves of both."""
    if left == right:
        return left, (1, 1)
    rest = quotient(left, right)
    if rest is not None:
        return right, (rest, 1)
    rest = quotient(right, left)
    if rest is not None:
        return left, (1, rest)
    return None, (left, right)


def _frozen(groups: list[list[Dim]]) -> tuple[tuple[Dim, ...], ...]:
    return tuple(tuple(group) for group in groups)


def meeting(first: Sequence[Dim], second: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The finest shape that both become by merging neighbouring axes; None if counts may differ.

    Where two shapes have no common refinement, one reshapes to the other in two steps through it.
    """
    # Products of 0 meet everywhere.
    if 0 in first or 0 in second:
        return None
    # Where both shapes end an axis after equally many elements, both can be cut.
    ends = {_key(product(second[:count])) for count in range(len(second) + 1)}
    merged: list[Dim] = []
    start = 0
    for count in range(1, len(first) + 1):
        if _key(product(first[:count])) in ends:
            merged.append(product(first[start:count]))
            start = count
    whole = _key(product(first)) == _key(product(second))
    return tuple(merged) if whole else None


def assumed(
    shape: Sequence[Dim], target: Sequence[Dim]
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]] | None:
    """What a reshape takes for granted: that the axes which differ hold equally many elements.

    `[N, (H//8)*W, 120] -> [N, 1, W, 120]` holds for the heights from 8 to 15 alone.

    Returns:
        `shape` with the axes between equal ends merged into one, and the same with the size that
        `target` says of that one; None where numbers already say that it is wrong.
    """
    most = min(len(shape), len(target))
    ahead = _equal(shape, target, most)
    # An axis that is equal from both ends counts once.
    behind = _equal(shape[::-1], target[::-1], most - ahead)
    inside = slice(ahead, len(shape) - behind), slice(ahead, len(target) - behind)
    have, want = product(shape[inside[0]]), product(target[inside[1]])
    if all(isinstance(d, int) for d in (have, want)):
        return None
    tail = shape[len(shape) - behind :]
    return (*shape[:ahead], have, *tail), (*shape[:ahead], want, *tail)


def _equal(first: Sequence[Dim], second: Sequence[Dim], most: int) -> int:
    """How many dims of both are equal before the first that are not."""
    pairs = zip(first[:most], second[:most], strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), most)


def _key(dim: Dim) -> tuple[int, frozenset[tuple[Dim, int]]]:
    """Equal for products of the same factors in any order."""
    monomial = Monomial.of(dim)
    return monomial.coefficient, frozenset(monomial.atoms.items())


def reshape(shape: Sequence[Dim], target: Sequence[Dim]) -> IndexMap | None:
    """The map of a Reshape from `shape` to `target` (no -1 left in it), None if there is none."""
    found = refine(shape, target)
    if found is None:
        return None
    in_factors, out_factors = found
    flat = [size for group in in_factors for size in group]
    # A reshape moves nothing: factors keep their order, and only the groups differ.
    factors = tuple(Factor(size, index) for index, size in enumerate(flat))
    return IndexMap(in_factors, factors, tuple(len(group) for group in out_factors))
