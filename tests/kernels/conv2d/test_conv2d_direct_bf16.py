"""The direct convolution over bfloat16: storage of every operand, products in pairs, odd depths."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.conv2d.cases import CASES, ConvCase
from saccade.kernels.conv2d.cpu_direct import CONV2D_DIRECT
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import nhwc_view, row_major, run_kernel
from saccade.testing.tolerance import assert_exact, exact_operands, random_operands

RNG = np.random.default_rng(9)
F32, BF16 = DType.F32, DType.BF16
FEW = (("avx512", False, 2, (1, 0)), ("avx2", True, 1, None))
CHECKED = (("avx512", True, 3, (2, 0, 1)), ("avx2", False, 1, None))
BIAS_RELU = parse("relu(add($0, $1))")
MIXES = {
    "bf16": (BF16, BF16, BF16),
    "to-f32": (BF16, BF16, F32),
    "from-f32": (F32, F32, BF16),
    "weights-f32": (BF16, F32, BF16),
    "weights-bf16": (F32, BF16, F32),
}
DEPTHS = [
    ConvCase(f"{c}-{r}x{r}", (1, c, 5, 4), (33, c, r, r), Conv2d(padding=(r // 2,) * 4))
    for c in (1, 2, 3, 7, 9, 17, 48, 960)
    for r in ((1, 3) if c < 960 else (1,))
]


def case_run(hold, case, mix, make, *, op=None, more=(), storage=nhwc_view, **kwargs):
    """The case with every operand stored as the mix says; `more` are constants."""
    x, w, y = MIXES[mix]
    arrays = [make(case.x, x, RNG), make(case.w, w, RNG), *more]
    op = op or case.op
    shape = case.op.reference(*(a.astype(np.float32) for a in arrays[:2]))[0].shape
    views = [storage(x, case.x), *(row_major(DType.of(a.dtype), a.shape) for a in arrays[1:])]
    known = (False, *(True for _ in arrays[1:]))
    return hold(
        CONV2D_DIRECT, op, arrays, inputs=views, outputs=[storage(y, shape)], constant=known,
        **kwargs,
    )  # fmt: skip


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_integers_are_exact(hold, case, mix):
    case_run(hold, case, mix, exact_operands, exact=True, runs=FEW)


@pytest.mark.parametrize("case", DEPTHS, ids=lambda case: case.name)
def test_odd_depths(hold, case):
    case_run(hold, case, "bf16", exact_operands, exact=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_random_operands(hold, case):
    bias = random_operands((1, case.w[0], 1, 1), F32, RNG)
    op = dataclasses.replace(case.op, epilogue=BIAS_RELU)
    case_run(
        hold, case, "bf16", random_operands, op=op, more=[bias], k=case.depth, runs=CHECKED
    )


@pytest.mark.parametrize("case", CASES[:9], ids=lambda case: case.name)
def test_row_major_pictures(hold, case):
    case_run(hold, case, "bf16", exact_operands, storage=row_major, exact=True, runs=FEW)
