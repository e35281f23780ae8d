"""Depthwise convolution, bit by bit against the reference on integers."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import apply, arg, parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d.depthwise import CONV2D_DEPTHWISE
from saccade.kernels.cpu.conv2d.pack_depthwise import pack_depthwise
from saccade.kernels.cpu.conv2d.row_groups import Group, cut_row
from saccade.opdefs import Conv2d, DepthToSpaceStore
from saccade.testing.kernels import nhwc_view, off_by, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
BIAS_RELU = parse("relu(add($0, $1))")
QUICK = (("avx512", False, 1, None), ("avx2", False, 3, (1, 2, 0)))
CASES = [
    # n, c, h, w, taps, stride, padding, dilation
    (1, 17, 9, 29, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (2, 48, 7, 7, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    (1, 96, 11, 16, (3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
    (2, 3, 10, 9, (3, 3), (2, 2), (1, 0, 2, 3), (1, 1)),
    (1, 1, 8, 30, (7, 7), (1, 1), (3, 3, 3, 3), (1, 1)),
    (1, 20, 15, 14, (3, 3), (1, 1), (4, 4, 4, 4), (4, 4)),
    (1, 16, 12, 10, (3, 5), (1, 2), (5, 1, 0, 6), (2, 1)),
    (1, 5, 1, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 6, 4, 40, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (0, 16, 6, 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 16, 5, 45, (3, 3), (1, 1), (1, 13, 1, 20), (1, 6)),
    (1, 33, 70, 130, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
]
CHECKED = CASES[:4]


def setup(case, seed=0, **more):
    n, c, h, w, taps, stride, padding, dilation = case
    rng = np.random.default_rng(seed)
    shapes = ((n, c, h, w), (c, 1, *taps), (1, c, 1, 1))
    op = Conv2d(stride, padding, dilation, c, epilogue=more.pop("epilogue", BIAS_RELU), **more)
    return op, [exact_operands(s, F32, rng) for s in shapes]


def check(hold, op, arrays, kernel=CONV2D_DEPTHWISE, inputs=None, **more):
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
    more = {} if case in CHECKED else {"runs": QUICK}
    check(hold, *setup(case), **more)


def test_random_operands_and_a_residual(hold):
    op, arrays = setup(CASES[0], epilogue=parse("hardswish(add(add($0, $1), $2))"))
    rng = np.random.default_rng(5)
    arrays = [random_operands(a.shape, F32, rng) for a in (*arrays, np.empty((1, 17, 9, 29)))]
    views = [nhwc_view(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:3])]
    views.append(nhwc_view(F32, arrays[3].shape, 20))
    check(hold, op, arrays, inputs=views, exact=False, k=9, runs=QUICK)


F32_AND_BF16 = [(BF16, BF16, BF16), (BF16, F32, F32), (F32, BF16, BF16)]


@pytest.mark.parametrize("kinds", F32_AND_BF16, ids=str)
@pytest.mark.parametrize("case", [CASES[0], CASES[2]], ids=str)
def test_any_mix_of_float32_and_bfloat16(hold, case, kinds):
    """Image, weights and result; a residual is stored like the result."""
    op, arrays = setup(case, epilogue=parse("relu(add(add($0, $1), $2))"))
    (result,) = op.infer([TensorType(F32, a.shape) for a in (*arrays, np.empty((1, 1, 1, 1)))])
    rng = np.random.default_rng(3)
    shapes = [*(a.shape for a in arrays), result.shape]
    held = [*kinds[:2], F32, kinds[2]]
    arrays = [exact_operands(s, kind, rng) for s, kind in zip(shapes, held, strict=True)]
    views = [nhwc_view(held[0], shapes[0], shapes[0][1] + 3)]
    views += [row_major(kind, s) for s, kind in zip(shapes[1:3], held[1:3], strict=True)]
    views.append(nhwc_view(held[3], shapes[3]))
    out = [nhwc_view(kinds[2], result.shape, result.shape[1] + 2)]
    constant = [False, True, True, False]
    runs = QUICK if case is CASES[2] else (*QUICK, ("avx512", True, 2, (1, 0)))
    hold(
        CONV2D_DEPTHWISE, op, arrays, inputs=views, outputs=out, constant=constant, exact=True,
        runs=runs,
    )  # fmt: skip


def test_nothing_is_read_between_the_channels_of_pixels(hold):
    """The gaps of a padded pitch hold NaN: a tail that read them would show."""
    op, arrays = setup((1, 19, 5, 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)))
    inputs = [nhwc_view(F32, arrays[0].shape, 32), *(row_major(F32, a.shape) for a in arrays[1:])]
    check(hold, op, arrays, inputs=inputs, runs=QUICK)


def call(op, *shapes, constant=True, x=None, y=None):
    inputs = [x or nhwc_view(F32, shapes[0]), *(row_major(F32, s) for s in shapes[1:])]
    (kind,) = op.infer([TensorType(F32, v.shape) for v in inputs])
    return Call(op, tuple(inputs), (y or nhwc_view(F32, kind.shape),), (False, constant), ZEN4, 2)


X, W = (1, 8, 9, 9), (8, 1, 3, 3)
REFUSED = [
    ("one filter", lambda: call(Conv2d(groups=4), X, (8, 2, 3, 3))),
    ("one filter", lambda: call(Conv2d(groups=8), X, (16, 1, 3, 3))),
    ("prologue", lambda: call(Conv2d(groups=8, prologue=apply("relu", arg(0))), X, W)),
    ("known", lambda: call(Conv2d(groups=8), X, W, constant=False)),
    ("channels-last", lambda: call(Conv2d(groups=8), X, W, x=row_major(F32, X))),
    ("channels-last", lambda: call(Conv2d(groups=8), X, W, y=row_major(F32, (1, 8, 7, 7)))),
    ("channels-last", lambda: call(Conv2d(groups=8, store=DepthToSpaceStore(2)), X, W)),
    ("leave the image", lambda: call(Conv2d(groups=8, padding=(0, 99, 0, 0)), X, W)),
    ("int64", lambda: call(Conv2d(groups=8), X, W, x=nhwc_view(DType.I64, X))),
    ("15 taps", lambda: call(Conv2d(groups=8, padding=(0, 9, 0, 9)), X, (8, 1, 3, 17))),
]


@pytest.mark.parametrize(("reason", "make"), REFUSED)
def test_refuses(reason, make):
    assert reason in CONV2D_DEPTHWISE.supports(make())


def test_takes_what_it_does_not_refuse():
    assert CONV2D_DEPTHWISE.supports(call(Conv2d(groups=8), X, W)) is None


MUTANTS = {
    "rows": -1, "repeats": 1, "height": 1, "x_h": 1, "x_w": -1, "top": -1, "left": 1,
    "taps": -1, "dilation": 1, "vectors": -1,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name):
    mutant = off_by(CONV2D_DEPTHWISE, name, MUTANTS[name])
    with pytest.raises((AssertionError, OutOfBoundsError)):
        # Checked: a stride that is off would otherwise read anything.
        check(hold, *setup(CASES[0]), kernel=mutant, runs=(("avx512", True, 1, None),))


ROWS = [
    # columns of the image, taps, stride, padding left and right, dilation
    *((w, t, 1, 1, 1, 1) for w in (1, 2, 7, 8, 9, 14, 15, 112) for t in (1, 3)),
    *((w, t, 2, 2, 2, 1) for w in (1, 2, 7, 8, 9, 14, 15, 112) for t in (3, 5)),
    (33, 3, 1, 12, 12, 12), (33, 5, 1, 4, 4, 2), (65, 3, 2, 0, 1, 1), (40, 1, 3, 0, 0, 1),
    (3, 3, 1, 9, 9, 1), (113, 7, 1, 3, 3, 1),
]  # fmt: skip


@pytest.mark.parametrize("case", ROWS, ids=str)
@pytest.mark.parametrize("largest", [4, 8])
def test_groups_cover_a_row_and_leave_out_what_is_outside(case, largest):
    width, taps, stride, left, right, dilation = case
    columns = (width + left + right - (taps - 1) * dilation - 1) // stride + 1
    cut = cut_row(
        columns, width, taps=taps, stride=stride, left=left, dilation=dilation, largest=largest
    )
    groups = [*cut.first, *[Group(cut.body)] * cut.repeats, *cut.last]
    assert sum(g.pixels for g in groups) == columns and max(g.pixels for g in groups) <= largest
    assert cut.count == len(groups) <= -(-columns // largest) + 1
    reads, at = [], 0
    for group in groups:
        for column, pairs in group.products(taps, stride, dilation).items():
            reads += [(at + pixel, tap, at * stride - left + column) for pixel, tap in pairs]
        at += group.pixels
    wanted = [(q, t, q * stride - left + t * dilation) for q in range(columns) for t in range(taps)]
    assert sorted(reads) == [r for r in wanted if 0 <= r[2] < width]


def test_packed_weights():
    w = np.arange(3 * 2 * 2, dtype=np.float32).reshape(3, 1, 2, 2)
    packed = pack_depthwise(w, 16)
    taps = packed.reshape(2, 2, 16)
    assert (taps[1, 0, :3] == w[:, 0, 1, 0]).all()
    assert not taps[..., 3:].any()


def test_the_estimate_counts_rows_columns_and_channels():
    small = CONV2D_DEPTHWISE.cost(call(Conv2d(groups=64), (1, 64, 32, 32), (64, 1, 3, 3)))
    for shape in ((2, 64, 32, 32), (1, 128, 32, 32), (1, 64, 64, 32), (1, 64, 32, 64)):
        large = CONV2D_DEPTHWISE.cost(call(Conv2d(groups=shape[1]), shape, (shape[1], 1, 3, 3)))
        assert large > 1.4 * small
