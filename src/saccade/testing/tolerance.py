"""How far a result may be from the truth, by one formula, and operands that leave no room."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from saccade.ir.dtype import DType
from saccade.ir.op import Array

__all__ = ["assert_close", "assert_exact", "bound", "exact_operands", "random_operands"]

_SAFETY = (
    4.0  # rounding errors of a sum in any order stay below a half; the rest is for exp, tanh, …
)
_BF16_ROUNDING = 2.0**-8  # half the distance of neighbours, over the smaller of them
_EXACT_LIMIT = {DType.F16: 1, DType.F32: 4, DType.F64: 64}


def bound(dtype: DType, k: int, roundings: int = 1) -> float:
    """The relative error that sums of `k` rounded terms in `dtype` may have: `4 · eps · sqrt(k)`.

    What is stored in bfloat16 was summed in float32 and rounded once, or so many times if terms
    were rounded to it, too.

    Args:
        dtype: Floating-point type in which terms are summed or, if coarser, stored.
        k: Length of the sums; 1 for what sums nothing.
        roundings: To bfloat16, one after the other.

    Raises:
        ValueError: If `dtype` is not floating point or `k` is less than 1.
    """
    if not dtype.is_float:
        raise ValueError(f"{dtype.value} is exact: compare with assert_exact")
    if k < 1:
        raise ValueError(f"sums of {k} terms")
    if dtype is DType.BF16:
        return roundings * _BF16_ROUNDING + bound(DType.F32, k)
    return _SAFETY * float(np.finfo(dtype.numpy).eps) * math.sqrt(k)


def assert_close(
    actual: Array, reference64: Array, *, dtype: DType, k: int, roundings: int = 1
) -> None:
    """Hold a result against the truth.

    Both the L2 norm of the error over that of the truth and the largest error over the largest
    magnitude of the truth must be within `bound(dtype, k, roundings)`; a truth of zeros must be met
    exactly. Infinities and NaNs must stand at the same places.

    Args:
        actual: The result, in `dtype`.
        reference64: The truth, float64, of the same shape.
        dtype: What the result's element type must be.
        k: Length of the sums behind each element.
        roundings: Of an element to bfloat16, one after the other.

    Raises:
        AssertionError: If the result is wrong; the message has the worst element.
        TypeError: If the reference is not float64.
    """
    _same_form(actual, reference64, dtype)
    if reference64.dtype != np.float64:
        raise TypeError(f"the reference is {reference64.dtype}, not float64")
    finite = np.isfinite(reference64)
    special = np.array_equal(actual[~finite], reference64[~finite], equal_nan=True)
    assert special, "infinities or NaNs of the truth are missing"
    with np.errstate(invalid="ignore"):  # a NaN of bfloat16 may be a signalling one
        proper = np.isfinite(actual[finite]).all()
    assert proper, "the result has infinities or NaNs of its own"
    truth = np.where(finite, reference64, 0.0)
    error = np.abs(np.where(finite, actual, 0.0).astype(np.float64) - truth)
    limit = bound(dtype, k, roundings)
    norm, peak = float(np.linalg.norm(truth)), float(np.abs(truth).max(initial=0.0))
    relative, worst = float(np.linalg.norm(error)), float(error.max(initial=0.0))
    # Multiplied, not divided: a truth of zeros has to be met exactly.
    if relative > limit * norm or worst > limit * peak:
        at = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
        raise AssertionError(
            f"relative L2 error {relative / (norm or 1.0):.2e}, largest error {worst:.2e} of "
            f"{peak:.2e}, allowed {limit:.2e}; worst at {at}: {actual[at]} for {truth[at]}"
        )


def assert_exact(actual: Array, reference: Array) -> None:
    """Hold a result against one of the same element type that must be met exactly; NaN equals NaN.

    Raises:
        AssertionError: If they differ; the message counts and shows the first difference.
    """
    _same_form(actual, reference, DType.of(reference.dtype))
    same = (actual == reference) | ((actual != actual) & (reference != reference))  # noqa: PLR0124
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        count = int((~same).sum())
        raise AssertionError(
            f"{count} of {same.size} elements differ; first at {at}: {actual[at]}, "
            f"should be {reference[at]}"
        )


def _same_form(actual: Array, reference: Array, dtype: DType) -> None:
    assert actual.shape == reference.shape, f"shape {actual.shape}, should be {reference.shape}"
    assert actual.dtype == dtype.numpy, f"type {actual.dtype}, should be {dtype.value}"


def exact_operands(shape: Sequence[int], dtype: DType, rng: np.random.Generator) -> Array:
    """Small random integers in `dtype`: sums of their products are exact in any order.

    Magnitudes reach 4 in float32, integers and smaller types, 1 in float16: a million products sum
    exactly in float32, where sums over bfloat16 are kept, and 2048 in float16.
    Unsigned types have none below 0.
    """
    if dtype is DType.BOOL:
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    limit = _EXACT_LIMIT.get(dtype, 4)
    low = 0 if dtype.numpy.kind == "u" else -limit
    return rng.integers(low, limit + 1, tuple(shape)).astype(dtype.numpy)


def random_operands(shape: Sequence[int], dtype: DType, rng: np.random.Generator) -> Array:
    """Standard normal numbers rounded to `dtype`, which must be floating point."""
    if not dtype.is_float:
        raise ValueError(f"{dtype.value} is not floating point: use exact_operands")
    return rng.standard_normal(tuple(shape)).astype(dtype.numpy)
