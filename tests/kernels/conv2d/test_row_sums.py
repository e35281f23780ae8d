"""Sums of rows, taken by the depthwise convolutions that make them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.backends.cpu.fusions import ExpandDepthwise, RowSums
from saccade.errors import OutOfBoundsError
from saccade.ir import DType, TensorType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, Variant
from saccade.kernels.cpu.conv2d.depthwise import CONV2D_DEPTHWISE
from saccade.kernels.cpu.conv2d.expand_depthwise import CONV2D_EXPAND
from saccade.opdefs import Conv2d
from saccade.testing.kernels import mistaken, nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

F32, BF16 = DType.F32, DType.BF16
RELU = parse("relu(add($0, $1))")
QUICK = (("avx512", False, 2, (1, 0)), ("avx2", False, 3, (1, 2, 0)))
BIAS = [(1, 33, 1, 1)]
DEPTHWISE = Conv2d((1, 1), (1, 1, 1, 1), groups=33, epilogue=RELU)
STRIDED = Conv2d((2, 2), (2, 2, 2, 2), groups=33, epilogue=RELU)
CASES = {
    "depthwise": (CONV2D_DEPTHWISE, DEPTHWISE, [(2, 33, 9, 13), (33, 1, 3, 3), *BIAS]),
    "strided": (CONV2D_DEPTHWISE, STRIDED, [(1, 33, 19, 11), (33, 1, 5, 5), *BIAS]),
    "one column": (CONV2D_DEPTHWISE, DEPTHWISE, [(1, 33, 4, 1), (33, 1, 3, 3), *BIAS]),
    "no image": (CONV2D_DEPTHWISE, DEPTHWISE, [(0, 33, 4, 4), (33, 1, 3, 3), *BIAS]),
    "expanded": (
        CONV2D_EXPAND, ExpandDepthwise(Conv2d(epilogue=RELU), STRIDED, 1),
        [(2, 5, 12, 10), (33, 5, 1, 1), (33, 1, 5, 5), *BIAS, *BIAS],
    ),
}  # fmt: skip


def setup(name, make=exact_operands):
    kernel, conv, shapes = CASES[name]
    rng = np.random.default_rng(1)
    return kernel, RowSums(conv), [make(s, F32, rng) for s in shapes]


def views_of(op, arrays, kinds):
    y, sums = op.infer([TensorType(F32, a.shape) for a in arrays])
    x = nhwc_view(F32, arrays[0].shape, arrays[0].shape[1] + 3)
    stored = nhwc_view(kinds[0], y.shape, y.shape[1] + 2), nhwc_view(kinds[1], sums.shape, 37)
    return [x, *(row_major(F32, a.shape) for a in arrays[1:])], list(stored)


def check(hold, kernel, op, arrays, kinds=(F32, F32), **more):
    inputs, outputs = views_of(op, arrays, kinds)
    constant = [False] + [True] * (len(arrays) - 1)
    more.setdefault("exact", True)
    return hold(kernel, op, arrays, inputs=inputs, outputs=outputs, constant=constant, **more)


@pytest.mark.parametrize("name", CASES)
def test_sums_beside_the_result(hold, name):
    more = {} if name in ("depthwise", "expanded") else {"runs": QUICK}
    check(hold, *setup(name), **more)


def test_sums_are_of_what_was_not_rounded_yet(hold):
    kernel, op, arrays = setup("depthwise", random_operands)
    (_, of_rounded), (_, of_exact) = (
        check(hold, kernel, op, arrays, (kind, F32), exact=False, k=9 * 13, runs=QUICK)
        for kind in (BF16, F32)
    )
    assert of_rounded.tobytes() == of_exact.tobytes()


def test_sums_in_bfloat16(hold):
    kernel, op, arrays = setup("depthwise", random_operands)
    check(hold, kernel, op, arrays, (F32, BF16), exact=False, k=9 * 13, runs=QUICK)


@pytest.mark.parametrize("name", ["depthwise", "expanded"])
def test_bands_do_not_change_the_sums(hold, name):
    kernel, op, arrays = setup(name, random_operands)

    def of_band(rows):
        def variants(call):
            (launch,) = kernel.launch(call)
            integers = {**launch.integers, "band": rows}
            return (Variant(1.0, lambda: (dataclasses.replace(launch, integers=integers),)),)

        return dataclasses.replace(kernel, variants=variants)

    found = [
        check(hold, of_band(rows), op, arrays, exact=False, k=1000, runs=QUICK) for rows in (1, 3)
    ]
    assert found[0][1].tobytes() == found[1][1].tobytes()


def made(op, arrays, outputs=None):
    inputs, stored = views_of(op, arrays, (F32, F32))
    constant = (False,) + (True,) * (len(arrays) - 1)
    return Call(op, tuple(inputs), tuple(outputs or stored), constant, ZEN4, 2)


def test_each_kernel_takes_sums_of_its_own_convolution():
    for name, other in (("depthwise", CONV2D_EXPAND), ("expanded", CONV2D_DEPTHWISE)):
        kernel, op, arrays = setup(name)
        assert kernel.supports(made(op, arrays)) is None
        assert "another convolution" in other.supports(made(op, arrays))


def test_sums_whose_channels_are_apart_are_refused():
    for name in ("depthwise", "expanded"):
        kernel, op, arrays = setup(name)
        y, sums = views_of(op, arrays, (F32, F32))[1]
        assert "sums" in kernel.supports(made(op, arrays, (y, row_major(F32, sums.shape))))


@pytest.mark.parametrize("word", ["sums_n", "sums_h"])
@pytest.mark.parametrize("name", ["depthwise", "expanded"])
def test_a_planted_mistake_is_caught(hold, name, word):
    kernel, op, arrays = setup(name)

    def variants(call):
        (launch,) = kernel.launch(call)
        return (Variant(1.0, lambda: (mistaken(launch, word),)),)

    with pytest.raises((AssertionError, OutOfBoundsError)):
        check(
            hold, dataclasses.replace(kernel, variants=variants), op, arrays,
            runs=(("avx512", True, 1, None),),
        )  # fmt: skip
