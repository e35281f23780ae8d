"""Einsum: products of two operands after the other, each a product of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.moves import move, reshaped, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Dim, Value
from saccade.ir.dim import product
from saccade.ir.expr import apply
from saccade.opdefs import Gather, MatMul, Reduce

__all__ = ["import_einsum"]


@dataclass(frozen=True, slots=True)
class _Term:
    """A value and what its axes are called; those of an ellipsis have letters of their own."""

    value: Value
    axes: str

    def size(self, axis: str) -> Dim:
        return self.value.shape[self.axes.index(axis)]


def import_einsum(call: OnnxNode) -> Sequence[Operand]:
    """ONNX Einsum 12, with ellipses and repeated letters, of any number of operands."""
    inputs, output = _spelled(call)
    terms = [_diagonal(call, _Term(call.value(i), axes)) for i, axes in enumerate(inputs)]
    while len(terms) > 1:
        left, right, *rest = terms
        later = set(output).union(*(term.axes for term in rest))
        terms = [_product(call, left, right, later), *rest]
    return [_ordered(call, _summed(call, terms[0], set(output)), output)]


def _spelled(call: OnnxNode) -> tuple[list[str], str]:
    """The letters of each operand's axes and of the result's."""
    text = "".join(call.text("equation", "").split())
    left, arrow, output = text.partition("->")
    sides = left.split(",")
    if len(sides) != len(call.operands) or not call.operands:
        raise call.broken(f"equation {text!r} for {len(call.operands)} operands")
    hidden = max(
        (len(call.shape(i)) - len(s.replace("...", "")) for i, s in enumerate(sides) if "..." in s),
        default=0,
    )
    # Letters that no equation is written in.
    free = [chr(c) for c in range(0x100, 0x100 + hidden)]
    inputs = []
    for index, side in enumerate(sides):
        count = len(call.shape(index)) - len(side.replace("...", ""))
        if side.count("...") > 1 or count < 0 or (count and "..." not in side):
            raise call.broken(f"{side!r} for {len(call.shape(index))} axes")
        inputs.append(side.replace("...", "".join(free[hidden - count :])))
    letters = "".join(inputs)
    if arrow:
        result = output.replace("...", "".join(free))
    else:
        result = "".join(free) + "".join(
            sorted(c for c in set(letters) - set(free) if letters.count(c) == 1)
        )
    known = all(c.isalpha() for c in letters + result)
    if not known or len(set(result)) < len(result) or not set(result) <= set(letters):
        raise call.broken(f"equation {text!r}")
    return inputs, result


def _diagonal(call: OnnxNode, term: _Term) -> _Term:
    """The term with letters that it repeats once: along the diagonal of their axes."""
    value, axes = term.value, term.axes
    for letter in dict.fromkeys(axes):
        while axes.count(letter) > 1:
            first = axes.index(letter)
            second = axes.index(letter, first + 1)
            size = value.shape[first]
            if not isinstance(size, int) or value.shape[second] != size:
                raise Refusal("a diagonal of sizes that vary")
            order = [first, second, *(a for a in range(value.rank) if a not in (first, second))]
            together = move(call, value, transpose_map(value.shape, order))
            flat = reshaped(call, together, (size * size, *together.shape[2:]))
            places = call.build.constant(np.arange(size, dtype=np.int64) * (size + 1), "diagonal")
            value = call.emit(Gather(axis=0), flat, places)
            rest = "".join(c for a, c in enumerate(axes) if a not in (first, second))
            axes = letter + rest
    return _Term(value, axes)


def _summed(call: OnnxNode, term: _Term, kept: set[str]) -> _Term:
    """Without axes that nothing asks for."""
    gone = tuple(a for a, letter in enumerate(term.axes) if letter not in kept)
    if not gone:
        return term
    value = call.emit(Reduce(kind="sum", axes=gone, keepdims=False), term.value)
    return _Term(value, "".join(c for c in term.axes if c in kept))


def _ordered(call: OnnxNode, term: _Term, axes: str) -> Value:
    order = [term.axes.index(letter) for letter in axes]
    if order == list(range(len(order))):
        return term.value
    return move(call, term.value, transpose_map(term.value.shape, order))


def _product(call: OnnxNode, left: _Term, right: _Term, later: set[str]) -> _Term:
    """Both multiplied, and summed over what nothing asks for later."""
    left = _summed(call, left, later | set(right.axes))
    right = _summed(call, right, later | set(left.axes))
    both = [c for c in left.axes if c in right.axes]
    # Axes of 1 that broadcast are no matrix's: they multiply element by element.
    alike = all(left.size(c) == right.size(c) for c in both)
    inner = [c for c in both if c not in later]
    if not alike or not inner or not left.value.dtype.is_float:
        return _summed(call, _elementwise(call, left, right), later)
    batch = [c for c in both if c in later]
    rows = [c for c in left.axes if c not in both]
    columns = [c for c in right.axes if c not in both]
    a = _matrices(call, left, (batch, rows, inner))
    b = _matrices(call, right, (batch, inner, columns))
    result = call.emit(MatMul(), a, b)
    axes = [*batch, *rows, *columns]
    shape = [(left if c in left.axes else right).size(c) for c in axes]
    return _Term(reshaped(call, result, shape), "".join(axes))


def _matrices(call: OnnxNode, term: _Term, groups: tuple[list[str], ...]) -> Value:
    """The term with three axes, each of several letters."""
    axes = "".join(c for group in groups for c in group)
    shape = [product(term.size(c) for c in group) for group in groups]
    return reshaped(call, _ordered(call, term, axes), shape)


def _elementwise(call: OnnxNode, left: _Term, right: _Term) -> _Term:
    axes = left.axes + "".join(c for c in right.axes if c not in left.axes)
    spread = []
    for term in (left, right):
        there = "".join(c for c in axes if c in term.axes)
        shape = [term.size(c) if c in term.axes else 1 for c in axes]
        spread.append(reshaped(call, _ordered(call, term, there), shape))
    return _Term(pointwise(call, lambda u, v: apply("mul", u, v), spread), axes)
