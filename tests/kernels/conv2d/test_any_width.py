"""Depthwise code that serves every width: the bits of code made for one width, at any size."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from saccade.backends.cpu.fusions import ExpandDepthwise, RowSums, SeparableConv2d
from saccade.backends.cpu.target import described_target
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.base import Call
from saccade.kernels.cpu.base import all_generic_configs
from saccade.kernels.cpu.conv2d import depthwise_code
from saccade.kernels.cpu.conv2d.depthwise import CONV2D_DEPTHWISE
from saccade.kernels.cpu.conv2d.direct import CONV2D_DIRECT
from saccade.kernels.cpu.conv2d.expand_depthwise import CONV2D_EXPAND
from saccade.kernels.cpu.conv2d.separable import CONV2D_SEPARABLE
from saccade.layout.select import Selector
from saccade.opdefs import Conv2d
from saccade.testing.kernels import launched_as, nhwc_view, off_by, row_major, run_kernel
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
RELU = parse("relu(add($0, $1))")
WIDTHS = range(1, 41)
CHANNELS, FILTERS = 19, 5
WINDOWS = [(stride, apart) for stride in (1, 2) for apart in (1, 2)]
QUICK = (("avx512", False, 2, (1, 0)), ("avx2", False, 3, (1, 2, 0)))
CHECKED = (("avx512", True, 1, None), ("avx2", True, 2, (1, 0)))
NAMES = ("depthwise", "sums", "expand", "separable")
KERNELS = dict(
    zip(NAMES, (CONV2D_DEPTHWISE, CONV2D_DEPTHWISE, CONV2D_EXPAND, CONV2D_SEPARABLE), strict=True)
)


def op_and_shapes(name, width, stride=1, apart=1, taps=3, height=4):
    """An operator over an image of this width, with asymmetric padding."""
    left, right = 2 * apart, apart
    window = {"stride": (stride, stride), "dilation": (apart, apart)}
    conv = Conv2d(padding=(1, left, apart, right), groups=CHANNELS, epilogue=RELU, **window)
    image, filters = (2, CHANNELS, height, width), (CHANNELS, 1, 3, taps)
    bias = (1, CHANNELS, 1, 1)
    if name == "expand":
        shallow = (2, FILTERS, height, width)
        expand = Conv2d(epilogue=RELU)
        shapes = [shallow, (CHANNELS, FILTERS, 1, 1), filters, bias, bias]
        return ExpandDepthwise(expand, conv, 1), shapes
    if name == "separable":
        op = SeparableConv2d(conv, Conv2d(epilogue=RELU), 1)
        return op, [image, filters, (FILTERS, CHANNELS, 1, 1), bias, (1, FILTERS, 1, 1)]
    return RowSums(conv) if name == "sums" else conv, [image, filters, bias]


def setup(name, width, make=exact_operands, kind=F32, **more):
    op, shapes = op_and_shapes(name, width, **more)
    rng = np.random.default_rng(width)
    held = [kind] + [F32] * (len(shapes) - 1)
    return op, [make(shape, each, rng) for shape, each in zip(shapes, held, strict=True)]


def views_of(op, arrays, result=F32):
    types = op.infer([TensorType(F32, a.shape) for a in arrays])
    x, *rest = arrays
    inputs = [nhwc_view(DType.of(x.dtype), x.shape, x.shape[1] + 3)]
    inputs += [row_major(DType.of(a.dtype), a.shape) for a in rest]
    kinds = [result] + [F32] * (len(types) - 1)
    outputs = [
        nhwc_view(kind, t.shape, t.shape[1] + 2) for kind, t in zip(kinds, types, strict=True)
    ]
    return inputs, outputs


def known(arrays):
    return [False] + [True] * (len(arrays) - 1)


@cache
def any_width(kernel):
    """The kernel with the way whose code serves every width; one, as code is kept by its kernel."""

    def launch(call):
        ways = (way.launches for way in kernel.variants(call))
        return next(launches for launches in ways if launches[0].config.any_width)

    return launched_as(kernel, launch)


def check(hold, name, width, kernel=None, result=F32, runs=QUICK, **more):
    op, arrays = setup(name, width, **more)
    inputs, outputs = views_of(op, arrays, result)
    kernel = kernel or any_width(KERNELS[name])
    return hold(
        kernel, op, arrays, inputs=inputs, outputs=outputs, constant=known(arrays), exact=True,
        runs=runs,
    )  # fmt: skip


@pytest.mark.parametrize(("stride", "apart"), WINDOWS)
@pytest.mark.parametrize("name", ["depthwise", "sums"])
def test_one_code_serves_every_width(hold, name, stride, apart):
    for width in WIDTHS:
        check(hold, name, width, stride=stride, apart=apart, runs=(*QUICK, *CHECKED))


@pytest.mark.parametrize(("stride", "apart"), [WINDOWS[0], WINDOWS[3]])
@pytest.mark.parametrize("name", ["expand", "separable"])
def test_one_code_serves_every_width_in_one_pass_with_another_product(hold, name, stride, apart):
    for width in WIDTHS:
        runs = (*QUICK, *CHECKED) if width % 4 == 1 else QUICK
        check(hold, name, width, stride=stride, apart=apart, runs=runs)


@pytest.mark.parametrize("taps", [1, 2, 4, 7, 15])
def test_windows_of_any_length(hold, taps):
    for width in (13, 14, 17, 31):
        check(hold, "depthwise", width, taps=taps, stride=2, runs=(*QUICK, *CHECKED))


@pytest.mark.parametrize("kinds", [(BF16, BF16), (BF16, F32), (F32, BF16)], ids=str)
@pytest.mark.parametrize("name", ["depthwise", "expand", "separable"])
def test_bfloat16(hold, name, kinds):
    kind, result = kinds
    for width in (*range(1, 12), 16, 17, 29):
        check(hold, name, width, kind=kind, result=result)


def both(name, arrays, op, isa):
    """Results of the way that selection takes first, and of the one for any width."""
    inputs, outputs = views_of(op, arrays)
    kernel = KERNELS[name]
    return [
        run_kernel(
            each, op, arrays, outputs, inputs=inputs, constant=known(arrays), isa=isa, threads=2
        )
        for each in (kernel, any_width(kernel))
    ]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("name", NAMES)
def test_the_bits_are_those_of_code_for_one_width(name, isa):
    for width, (stride, apart) in zip((1, 2, 6, 9, 17, 23, 30, 40), WINDOWS * 2, strict=True):
        op, arrays = setup(name, width, random_operands, stride=stride, apart=apart)
        ours, others = both(name, arrays, op, isa)
        assert [a.tobytes() for a in ours] == [a.tobytes() for a in others]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_a_tap_outside_the_image_is_no_product(isa):
    """Zero times infinity would be NaN."""
    op, arrays = setup("depthwise", 12)
    arrays[0] = np.abs(arrays[0]) + 1
    arrays[1][..., 0] = np.inf
    ours, others = both("depthwise", arrays, op, isa)
    assert np.isfinite(others[0]).any()
    assert ours[0].tobytes() == others[0].tobytes()


def call_of(name, width, threads=2, isa=None, **more):
    op, arrays = setup(name, width, **more)
    inputs, outputs = views_of(op, arrays)
    target = described_target("zen4", isa or "native")
    return Call(op, tuple(inputs), tuple(outputs), tuple(known(arrays)), target, threads)


@pytest.mark.parametrize("name", NAMES)
def test_code_for_one_width_comes_first_and_rounds_alike(name):
    for width in (7, 8, 33, 64):
        first, *others = KERNELS[name].variants(call_of(name, width))
        free = [way for way in others if way.launches[0].config.any_width]
        assert free and not first.launches[0].config.any_width
        assert {way.rounding for way in (first, *others)} == {first.rounding}
        assert first.micros <= min(way.micros for way in others)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("name", NAMES)
def test_estimates_let_selection_take_it_for_code_that_exists(name, isa):
    for width in WIDTHS:
        ways = tuple(KERNELS[name].variants(call_of(name, width, isa=isa)))
        free = min(way.micros for way in ways if way.launches[0].config.any_width)
        assert free <= 1.5 * ways[0].micros


@pytest.mark.parametrize("name", NAMES)
def test_generic_configs_are_of_one_code_for_all_widths(name):
    generic_configs = {KERNELS[name].generic_configs(call_of(name, width)) for width in WIDTHS}
    heights = {KERNELS[name].generic_configs(call_of(name, 20, height=h)) for h in (1, 9, 30)}
    assert all(len(found) == 1 and found[0].any_width for found in generic_configs | heights)
    if name != "separable":  # whose tiles go by the number of pixels
        assert len(generic_configs | heights) == 1


class Backend:
    nominal_threads = 2
    reuse_slowdown = 1.5

    def __init__(self, kernel):
        self.kernel = kernel

    def candidates(self, _op):
        return (self.kernel,)


@pytest.mark.parametrize("name", NAMES)
def test_other_widths_take_the_generic_configs(name):
    kernel = KERNELS[name]
    (generic,) = kernel.generic_configs(call_of(name, 40, height=30))
    there = {(kernel.name, generic)}
    selector = Selector(Backend(kernel), available=lambda *key: key in there)
    for width in (35, 37, 44):
        (launch,) = selector.launches(call_of(name, width, height=30))
        assert launch.config == generic
    (launch,) = Selector(Backend(kernel)).launches(call_of(name, 37, height=30))
    assert not launch.config.any_width


def test_generic_configs_of_a_plan_are_named_once():
    steps = [(CONV2D_DEPTHWISE, call_of("depthwise", w)) for w in (9, 20)]
    steps.append((CONV2D_EXPAND, call_of("expand", 9)))
    steps.append((CONV2D_DIRECT, call_of("depthwise", 9)))
    found = all_generic_configs(steps)
    assert [name for name, _ in found] == ["conv2d.depthwise", "conv2d.expand_depthwise"]
    assert all(config.any_width for _, config in found)


MUTANTS = {"columns": -1, "width": -1, "left": 1, "x_w": -1, "taps": -1}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("kernel", ["depthwise", "separable"])
def test_a_planted_mistake_is_caught(hold, kernel, name):
    mutant = off_by(any_width(KERNELS[kernel]), name, MUTANTS[name])
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, kernel, 21, kernel=mutant, runs=CHECKED[:1])


def test_a_column_too_many_is_caught(hold, monkeypatch):
    """Code that takes the last column of every group to be there reads past the image."""
    group = depthwise_code.RowCode._group

    def careless(self, rows, which, column, finish, inside=None):
        if inside:
            inside = {**inside, max(inside): inside[min(inside)]}
        group(self, rows, which, column, finish, inside)

    monkeypatch.setattr(depthwise_code.RowCode, "_group", careless)
    # Another length of windows than in other tests: code is kept by its config.
    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(hold, "depthwise", 23, taps=2, runs=CHECKED[:1])
