"""Dims: integers, or integer expressions over the model's symbols.

Every symbolic dim is kept as an affine row `constant + Σ coefficient · atom` (the coefficient
matrix of shape chains), where an atom is a symbol or a non-affine term over other dims. Atoms and
rows are frozen and compare by structure; an expression without atoms is a plain `int`. Sums, and
products (kept as factors, never multiplied out), have one form whatever order they were made in.

Symbols are never negative. Simplification takes it that no divisor is 0 (`N // N` is 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import TypeGuard

from saccade.ir.dim_terms import Affine, Dim, Symbol, Term

__all__ = [
    "Affine",
    "Dim",
    "Symbol",
    "Term",
    "add",
    "ceildiv",
    "evaluate",
    "factors",
    "floordiv",
    "is_non_negative",
    "is_static",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "neg",
    "product",
    "sub",
    "substituted",
    "symbol",
    "symbols_of",
    "total",
    "truncdiv",
]


def symbol(name: str) -> Dim:
    """The dim that is just the named unknown."""
    return Affine(0, ((Symbol(name), 1),))


def is_static(dim: Dim) -> bool:
    """Whether the dim is a known integer."""
    return isinstance(dim, int)


def _row(dim: Dim) -> tuple[int, tuple[tuple[Symbol | Term, int], ...]]:
    return (dim, ()) if isinstance(dim, int) else (dim.constant, dim.terms)


def _make(constant: int, terms: Mapping[Symbol | Term, int]) -> Dim:
    kept = [item for item in terms.items() if item[1]]
    # By text, as atoms have no order of their own: equal sums then compare equal as tuples.
    if len(kept) > 1:
        kept.sort(key=lambda item: str(item[0]))
    return Affine(constant, tuple(kept)) if kept else constant


def _atom(op: str, left: Dim, right: Dim) -> Dim:
    return Affine(0, ((Term(op, left, right), 1),))


def add(left: Dim, right: Dim) -> Dim:
    """Sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    (c0, t0), (c1, t1) = _row(left), _row(right)
    terms = dict(t0)
    for atom, coefficient in t1:
        terms[atom] = terms.get(atom, 0) + coefficient
    return _make(c0 + c1, terms)


def _is_positive(dim: Dim) -> TypeGuard[int]:
    return isinstance(dim, int) and dim > 0


