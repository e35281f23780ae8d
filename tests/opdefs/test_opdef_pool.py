"""Pooling against onnxruntime and against loops over the definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from saccade.errors import ModelError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.opdefs import Pool2d
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

WINDOWS = [  # shape, kernel, stride, padding, dilation
    ((2, 3, 7, 5), (3, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((1, 1, 13, 11), (3, 3), (2, 2), (1, 0, 1, 2), (1, 1)),
    ((1, 5, 11, 17), (2, 3), (3, 2), (1, 1, 0, 1), (2, 3)),
    ((0, 2, 6, 6), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((1, 2, 5, 6), (3, 3), (3, 4), (1, 1, 1, 1), (1, 1)),
    ((1, 1, 3, 3), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
]


def attributes(op):
    return {
        "kernel_shape": op.kernel,
        "strides": op.stride,
        "pads": op.padding,
        "dilations": op.dilation,
        "ceil_mode": int(op.ceil_mode),
    }


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_max_agrees(window, ceil_mode, *, rng, peer, agrees_exactly):
    shape, *given = window
    op = Pool2d("max", *given, ceil_mode=ceil_mode)
    x = random_operands(shape, DType.F32, rng) - 5  # a padding of zeros would win
    agrees_exactly(op, (x,), peer("MaxPool", (x,), **attributes(op)))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_average_agrees(window, include, ceil_mode, *, rng, peer, agrees):
    shape, *given = window
    op = Pool2d("average", *given, ceil_mode=ceil_mode, count_include_pad=include)
    x = random_operands(shape, DType.F32, rng)
    theirs = peer("AveragePool", (x,), **attributes(op), count_include_pad=int(include))
    agrees(op, (x,), theirs, k=op.kernel[0] * op.kernel[1])


def by_definition(op, x):
    """Every window by itself; taps past the padding do not exist."""
    (out,) = op.infer([TensorType(DType.of(x.dtype), x.shape)])
    result = np.zeros(out.shape)
    for n, c, p, q in itertools.product(*map(range, out.shape)):
        values, taps = [], 0
        for r, s in itertools.product(*map(range, op.kernel)):
            h = p * op.stride[0] - op.padding[0] + r * op.dilation[0]
            w = q * op.stride[1] - op.padding[1] + s * op.dilation[1]
            taps += h < x.shape[2] + op.padding[2] and w < x.shape[3] + op.padding[3]
            if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                values.append(x[n, c, h, w])
        if op.kind == "max":
            result[n, c, p, q] = max(values)
        else:
            result[n, c, p, q] = sum(values) / (taps if op.count_include_pad else len(values))
    return result


@pytest.mark.parametrize("window", [w for w in WINDOWS if w[0][0]])
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("include", [False, True])
def test_definition(window, kind, include, rng):
    shape, *given = window
    op = Pool2d(kind, *given, ceil_mode=True, count_include_pad=include)
    x = exact_operands(shape, DType.F64, rng)
    np.testing.assert_allclose(op.reference(x)[0], by_definition(op, x), rtol=1e-14)


@pytest.mark.parametrize("size", range(3, 15))
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 2, 1), (2, 3, 1), (2, 2, 0), (3, 4, 2)])
def test_ceil_mode_sizes(size, kernel, stride, pad):
    """PyTorch's rule: round up, then drop the last window if it starts in the bottom padding."""
    want = math.ceil((size + 2 * pad - kernel) / stride) + 1
    if (want - 1) * stride >= size + pad:
        want -= 1
    op = Pool2d("max", (kernel, 1), (stride, 1), (pad, 0, pad, 0), ceil_mode=True)
    assert op.infer([TensorType(DType.F32, (1, 1, size, 1))])[0].shape[2] == want


def test_integers_have_a_lowest_padding(rng):
    x = rng.integers(-128, -100, (1, 2, 5, 5)).astype(np.int8)
    (got,) = Pool2d("max", (3, 3), padding=(1, 1, 1, 1)).reference(x)
    assert got.dtype == np.int8
    assert got.max() < -99


def test_epilogue(rng):
    x = exact_operands((1, 3, 4, 4), DType.F32, rng)
    scale = exact_operands((3, 1, 1), DType.F32, rng)
    fused = Pool2d("max", (2, 2), (2, 2), epilogue=parse("relu(mul($0, $1))"))
    (plain,) = Pool2d("max", (2, 2), (2, 2)).reference(x)
    assert_exact(fused.reference(x, scale)[0], np.maximum(plain * scale, 0))


def test_work_counts_valid_taps():
    op = Pool2d("max", (3, 3), (2, 2), (1, 1, 1, 1))
    x = TensorType(DType.F32, (2, 3, 5, 5))
    assert op.work([x], op.infer([x])).flops == 2 * 3 * (2 + 3 + 2) ** 2


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Pool2d("median", (2, 2)), "kind 'median'"),
        (Pool2d("max", (2, 2), padding=(2, 0, 0, 0)), "holds whole windows"),
        (Pool2d("max", (6, 2)), "5 rows and padding are less than the window of 6"),
        (Pool2d("max", (2, 0)), "must be positive"),
    ],
)
def test_misfits_are_refused(op, message):
    with pytest.raises(ModelError, match=message):
        op.infer([TensorType(DType.F32, (1, 1, 5, 5))])
