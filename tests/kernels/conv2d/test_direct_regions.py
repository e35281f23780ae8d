"""Regions of output pixels with the same taps: exact, complete, and computed as they say."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, Packed, Packing
from saccade.kernels.cases.conv2d import WINDOWS, ConvShape
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.direct_regions import REGION_WORDS, ConvAxis, spans
from saccade.kernels.cpu.conv2d.pack_regions import pack_regions
from saccade.opdefs import Conv2d
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import assert_exact, exact_operands

RNG = np.random.default_rng(7)
F32 = DType.F32
DILATED = ConvShape(
    "far", (2, 20, 11, 9), (40, 20, 3, 3), Conv2d(padding=(6, 4, 6, 4), dilation=(6, 4))
)
BEYOND = ConvShape("beyond", (1, 8, 5, 5), (20, 8, 3, 3), Conv2d(padding=(7,) * 4, dilation=(7, 7)))


def border(name):
    """The kernel with its best variant of that kind."""

    def launch(call):
        found = (variant.launches for variant in CONV2D_DIRECT.variants(call))
        return next(one for one in found if one[0].config.border == name)

    return launched_as(CONV2D_DIRECT, launch)


AXES = itertools.product((1, 2, 7, 12), (1, 3, 5, 16), (1, 2, 3), (1, 2), (0, 1, 4, -1), (1, 3, 9))


@pytest.mark.parametrize("count", [0, 1, 9])
def test_spans_hold_the_taps_that_fall_on_the_input(count):
    for size, taps, stride, _, before, dilation in AXES:
        axis = ConvAxis(size, count, taps, stride, before, dilation)
        at = 0
        for first, outputs, low, high in spans(axis):
            assert first == at
            at += outputs
            for output in range(first, first + outputs):
                start = output * stride - before
                inside = {t for t in range(taps) if 0 <= start + t * dilation < size}
                assert inside == set(range(low, high)), axis
        assert at == count


def test_the_table_covers_every_pixel_once():
    rows, columns = spans(ConvAxis(11, 11, 3, 1, 6, 6)), spans(ConvAxis(9, 9, 3, 1, 4, 4))
    table = pack_regions(rows, columns, 2, 7)
    assert table.shape == (9, REGION_WORDS)
    seen = np.zeros((11, 9), int)
    tile = 0
    for first, tiles, pixels, top, height, left, width, *_ in table.tolist():
        assert first == tile
        assert tiles == -(-pixels // 7)
        assert pixels == 2 * height * width
        seen[top : top + height, left : left + width] += 1
        tile += tiles
    assert (seen == 1).all()


@pytest.mark.parametrize("name", ["zeros", "regions"])
@pytest.mark.parametrize(
    "case", [*(c for c in WINDOWS if any(c.op.padding)), DILATED, BEYOND], ids=lambda c: c.name
)
def test_both_ways_to_keep_taps_inside(hold, case, name):
    arrays = [exact_operands(case.x, F32, RNG), exact_operands(case.w, F32, RNG)]
    shape = case.op.reference(*arrays)[0].shape
    views = [nhwc_view(F32, case.x), row_major(F32, case.w)]
    hold(
        border(name), case.op, arrays, inputs=views, outputs=[nhwc_view(F32, shape)],
        constant=(False, True), exact=True,
    )  # fmt: skip


def bound(case):
    views = (nhwc_view(F32, case.x), row_major(F32, case.w))
    shape = tuple(int(str(n)) for n in case.op.sum_shape(case.x, case.w))
    out = (nhwc_view(F32, shape),)
    return Call(case.op, views, out, (False, True), ZEN4, threads=2)


def test_far_taps_are_skipped_and_near_ones_are_not():
    far = ConvShape(
        "", (1, 64, 33, 33), (64, 64, 3, 3), Conv2d(padding=(12,) * 4, dilation=(12, 12))
    )
    (launch,) = CONV2D_DIRECT.launch(bound(far))
    assert launch.config.border == "regions"
    small = ConvShape("", (1, 64, 7, 7), (64, 64, 3, 3), Conv2d(padding=(1,) * 4))
    (launch,) = CONV2D_DIRECT.launch(bound(small))
    assert launch.config.border == "zeros"
    inside = ConvShape("", (1, 64, 7, 7), (64, 64, 3, 3), Conv2d(padding=(0,) * 4))
    (launch,) = CONV2D_DIRECT.launch(bound(inside))
    assert launch.config.border == "none"


def test_the_estimate_counts_only_the_taps_that_are_computed():
    times = [
        CONV2D_DIRECT.cost(
            bound(ConvShape("", (1, 64, 33, 33), (64, 64, 3, 3), Conv2d((1, 1), (d,) * 4, (d, d))))
        )
        for d in (1, 12, 24, 36)
    ]
    assert times == sorted(times, reverse=True)
    assert times[3] < times[0] / 5


def test_a_region_with_a_tap_too_few_is_seen():
    kernel = border("regions")
    arrays = [exact_operands(DILATED.x, F32, RNG), exact_operands(DILATED.w, F32, RNG)]
    truth = DILATED.op.reference(*arrays)[0]

    def launch(call):
        (one,) = kernel.launch(call)
        shorter = {name: _shorten(operand) for name, operand in one.operands.items()}
        return (dataclasses.replace(one, operands=shorter),)

    views = [nhwc_view(F32, DILATED.x), row_major(F32, DILATED.w)]
    (result,) = run_kernel(
        launched_as(CONV2D_DIRECT, launch), DILATED.op, arrays, [nhwc_view(F32, truth.shape)],
        inputs=views, constant=(False, True),
    )  # fmt: skip
    with pytest.raises(AssertionError):
        assert_exact(result, truth)


def _shorten(operand):
    if not isinstance(operand, Packed) or operand.packing.function != "pack_regions":
        return operand
    (first, *rows), columns, *rest = operand.packing.parameters
    shorter = (*first[:3], first[3] - 1)
    packing = operand.packing
    return Packed(Packing(packing.function, ((shorter, *rows), columns, *rest), (), packing.nbytes))
