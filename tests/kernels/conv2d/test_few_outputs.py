"""Convolutions with few filters, bit by bit against the reference on integers."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import apply, arg, parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.few_outputs import CONV2D_FEW_OUTPUTS
from saccade.kernels.cpu.conv2d.pack_depthwise import pack_few_outputs
from saccade.opdefs import Conv2d, DepthToSpaceStore
from saccade.testing.kernels import nhwc_view, off_by, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
BIAS_RELU = parse("relu(add($0, $1))")
QUICK = (("avx512", False, 1, None), ("avx2", False, 3, (1, 2, 0)))
SAME = (1, 1, 1, 1)
CASES = [
    # n, c, h, w, k, taps, stride, padding, dilation
    (2, 16, 6, 19, 3, (3, 3), (1, 1), SAME, (1, 1)),
    (1, 17, 9, 7, 1, (3, 3), (1, 1), (0, 1, 2, 3), (1, 1)),
    (1, 48, 5, 9, 8, (3, 3), (1, 1), SAME, (1, 1)),
    (1, 96, 3, 11, 4, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (1, 8, 11, 12, 2, (5, 5), (2, 2), (2, 1, 0, 3), (1, 1)),
    (1, 9, 8, 21, 5, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    (1, 33, 1, 1, 7, (3, 3), (1, 1), SAME, (1, 1)),
    (1, 12, 4, 6, 6, (2, 3), (3, 1), (1, 0, 0, 2), (1, 1)),
    (0, 16, 6, 6, 3, (3, 3), (1, 1), SAME, (1, 1)),
]
CHECKED = CASES[:2]
WITHOUT = "avx512-plain"  # without dot products of bfloat16
PAIRS = (("avx512", True, 3, (2, 0, 1)), (WITHOUT, True, 1, None), ("avx2", False, 1, None))


def setup(case, seed=0, epilogue=BIAS_RELU, make=exact_operands, kinds=(F32, F32)):
    n, c, h, w, k, taps, stride, padding, dilation = case
    rng = np.random.default_rng(seed)
    shapes = ((n, c, h, w), (k, c, *taps), (1, k, 1, 1))
    op = Conv2d(stride, padding, dilation, epilogue=epilogue)
    return op, [make(s, kind, rng) for s, kind in zip(shapes, (*kinds, F32), strict=True)]


def check(hold, op, arrays, *, kernel=CONV2D_FEW_OUTPUTS, last=False, inputs=None, y=F32, **more):
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    x, *rest = arrays
    views = inputs or [
        nhwc_view(DType.of(x.dtype), x.shape, x.shape[1] + 3),
        *(row_major(DType.of(a.dtype), a.shape) for a in rest),
    ]
    out = [nhwc_view(y, kind.shape, kind.shape[1] + 2) if last else row_major(y, kind.shape)]
    constant = [False, True, *[True] * (len(arrays) - 2)]
    more.setdefault("exact", True)
    return hold(kernel, op, arrays, inputs=views, outputs=out, constant=constant, **more)


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_window_and_size(hold, case, last):
    more = {} if case in CHECKED else {"runs": QUICK}
    check(hold, *setup(case), last=last, **more)


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
def test_operands_of_every_kind(hold, last):
    op, arrays = setup(CASES[0], epilogue=parse("mul(add(add($0, $1), $2), add($3, $4))"))
    rng = np.random.default_rng(7)
    shapes = ((2, 3, 6, 19), (2, 3, 1, 1), (1, 1, 1, 1))
    arrays += [exact_operands(s, F32, rng) for s in shapes]
    views = [nhwc_view(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:])]
    if last:
        views[3] = nhwc_view(F32, shapes[0], 5)
    check(hold, op, arrays, last=last, inputs=views, runs=QUICK)


def test_random_operands(hold):
    op, arrays = setup(CASES[1], epilogue=parse("sigmoid(add($0, $1))"))
    rng = np.random.default_rng(5)
    arrays = [random_operands(a.shape, F32, rng) for a in arrays]
    check(hold, op, arrays, exact=False, k=9 * 17, runs=QUICK)


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(hold, case, last):
    """Pairs of channels, NaN between the pixels of x; without the instructions, float32 sums."""
    op, arrays = setup(case, kinds=(BF16, BF16))
    check(hold, op, arrays, last=last, y=BF16, runs=PAIRS)


@pytest.mark.parametrize("kinds", [(BF16, F32, F32), (F32, F32, BF16), (F32, BF16, F32)], ids=str)
def test_mixes(hold, kinds):
    for case in CHECKED:
        op, arrays = setup(case, kinds=kinds[:2])
        check(hold, op, arrays, y=kinds[2], runs=PAIRS[:2])


def test_random_bfloat16(hold):
    op, arrays = setup(CASES[0], make=random_operands, kinds=(BF16, BF16))
    check(hold, op, arrays, y=BF16, exact=False, k=9 * 17, runs=PAIRS)


def call(op, *shapes, constant=True, x=None):
    inputs = [x or nhwc_view(F32, shapes[0]), *(row_major(F32, s) for s in shapes[1:])]
    (kind,) = op.infer([TensorType(F32, v.shape) for v in inputs])
    return Call(op, tuple(inputs), (row_major(F32, kind.shape),), (False, constant), ZEN4, 2)


X, W = (1, 16, 9, 9), (3, 16, 3, 3)
REFUSED = [
    ("filters", lambda: call(Conv2d(), X, (9, 16, 3, 3))),
    ("filters", lambda: call(Conv2d(), (1, 7, 9, 9), (3, 7, 3, 3))),
    ("groups", lambda: call(Conv2d(groups=2), X, (4, 8, 3, 3))),
    ("prologue", lambda: call(Conv2d(prologue=apply("relu", arg(0))), X, W)),
    ("store map", lambda: call(Conv2d(store=DepthToSpaceStore(2)), X, (4, 16, 3, 3))),
    ("known", lambda: call(Conv2d(), X, W, constant=False)),
    ("channels-last", lambda: call(Conv2d(), X, W, x=row_major(F32, X))),
    ("9 taps", lambda: call(Conv2d(padding=(0, 5, 0, 5)), X, (3, 16, 3, 11))),
]


@pytest.mark.parametrize(("reason", "make"), REFUSED)
def test_refuses(reason, make):
    assert reason in CONV2D_FEW_OUTPUTS.supports(make())


def test_takes_what_it_does_not_refuse():
    assert CONV2D_FEW_OUTPUTS.supports(call(Conv2d(), X, W)) is None


MUTANTS = {
    "rows": -1, "columns": -1, "channels": -1, "filters": -1, "height": 1, "width": -1,
    "x_h": 1, "x_w": -1, "top": -1, "left": 1, "taps": -1, "dilation": 1, "zeros": -16,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name):
    mutant = off_by(CONV2D_FEW_OUTPUTS, name, MUTANTS[name])
    with pytest.raises((AssertionError, OutOfBoundsError)):
        # Checked: a stride that is off would otherwise read anything.
        check(hold, *setup(CASES[1]), kernel=mutant, runs=(("avx512", True, 1, None),))


def test_packed_weights():
    w = np.arange(3 * 5 * 2 * 3, dtype=np.float32).reshape(3, 5, 2, 3)
    packed = pack_few_outputs(w, 2, 4)
    assert not packed[-4:].any()
    blocks = packed[:-4].reshape(2, 2, 2, 3, 2, 4)  # group, r, vector, s, filter, lane
    assert (blocks[1, 1, 0, 2, 0] == w[2, :4, 1, 2]).all()
    assert (blocks[0, 0, 1, 1, 1] == [w[1, 4, 0, 1], 0, 0, 0]).all()
    assert not blocks[1, :, :, :, 1].any()
