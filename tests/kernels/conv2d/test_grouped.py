"""Convolution with narrow groups, bit by bit against the reference on integers."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.cpu.conv2d.grouped import CONV2D_GROUPED
from saccade.opdefs import Conv2d
from saccade.testing.kernels import nhwc_view, row_major
from saccade.testing.tolerance import exact_operands

F32, BF16 = DType.F32, DType.BF16
BIAS_RELU = parse("relu(add($0, $1))")
CASES = [
    # n, groups, channels and filters of each, h, w, taps, stride, padding, dilation
    (1, 9, 4, 4, 9, 17, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (2, 13, 8, 8, 7, 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 5, 2, 2, 8, 23, (3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
    (1, 6, 8, 8, 10, 9, (3, 3), (2, 2), (1, 0, 2, 3), (1, 1)),
    (1, 3, 16, 16, 9, 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 3, 24, 24, 6, 9, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 3, 40, 40, 5, 4, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    (1, 2, 32, 32, 5, 7, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 7, 1, 2, 6, 12, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    (1, 3, 1, 16, 6, 12, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 5, 2, 4, 6, 12, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 5, 4, 8, 6, 12, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 3, 16, 8, 6, 12, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 5, 4, 4, 15, 14, (3, 3), (1, 1), (4, 4, 4, 4), (4, 4)),
    (1, 4, 4, 4, 12, 10, (3, 5), (1, 2), (5, 1, 0, 6), (2, 1)),
    (1, 5, 4, 4, 1, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 6, 8, 8, 4, 11, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (0, 4, 4, 4, 6, 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
]


def setup(case, seed=0, **more):
    n, groups, c, k, h, w, taps, stride, padding, dilation = case
    rng = np.random.default_rng(seed)
    shapes = ((n, groups * c, h, w), (groups * k, c, *taps), (1, groups * k, 1, 1))
    op = Conv2d(stride, padding, dilation, groups, epilogue=more.pop("epilogue", BIAS_RELU), **more)
    return op, [exact_operands(s, F32, rng) for s in shapes]


def check(hold, op, arrays, kernel=CONV2D_GROUPED, inputs=None, **more):
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    x, *rest = arrays
    views = inputs or [
        nhwc_view(F32, x.shape, x.shape[1] + 3),
        *(row_major(F32, a.shape) for a in rest),
    ]
    out = [nhwc_view(F32, kind.shape, kind.shape[1] + 2)]
    constant = [False, True, *[True] * (len(arrays) - 2)]
    more.setdefault("exact", True)
    return hold(kernel, op, arrays, inputs=views, outputs=out, constant=constant, **more)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_window_and_size(hold, case):
    check(hold, *setup(case))
