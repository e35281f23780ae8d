"""Calls of deformable convolution: operators, operands, storage."""

from __future__ import annotations

import numpy as np

from saccade.ir import DType, TensorType
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import exact_operands, random_operands

CASES = [
    # x, channels of the result, window, attributes
    ((2, 20, 9, 11), 24, (3, 3), {"padding": (1, 1, 1, 1)}),
    ((1, 33, 7, 5), 5, (3, 2), {"padding": (1, 0, 1, 0), "stride": (2, 1), "dilation": (1, 2)}),
    ((1, 24, 6, 7), 36, (1, 1), {"groups": 2, "offset_groups": 3}),
    ((3, 6, 8, 9), 4, (2, 3), {"groups": 2, "offset_groups": 6, "padding": (2, 1, 0, 3)}),
    ((1, 300, 5, 6), 70, (2, 2), {"stride": (1, 2), "offset_groups": 2}),
    ((1, 8, 4, 5), 280, (2, 2), {"groups": 2}),
    ((1, 3, 2, 3), 1, (3, 3), {"padding": (1, 1, 1, 1)}),
]


def operands(rng, op, shape, outputs, window, dtype=DType.F32, other=None, exact=False):
    """x, weights, offset, bias, mask; offsets of whole and quarter pixels if exact."""
    n, c, _, _ = shape
    make = exact_operands if exact else random_operands
    x, w = make(shape, dtype, rng), make((outputs, c // op.groups, *window), dtype, rng)
    p, q = op.results(*(_type(a) for a in (x, w)))
    count = op.offset_groups * window[0] * window[1]
    other = other or dtype
    if exact:
        offset = rng.integers(-12, 13, (n, 2 * count, p, q)).astype(other.numpy) / 4
        mask = rng.integers(0, 3, (n, count, p, q)).astype(other.numpy) / 2
        offset, mask = offset.astype(other.numpy), mask.astype(other.numpy)
    else:
        offset = (2 * random_operands((n, 2 * count, p, q), DType.F32, rng)).astype(other.numpy)
        mask = random_operands((n, count, p, q), DType.F32, rng).astype(other.numpy)
    return x, w, offset, make((outputs,), dtype, rng), mask


def _type(array):
    return TensorType(DType.of(array.dtype), array.shape)


def stored(array, last, pitch=0):
    """Channels last, or row-major."""
    dtype = DType.of(array.dtype)
    if last and array.ndim == 4:
        return nhwc_view(dtype, array.shape, array.shape[1] + pitch)
    return row_major(dtype, array.shape)


def results(op, arrays):
    """Arrays like the results."""
    return [np.empty(t.shape, t.dtype.numpy) for t in op.infer([_type(a) for a in arrays])]


def chosen(op, arrays):
    """The operands that the operator has."""
    x, w, offset, bias, mask = arrays
    return [x, w, offset, *([bias] if op.bias else []), *([mask] if op.mask else [])]


RNG = np.random.default_rng(41)