def factors(dim: Dim) -> tuple[int, Counter[Affine]]:
    """The dim as an integer times factors that do not split further."""
    if isinstance(dim, int):
        return dim, Counter()
    if dim.constant == 0 and len(dim.terms) == 1:
        atom, coefficient = dim.terms[0]
        if isinstance(atom, Term) and atom.op == "mul":
            (c0, f0), (c1, f1) = factors(atom.left), factors(atom.right)
            return coefficient * c0 * c1, f0 + f1
        return coefficient, Counter([Affine(0, ((atom, 1),))])
    content = gcd(dim.constant, *(c for _, c in dim.terms))
    # Of `a - b` and `b - a` one is the factor of both, so that they cancel in quotients.
    content = -content if dim.terms[0][1] < 0 else content
    rest = tuple((a, c // content) for a, c in dim.terms)
    return content, Counter([Affine(dim.constant // content, rest)])


def _from_factors(coefficient: int, counted: Counter[Affine]) -> Dim:
    result: Dim = 1
    found = list(counted.elements())
    # One nesting for each product, in whatever order it was multiplied up.
    if len(found) > 1:
        found.sort(key=str)
    for factor in found:
        result = factor if result == 1 else _atom("mul", result, factor)
    return mul(result, coefficient)


def mul(left: Dim, right: Dim) -> Dim:
    """Product; affine while one side is an integer."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int):
        constant, terms = _row(left)
        return _make(constant * right, {a: c * right for a, c in terms})
    (c0, f0), (c1, f1) = factors(left), factors(right)
    return _from_factors(c0 * c1, f0 + f1)


def neg(dim: Dim) -> Dim:
    """Negation."""
    return mul(dim, -1)


def sub(left: Dim, right: Dim) -> Dim:
    """Difference."""
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    return add(left, neg(right))


def _exact_quotient(left: Dim, right: Dim) -> Dim | None:
    """`left / right` where that is exact for all values of the symbols."""
    if right == 0:
        return None
    constant, terms = _row(left)
    if isinstance(right, int):
        if constant % right == 0 and all(c % right == 0 for _, c in terms):
            return _make(constant // right, {a: c // right for a, c in terms})
        return None
    whole = _factor_quotient(left, right)
    # A constant has no symbolic factor: a sum with one divides as a whole or not at all.
    if whole is not None or constant or len(terms) < 2:
        return whole
    parts = [_factor_quotient(Affine(0, ((a, c),)), right) for a, c in terms]
    known = [part for part in parts if part is not None]
    return total(known) if len(known) == len(parts) else None


def _factor_quotient(left: Dim, right: Dim) -> Dim | None:
    """`left / right` where the factors of `right` are among those of `left`."""
    (c0, f0), (c1, f1) = factors(left), factors(right)
    if c0 % c1 or not f1 <= f0:
        return None
    return _from_factors(c0 // c1, f0 - f1)


def floordiv(left: Dim, right: Dim) -> Dim:
    """Quotient rounded towards minus infinity."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if right == 1:
        return left
    exact = _exact_quotient(left, right)
    if exact is not None:
        return exact
    # Towards one form: whole multiples come out, and constants inside are below the divisor.
    if _is_positive(right) and isinstance(left, Affine):
        if left.terms[0][1] < 0:  # floor(-A / r) = -floor((A + r - 1) / r)
            return neg(floordiv(sub(right - 1, left), right))
        whole = {a: c // right for a, c in left.terms if c % right == 0}
        if whole:  # floor((r·A + B) / r) = A + floor(B / r)
            rest = _make(left.constant, {a: c for a, c in left.terms if c % right})
            return add(_make(0, whole), floordiv(rest, right))
        shift, constant = divmod(left.constant, right)
        if shift:
            return add(floordiv(Affine(constant, left.terms), right), shift)
        (inner, coefficient), *more = left.terms
        if isinstance(inner, Term) and inner.op == "floordiv" and coefficient == 1 and not more:
            within = inner.right
            if _is_positive(within):  # (A // q + B) // r = (A + B·q) // (q·r)
                return floordiv(add(inner.left, left.constant * within), within * right)
    return _atom("floordiv", left, right)


def ceildiv(left: Dim, right: Dim) -> Dim:
    """Quotient rounded towards plus infinity."""
    if isinstance(right, int) and right > 0:
        # One form with quotients that are written out as `(N+1)//2`; negations would hide that.
        return floordiv(add(left, right - 1), right)
    return neg(floordiv(neg(left), right))


def truncdiv(left: Dim, right: Dim) -> Dim:
    """Quotient rounded towards zero (ONNX integer `Div`)."""
    if right == 1:
        return left
    exact = _exact_quotient(left, right)
    if exact is not None:
        return exact
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    # There both roundings agree, and `floordiv` simplifies further.
    if is_non_negative(left) and _is_positive(right):
        return floordiv(left, right)
    return _atom("truncdiv", left, right)


def is_non_negative(dim: Dim) -> bool:
    """Whether the dim is known to be zero or more for all sizes."""
    constant, terms = _row(dim)
    if constant >= 0 and all(c > 0 and _atom_non_negative(a) for a, c in terms):
        return True
    # Integers above -1. That `A // q` is no less than `(A - q + 1) / q` tells which sums are:
    # 7 * ((H + 24) // 28) - H // 4, what is missing from a multiple of 7.
    least, parts = Fraction(constant), {atom: Fraction(c) for atom, c in terms}
    while True:
        if least > -1 and all(c >= 0 and _atom_non_negative(atom) for atom, c in parts.items()):
            return True
        rounded = [(_depth(atom), atom) for atom in parts if _is_floored(atom)]
        if not rounded:
            return False
        # From outside in: what is left of one quotient may cancel before it is rounded as well.
        least += _opened(max(rounded, key=lambda found: found[0])[1], parts)


def _is_floored(atom: Symbol | Term) -> bool:
    return isinstance(atom, Term) and atom.op == "floordiv" and _is_positive(atom.right)


def _opened(atom: Symbol | Term, parts: dict[Symbol | Term, Fraction]) -> Fraction:
    """Put what a quotient is at least in its place, but for the constant, which is returned."""
    assert isinstance(atom, Term) and isinstance(atom.right, int)
    times = parts.pop(atom) / atom.right
    constant, terms = _row(atom.left)
    for inner, coefficient in terms:
        parts[inner] = parts.get(inner, Fraction(0)) + times * coefficient
        if not parts[inner]:
            del parts[inner]
    return times * constant - max(times, Fraction(0)) * (atom.right - 1)


@lru_cache(maxsize=4096)
def _depth(atom: Symbol | Term) -> int:
    """How deep quotients and the like are in one another."""
    if isinstance(atom, Symbol):
        return 0
    inner = (one for side in (atom.left, atom.right) for one, _ in _row(side)[1])
    return 1 + max(map(_depth, inner), default=0)


def _atom_non_negative(atom: Symbol | Term) -> bool:
    if isinstance(atom, Symbol):
        return True
    left, right = is_non_negative(atom.left), is_non_negative(atom.right)
    if atom.op == "mod":
        # The remainder has the divisor's sign, whatever the left side is.
        return right
    return left or right if atom.op == "max" else left and right


def mod(left: Dim, right: Dim) -> Dim:
    """Remainder with the sign of the divisor (Python's `%`)."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if _exact_quotient(left, right) is not None:
        return 0
    # As a quotient, so that what fills up to a multiple adds up to one, and multiples go.
    if _is_positive(right):
        return sub(left, mul(floordiv(left, right), right))
    # A divisor of 0 is an error in any case, so that one of multiples is as large as the least.
    if isinstance(left, int) and abs(left) < factors(right)[0] and is_non_negative(right):
        return left if left >= 0 else add(right, left)
    return _atom("mod", left, right)


def minimum(left: Dim, right: Dim) -> Dim:
    """The smaller."""
    return _extremum("min", left, right)


def maximum(left: Dim, right: Dim) -> Dim:
    """The larger."""
    return _extremum("max", left, right)


def _extremum(op: str, left: Dim, right: Dim) -> Dim:
    # Dims may differ by a constant although neither is known.
    gap = sub(left, right)
    if isinstance(gap, int):
        return left if (gap <= 0) == (op == "min") else right
    if is_non_negative(gap):
        return right if op == "min" else left
    if is_non_negative(neg(gap)):
        return left if op == "min" else right
    for one, other in ((left, right), (right, left)):
        match other:
            # What is taken in already; of the other kind the rest does not matter.
            case Affine(0, ((Term(("min" | "max") as kind, a, b), 1),)) if one in (a, b):
                return other if kind == op else one
    # Either order is the same extremum, and has to compare equal.
    first, second = sorted((left, right), key=str)
    return _atom(op, first, second)


def product(dims: Iterable[Dim]) -> Dim:
    """Product of all, 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = mul(result, dim)
    return result


def total(dims: Iterable[Dim]) -> Dim:
    """Sum of all, 0 for none."""
    result: Dim = 0
    for dim in dims:
        result = add(result, dim)
    return result


def symbols_of(dim: Dim) -> frozenset[str]:
    """Names of the symbols that the dim depends on."""
    if isinstance(dim, int):
        return frozenset()
    names: set[str] = set()
    for atom, _ in dim.terms:
        if isinstance(atom, Symbol):
            names.add(atom.name)
        else:
            names |= symbols_of(atom.left) | symbols_of(atom.right)
    return frozenset(names)


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The integer that the dim is for these sizes of the symbols.

    Raises:
        KeyError: If a symbol has no size.
        ZeroDivisionError: If a divisor is zero for these sizes.
    """
    if isinstance(dim, int):
        return dim
    total = dim.constant
    for atom, coefficient in dim.terms:
        total += coefficient * _evaluate_atom(atom, sizes)
    return total


def substituted(dim: Dim, known: Mapping[str, Dim]) -> Dim:
    """The dim with other dims in place of some of its symbols."""
    if isinstance(dim, int):
        return dim
    return total(
        (dim.constant, *(mul(_substituted(atom, known), times) for atom, times in dim.terms))
    )


def _substituted(atom: Symbol | Term, known: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        found = known.get(atom.name)
        return symbol(atom.name) if found is None else found
    left, right = substituted(atom.left, known), substituted(atom.right, known)
    return _OPERATORS[atom.op](left, right)


_OPERATORS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "mul": mul, "floordiv": floordiv, "truncdiv": truncdiv, "mod": mod,
    "min": minimum, "max": maximum,
}  # fmt: skip


def _evaluate_atom(atom: Symbol | Term, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return sizes[atom.name]
    left, right = evaluate(atom.left, sizes), evaluate(atom.right, sizes)
    if atom.op == "mul":
        return left * right
    if atom.op == "floordiv":
        return left // right
    if atom.op == "mod":
        return left % right
    if atom.op == "truncdiv":
        # Python has no integer division that rounds towards zero.
        value = truncdiv(left, right)
        assert isinstance(value, int)
        return value
    return min(left, right) if atom.op == "min" else max(left, right)
