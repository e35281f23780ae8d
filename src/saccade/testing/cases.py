"""Operands, storage and truth of the cases in `saccade.kernels.cases`, for any device's kernels.

A device brings the names of its kernels, which cases each of them refuses, and a `Runner`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from saccade.ir import Array, DType, Op, TensorType, storage
from saccade.kernels.base import View
from saccade.kernels.cases.base import (
    Case,
    CaseStorage,
    CornerBoxes,
    Given,
    Normal,
    Operand,
    Result,
    ResultOf,
    Whole,
)
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import assert_close, assert_exact

__all__ = [
    "Runner",
    "arrays_of",
    "compare",
    "hold",
    "inputs_of",
    "outputs_of",
    "stored_as",
    "truth",
    "truth_of",
    "types_of",
]

Runner = Callable[[Case, Sequence[Array]], Sequence[Array]]
"""Runs a case on its operands (logical order); gives its results in logical order."""

_HALF = 2  # bytes of an element of 16 bits
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


def inputs_of(case: Case) -> tuple[View, ...]:
    """Storage of a case's operands."""
    return tuple(_view(o.dtype, o.shape, o.storage) for o in case.operands)


def outputs_of(case: Case) -> tuple[View, ...]:
    """Storage of a case's results.

    Raises:
        ModelError: If the case's operands do not fit its operator.
    """
    types = types_of(case.op, [TensorType(o.dtype, o.shape) for o in case.operands])
    rows = (*case.results, *(Result(),) * (len(types) - len(case.results)))
    return tuple(
        _view(_stored(t.dtype, result.dtype), _whole(t), result.storage)
        for t, result in zip(types, rows, strict=True)
    )


def stored_as(case: Case, kind: DType) -> Case | None:
    """The case with its float32 values in float16 or bfloat16; None if it has none, or others.

    Its name gains `-half` or `-bfloat16`.
    """
    kinds = {operand.dtype for operand in case.operands}
    if DType.F32 not in kinds or kinds & {DType.BF16, DType.F16}:
        return None
    operands = tuple(
        replace(o, dtype=kind if o.dtype is DType.F32 else o.dtype) for o in case.operands
    )
    name = f"{case.name}-{'half' if kind is DType.F16 else kind.value}"
    results = tuple(replace(r, dtype=None) for r in case.results)
    made = replace(case, name=name, operands=operands, results=results)
    if kind is DType.F16:
        return made
    # Operators of bfloat16 give float32, which their results store: in bfloat16 here.
    views = outputs_of(made)
    rows = (*results, *(Result(),) * (len(views) - len(results)))
    stored = (replace(r, dtype=kind if v.dtype is DType.F32 else None)
              for r, v in zip(rows, views, strict=True))  # fmt: skip
    return replace(made, results=tuple(stored))


def _whole(kind: TensorType) -> tuple[int, ...]:
    assert all(isinstance(n, int) for n in kind.shape), f"{kind.shape} has symbols"
    return tuple(n for n in kind.shape if isinstance(n, int))


def _stored(computed: DType, wanted: DType | None) -> DType:
    """bfloat16 stores float32; every other type is the one that is computed in."""
    assert wanted in (None, computed) or (computed, wanted) == (DType.F32, DType.BF16), wanted
    return wanted or computed


def _view(dtype: DType, shape: tuple[int, ...], how: CaseStorage) -> View:
    if how.strides is not None:
        return View(dtype, shape, how.strides)
    if how.channels_last:
        aligned = how.aligned and dtype.itemsize == _HALF
        return nhwc_view(dtype, shape, shape[1] + how.gap)._replace(aligned=aligned)
    return row_major(dtype, shape)


def arrays_of(case: Case) -> tuple[Array, ...]:
    """A case's operands in logical order: the same ones each time."""
    # Not `hash`, which differs between processes.
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    arrays: list[Array] = []
    for operand in case.operands:
        arrays.append(_values(operand, arrays, rng).astype(operand.dtype.numpy))
    return tuple(arrays)


