"""Convolution with narrow groups, bit by bit against the reference on integers."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.backends.cpu.fusions import RowSums
from saccade.backends.cpu.target import described_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import apply, arg, parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.conv2d import grouped_code
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.grouped import CONV2D_GROUPED
from saccade.kernels.cpu.conv2d.grouped_forms import form_of, most_pixels
from saccade.kernels.cpu.conv2d.pack_grouped import pack_grouped
from saccade.opdefs import Conv2d, DepthToSpaceStore, InterleaveStore
from saccade.testing.kernels import launched_as, nhwc_view, off_by, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
AVX2, NEON = described_target("zen4", "avx2"), described_target("neoverse-n1")
QUICK = (("avx512", False, 1, None), ("avx2", False, 3, (1, 2, 0)))
CHECKED = (("avx512", True, 7, (6, 2, 4, 0, 1, 5, 3)), ("avx2", True, 2, (1, 0)))
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


def any_width():
    """The kernel by its code for rows of any length."""

    def launch(call):
        _, free = CONV2D_GROUPED.variants(call)
        (found,) = free.launches
        assert found.config.any_width
        return (found,)

    return launched_as(CONV2D_GROUPED, launch)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_window_and_size(hold, case):
    check(hold, *setup(case), runs=(*QUICK, *(CHECKED if case in CASES[:8] else ())))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_length_of_rows(hold, case):
    """The same bits from either code."""
    op, (x, w, bias) = setup(case)
    rng = np.random.default_rng(6)
    arrays = [random_operands(a.shape, F32, rng) for a in (x, w, bias)]
    one, more = w[0].size, {"exact": False, "runs": QUICK}
    (free,) = check(hold, op, arrays, kernel=any_width(), k=one, **more)
    (cut,) = check(hold, op, arrays, k=one, **more)
    assert free.tobytes() == cut.tobytes()


def test_rows_of_any_length_stay_within_the_image(hold):
    for case in (CASES[1], CASES[5]):
        check(hold, *setup(case), kernel=any_width(), runs=CHECKED[:1])


@pytest.mark.parametrize("case", [CASES[0], CASES[6]], ids=str)
def test_random_operands_and_a_residual(hold, case):
    op, arrays = setup(case, epilogue=parse("hardswish(add(add($0, $1), $2))"))
    (kind,) = op.infer([TensorType(F32, a.shape) for a in (*arrays, np.empty((1, 1, 1, 1)))])
    rng = np.random.default_rng(5)
    arrays = [random_operands(a.shape, F32, rng) for a in (*arrays, np.empty(kind.shape))]
    views = [nhwc_view(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:3])]
    views.append(nhwc_view(F32, kind.shape, kind.shape[1] + 5))
    check(hold, op, arrays, inputs=views, exact=False, k=arrays[1][0].size, runs=QUICK)


F32_AND_BF16 = [(BF16, BF16, BF16), (BF16, F32, F32), (F32, BF16, BF16)]


@pytest.mark.parametrize("kinds", F32_AND_BF16, ids=str)
@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[5], CASES[10], CASES[4]], ids=str)
def test_any_mix_of_float32_and_bfloat16(hold, case, kinds):
    """Image, weights and result."""
    op, arrays = setup(case)
    (result,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    rng, held = np.random.default_rng(3), [*kinds[:2], F32]
    arrays = [exact_operands(a.shape, kind, rng) for a, kind in zip(arrays, held, strict=True)]
    views = [nhwc_view(held[0], arrays[0].shape, arrays[0].shape[1] + 3)]
    views += [row_major(k, a.shape) for k, a in zip(held[1:], arrays[1:], strict=True)]
    hold(
        CONV2D_GROUPED, op, arrays, inputs=views, outputs=[nhwc_view(kinds[2], result.shape)],
        constant=[False, True, True], exact=True, runs=QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[5]], ids=str)
def test_sums_of_rows(hold, case):
    op, arrays = setup(case)
    (kind,) = op.infer([TensorType(F32, a.shape) for a in arrays])
    views = [nhwc_view(F32, arrays[0].shape), *(row_major(F32, a.shape) for a in arrays[1:])]
    sums = (*kind.shape[:3], 1)
    hold(
        CONV2D_GROUPED, RowSums(op), arrays, inputs=views, exact=True, runs=QUICK,
        outputs=[nhwc_view(F32, kind.shape), nhwc_view(F32, sums)], constant=[False, True, True],
    )  # fmt: skip


def test_interleaved_parts(hold):
    op, arrays = setup(CASES[0], epilogue=parse("relu($0)"), store=InterleaveStore(2, 1))
    (x, w, _), rng = arrays, np.random.default_rng(4)
    part = exact_operands((1, 36, 9, 17), F32, rng)
    views = [nhwc_view(F32, x.shape), row_major(F32, w.shape), nhwc_view(F32, part.shape)]
    hold(
        CONV2D_GROUPED, op, [x, w, part], inputs=views, constant=[False, True, False], exact=True,
        outputs=[nhwc_view(F32, (1, 72, 9, 17))], runs=QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("case", [CASES[1], CASES[5], CASES[10]], ids=str)
def test_nothing_is_read_between_the_channels_of_pixels(hold, case):
    """The gaps of a padded pitch hold NaN: a tail that read them would show."""
    op, arrays = setup(case)
    pitch = arrays[0].shape[1] + 32
    inputs = [nhwc_view(F32, arrays[0].shape, pitch)]
    inputs += [row_major(F32, a.shape) for a in arrays[1:]]
    check(hold, op, arrays, inputs=inputs, runs=QUICK)


def test_nothing_of_a_group_reaches_another_one(hold):
    """What is not finite stays in its group and under its window."""
    op, (x, w, bias) = setup(CASES[0], epilogue=parse("add($0, $1)"))
    x[0, 9, 4, 7] = np.inf
    w[...] = np.abs(w) + 1
    with np.errstate(invalid="ignore"):
        (y,) = check(hold, op, [x, w, bias], runs=QUICK)
    reached = np.argwhere(~np.isfinite(y))
    assert set(reached[:, 1]) == {8, 9, 10, 11} and len(reached) == 4 * 9


def call(op, *shapes, constant=True, x=None, y=None, target=ZEN4):
    inputs = [x or nhwc_view(F32, shapes[0]), *(row_major(F32, s) for s in shapes[1:])]
    (kind,) = op.infer([TensorType(F32, v.shape) for v in inputs])
    return Call(op, tuple(inputs), (y or nhwc_view(F32, kind.shape),), (False, constant), target, 2)


X, W = (1, 32, 9, 9), (32, 4, 3, 3)
EIGHT = Conv2d(groups=8)
REFUSED = [
    ("one group", lambda: call(Conv2d(), X, (32, 32, 3, 3))),
    ("one channel", lambda: call(Conv2d(groups=32), X, (32, 1, 3, 3))),
    ("prologue", lambda: call(Conv2d(groups=8, prologue=apply("relu", arg(0))), X, W)),
    ("known", lambda: call(EIGHT, X, W, constant=False)),
    ("channels-last", lambda: call(EIGHT, X, W, x=row_major(F32, X))),
    ("channels-last", lambda: call(EIGHT, X, W, y=row_major(F32, (1, 32, 7, 7)))),
    ("channels-last", lambda: call(Conv2d(groups=8, store=DepthToSpaceStore(2)), X, W)),
    ("leave the image", lambda: call(Conv2d(groups=8, padding=(0, 99, 0, 0)), X, W)),
    ("int64", lambda: call(EIGHT, X, W, x=nhwc_view(DType.I64, X))),
    ("vectors of weights", lambda: call(Conv2d(groups=8, padding=(0, 9, 0, 9)), X, (32, 4, 1, 17))),
    ("6 channels", lambda: call(Conv2d(groups=2), (1, 12, 9, 9), (12, 6, 3, 3))),
    ("3 channels", lambda: call(Conv2d(groups=4), (1, 12, 9, 9), (16, 3, 3, 3))),
]


@pytest.mark.parametrize(("reason", "make"), REFUSED)
def test_refuses(reason, make):
    assert reason in CONV2D_GROUPED.supports(make())


def test_takes_what_it_does_not_refuse():
    assert CONV2D_GROUPED.supports(call(EIGHT, X, W)) is None


MUTANTS = {
    "rows": -1, "repeats": 1, "height": 1, "x_h": 1, "x_w": -1, "top": -1, "left": 1,
    "taps": -1, "dilation": 1, "vectors": -1, "steps": -1, "channels": -1, "filters": 1,
    "groups": -1,
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_is_caught(hold, name):
    mutant = off_by(CONV2D_GROUPED, name, MUTANTS[name])
    with pytest.raises((AssertionError, OutOfBoundsError)):
        # Checked: a stride that is off would otherwise read anything.
        check(hold, *setup(CASES[5]), kernel=mutant, runs=CHECKED[:1])


def test_lanes_that_stay_in_place_are_caught(hold, monkeypatch):
    """Sums that are added without moving their lanes."""

    def careless(self, sums):
        total = sums[0].get()
        for one in sums[1:]:
            total = total + one.get()
        return total

    monkeypatch.setattr(grouped_code.GroupedCode, "_folded", careless)
    # Another window than in other tests: code is kept by its config.
    case = (1, 9, 4, 4, 5, 9, (3, 2), (1, 1), (1, 1, 1, 1), (1, 1))
    with pytest.raises(AssertionError):
        check(hold, *setup(case), runs=QUICK[:1])


FORMS = [
    # channels and filters of a group, target, block, pieces, elements of a load
    (4, 4, ZEN4, (4, 0, 16)), (8, 8, ZEN4, (8, 0, 16)), (1, 4, ZEN4, (1, 0, 4)),
    (16, 16, ZEN4, (4, 1, 4)), (64, 64, ZEN4, (4, 1, 4)), (24, 24, ZEN4, (8, 2, 8)),
    (4, 4, AVX2, (4, 0, 8)), (8, 8, AVX2, (4, 1, 4)), (12, 12, AVX2, (4, 2, 4)),
    (4, 4, NEON, (4, 1, 4)), (2, 2, NEON, (2, 0, 4)), (6, 6, NEON, (2, 2, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("channels", "filters", "target", "wanted"), FORMS)
def test_forms(channels, filters, target, wanted):
    form = form_of(channels, filters, target)
    assert form[:3] == wanted and form.several is (channels > form.block)
    pixels = most_pixels(form, target)
    assert pixels * (form.block + 1) < target.registers
    assert sorted(set(form.places(target.lanes))) == list(range(min(form.loaded, target.lanes)))


@pytest.mark.parametrize(
    ("channels", "filters", "target"), [(3, 3, ZEN4), (12, 12, ZEN4), (3, 4, ZEN4), (5, 5, NEON)]
)
def test_no_form(channels, filters, target):
    assert form_of(channels, filters, target) is None


@pytest.mark.parametrize(("groups", "channels", "block"), [(9, 4, 4), (2, 24, 8), (3, 16, 4)])
def test_packed_weights(groups, channels, block):
    """Every product stands once, in the sum that ends in its filter's lane; the rest is zero."""
    rng, filters = np.random.default_rng(1), groups * channels
    w = rng.integers(1, 99, (filters, channels, 2, 3)).astype(np.float32)
    packed = pack_grouped(w, groups, 16, block)
    taps = packed.reshape(-(-filters // 16), 2, channels // block, 3, block, 16)
    for k, c in ((0, 0), (5, 3), (filters - 1, channels - 1), (filters - 3, 2)):
        index = (k ^ c) % block
        assert (taps[k // 16, :, c // block, :, index, (k ^ index) % 16] == w[k, c]).all()
    assert np.count_nonzero(packed) == w.size


LAYERS = [(32, 4, 56, 1), (32, 8, 28, 1), (13, 8, 28, 1), (64, 2, 56, 1), (7, 24, 28, 2)]


@pytest.mark.parametrize(("groups", "channels", "size", "stride"), LAYERS)
def test_narrow_groups_are_estimated_faster_than_by_the_direct_kernel(
    groups, channels, size, stride
):
    op = Conv2d((stride, stride), (1, 1, 1, 1), groups=groups)
    width = groups * channels
    layer = call(op, (1, width, size, size), (width, channels, 3, 3))
    assert CONV2D_GROUPED.cost(layer) < CONV2D_DIRECT.cost(layer)


def test_the_estimate_counts_rows_columns_channels_and_groups():
    def cost(images, groups, channels, rows, columns):
        width = groups * channels
        return CONV2D_GROUPED.cost(
            call(Conv2d(groups=groups), (images, width, rows, columns), (width, channels, 3, 3))
        )

    small = cost(1, 16, 4, 34, 34)
    for sizes in ((2, 16, 4, 34, 34), (1, 32, 4, 34, 34), (1, 16, 4, 66, 34), (1, 16, 4, 34, 66)):
        assert 1.7 * small < cost(*sizes) < 2.3 * small
    assert 2.8 * small < cost(1, 16, 8, 34, 34) < 4.5 * small  # twice the vectors and products


def test_columns_outside_are_no_products():
    """A layer over 7x7 with padding has 361 of 441 products."""

    def cost(pad):
        op = Conv2d(padding=(pad,) * 4, groups=32)
        return CONV2D_GROUPED.cost(call(op, (1, 1024, 9 - 2 * pad, 9 - 2 * pad), (1024, 32, 3, 3)))

    assert 0.8 * cost(0) < cost(1) < 0.87 * cost(0)


HALVES = [
    (13, 8, ZEN4, True), (25, 4, ZEN4, True), (3, 24, ZEN4, True), (12, 8, ZEN4, False),
    (27, 4, ZEN4, False), (13, 8, described_target("zen5"), False), (13, 8, AVX2, False),
]  # fmt: skip


@pytest.mark.parametrize(("groups", "channels", "target", "half"), HALVES)
def test_half_vectors_are_taken_where_they_take_half_the_time(groups, channels, target, half):
    width = groups * channels
    op, shapes = Conv2d(groups=groups), ((1, width, 9, 9), (width, channels, 3, 3))
    assert CONV2D_GROUPED.launch(call(op, *shapes, target=target))[0].config.half is half


def test_planned_for_other_sizes():
    (config,) = CONV2D_GROUPED.generic_configs(call(EIGHT, X, W))
    assert config.any_width and config in {
        variant.launches[0].config for variant in CONV2D_GROUPED.variants(call(EIGHT, X, W))
    }
