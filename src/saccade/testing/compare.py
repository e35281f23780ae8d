"""How far two sets of outputs are apart, and whether that is too far.

The measure is the relative L2 norm, `‖actual − expected‖ / ‖expected‖` in float64. For images and
feature maps it is taken once more on the outermost ring of pixels alone: padding mistakes live
there, and in the norm of the whole they drown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ABSOLUTE_FLOOR",
    "BF16_TOLERANCE",
    "FP16_TOLERANCE",
    "FP32_TOLERANCE",
    "Comparison",
    "compare_arrays",
    "compare_outputs",
    "outer_ring",
    "relative_l2",
]

FP32_TOLERANCE = (
    2e-5  # Winograd F(4x4,3x3) through fifty layers stays below it, a wrong pixel does not
)
FP16_TOLERANCE = 5e-3
ABSOLUTE_FLOOR = 1e-6
"""Largest difference of one element that is none, however small the whole is: what is 0 but for
rounding has no relative error."""
BF16_TOLERANCE = 5e-2  # OpenVINO's own bf16 strays by up to 2.1e-2 on MobileNetV3


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its expectation.

    Attributes:
        name: The output's name.
        relative_l2: Over all finite elements; infinite when the arrays cannot be compared.
        ring_l2: The same over the outermost ring of pixels of a rank-4 output, else None.
        problem: Why no tolerance can excuse the output (shape, dtype, NaN), or None.
        largest: The largest difference of one element; infinite when they cannot be compared.
    """

    name: str
    relative_l2: float
    ring_l2: float | None = None
    problem: str | None = None
    largest: float = math.inf

    def within(self, tolerance: float, floor: float = 0.0) -> bool:
        """Whether it is as close as is asked for.

        Args:
            tolerance: Of the relative L2 norm of the output, and of its outermost ring too.
            floor: Where no element differs by more, the norms do not matter.
        """
        if self.problem is None and self.largest <= floor:
            return True
        ring_fits = self.ring_l2 is None or self.ring_l2 <= tolerance
        return self.problem is None and self.relative_l2 <= tolerance and ring_fits


def relative_l2(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """`‖actual − expected‖ / ‖expected‖` in float64; 0 for equal zeros, infinite against zeros."""
    wanted = np.asarray(expected, dtype=np.float64).ravel()
    # In float64: squares and sums in float16 would overflow.
    distance = float(np.linalg.norm(np.asarray(actual, dtype=np.float64).ravel() - wanted))
    norm = float(np.linalg.norm(wanted))
    if norm == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / norm


def outer_ring(array: NDArray[Any]) -> NDArray[Any]:
    """The pixels of [N, C, H, W] with no neighbour on one side, as [N, C, pixels]."""
    height, width = array.shape[2:]
    mask = np.ones((height, width), dtype=bool)
    mask[1:-1, 1:-1] = False
    return array[:, :, mask]


def compare_arrays(name: str, actual: NDArray[Any], expected: NDArray[Any]) -> Comparison:
    """Compare one output; both arrays of any real dtype, which has to be the same."""
    if actual.shape != expected.shape:
        return _incomparable(name, f"shape {actual.shape}, expected {expected.shape}")
    if actual.dtype != expected.dtype:
        return _incomparable(name, f"dtype {actual.dtype}, expected {expected.dtype}")
    got = actual.astype(np.float64)
    wanted = expected.astype(np.float64)
    odd = ~(np.isfinite(got) & np.isfinite(wanted))
    differing = int(np.count_nonzero(~((got == wanted) | (np.isnan(got) & np.isnan(wanted))) & odd))
    if differing:
        return _incomparable(name, f"{differing} NaN or infinite element(s) on one side only")
    got[odd] = wanted[odd] = 0.0  # the same NaN or infinity on both sides
    ring = None
    if actual.ndim == 4 and actual.size:
        ring = relative_l2(outer_ring(got), outer_ring(wanted))
    largest = float(np.abs(got - wanted).max(initial=0.0))
    return Comparison(name, relative_l2(got, wanted), ring, largest=largest)


def compare_outputs(
    actual: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]
) -> list[Comparison]:
    """Compare every expected output, in the order of `expected`."""
    return [
        compare_arrays(name, actual[name], wanted)
        if name in actual
        else _incomparable(name, "missing")
        for name, wanted in expected.items()
    ]


def _incomparable(name: str, problem: str) -> Comparison:
    return Comparison(name, math.inf, None, problem)