def _values(operand: Operand, before: Sequence[Array], rng: np.random.Generator) -> Array:
    shape, values = operand.shape, operand.values
    match values:
        case Normal():
            return _normal(shape, values, rng)
        case Whole():
            # As unsigned a negative number would become a huge one.
            low = max(values.low, 0) if operand.dtype.numpy.kind == "u" else values.low
            return np.asarray(rng.integers(low, values.high + 1, shape) * values.step)
        case CornerBoxes():
            first = rng.integers(0, values.room, (*shape[:-1], 2))
            return np.concatenate([first, first + rng.integers(0, values.side, first.shape)], -1)
        case Given():
            return np.array(values.numbers, np.float64).reshape(shape)
        case ResultOf():
            return storage.reference(values.op, [before[i] for i in values.operands])[values.index]


def _normal(shape: tuple[int, ...], values: Normal, rng: np.random.Generator) -> Array:
    drawn = np.asarray(rng.standard_normal(shape))
    drawn = (np.abs(drawn) if values.magnitude else drawn) * values.scale + values.offset
    if values.special:
        drawn = np.where(rng.random(shape) < 0.05, rng.choice(_SPECIAL, shape), drawn)
    return drawn


def types_of(op: Op, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """Types of a kernel's results, where bfloat16 may store what is float32.

    Graphs only store what is float16, too; to a kernel it is a type of its own, that results have
    because operands do. It is computed in float32 all the same (`truth`), and rounded once.

    Raises:
        ModelError: If the operands do not fit the operator.
    """
    wide = (DType.F32 if t.dtype is DType.BF16 else t.dtype for t in operands)
    return op.infer([TensorType(w, t.shape) for w, t in zip(wide, operands, strict=True)])


def truth(op: Op, arrays: Sequence[Array], *, exact: bool) -> tuple[Array, ...]:
    """What a kernel's results have to be.

    Args:
        op: The operator, bound.
        arrays: Its operands as they are stored.
        exact: Whether every bit is settled: results are those in the operands' own types, halves
            widened to float32, before they are rounded to their storage. Else they are float64.
    """
    if not exact:
        return _reference64(op, arrays)
    with np.errstate(all="ignore"):
        return storage.reference(op, arrays)


def _reference64(op: Op, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The reference on float64 operands."""
    wide = [a.astype(np.float64) if DType.of(a.dtype).is_float else a for a in arrays]
    # An operator that states its results' type would round to it.
    if getattr(op, "dtype", None) in (DType.F32, DType.F16):
        op = replace(op, dtype=DType.F64)  # type: ignore[call-arg]  # looked for above
    with np.errstate(all="ignore"):
        return op.reference(*wide)


def truth_of(case: Case, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """What a case's results have to be, see `truth`: exact where a case sums no terms."""
    return truth(case.op, arrays, exact=not case.terms)


@lru_cache(maxsize=4)  # a kernel's variants ask for the same ones, one after the other
def _wanted(case: Case) -> tuple[Array, ...]:
    return truth_of(case, arrays_of(case))


def hold(case: Case, run: Runner) -> None:
    """Run a case and compare with the reference, bit by bit or within its terms' tolerance.

    Raises:
        AssertionError: If a result is wrong.
    """
    compare(case, run(case, arrays_of(case)))


def compare(case: Case, results: Sequence[Array]) -> None:
    """Compare results of a case's operands (`arrays_of`) with the reference, see `hold`.

    Raises:
        AssertionError: If a result is wrong.
    """
    for result, true, view in zip(results, _wanted(case), outputs_of(case), strict=True):
        if case.terms and view.dtype.is_float:
            assert_close(
                result, np.asarray(true, np.float64), dtype=view.dtype, k=case.terms,
                roundings=case.roundings,
            )  # fmt: skip
        else:
            with np.errstate(over="ignore"):  # of what float16 has no numbers for
                rounded = np.asarray(true).astype(view.dtype.numpy)
            assert_exact(result, rounded)
