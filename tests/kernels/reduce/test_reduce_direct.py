from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.reduce.direct import REDUCE
from saccade.kernels.cpu.reduce.direct_loads import Reader
from saccade.opdefs.reduce import Reduce
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major
from saccade.testing.targets import ZEN4, runnable_target
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(8)
KINDS = [
    "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp",
]  # fmt: skip


def operand(shape, kind="sum", dtype=DType.F32):
    x = random_operands(shape, dtype, RNG)
    if kind == "log_sum":
        return np.abs(x) + np.float32(0.1)
    return np.float32(1) + x / 8 if kind == "prod" else x


SHAPES = [((5, 37), (1,)), ((5, 37), (0,)), ((3, 70, 4), (0, 2)), ((300,), (0,)), ((2, 1, 7), (1,))]


@pytest.mark.parametrize("kind", KINDS)
def test_float64(hold, kind):
    for shape, axes in SHAPES:
        x = operand(shape, kind).astype(np.float64) * (1 + 2.0**-40)
        hold(REDUCE, Reduce(kind, axes), [x], k=300)
    special = np.array([[1.0, np.inf], [np.nan, 2.0], [0.0, 0.0]])
    if kind not in ("log_sum", "log_sum_exp"):
        hold(REDUCE, Reduce(kind, (1,)), [special], k=2)


def test_epilogues_of_float64(hold):
    x, y = (RNG.normal(size=shape) for shape in ((5, 37), (5, 1)))
    op = Reduce("sum_square", (1,), epilogue=parse("mul(log($0), $1)"))
    hold(REDUCE, op, [x, y], k=37)
    call = Call(
        Reduce("sum", (1,), epilogue=parse("tanh($0)")), (row_major(DType.F64, (5, 37)),),
        (row_major(DType.F64, (5, 1)),), (False,), ZEN4,
    )  # fmt: skip
    assert REDUCE.supports(call) == "tanh of float64"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES[:2], ids=str)
def test_kinds(hold, kind, shape, axes):
    hold(REDUCE, Reduce(kind, axes), [operand(shape, kind)], k=37)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_shapes(hold, shape, axes, keepdims):
    for kind in ("mean", "max"):
        # A mean near zero would have no relative error to speak of.
        hold(REDUCE, Reduce(kind, axes, keepdims), [1 + operand(shape)], k=300)


@pytest.mark.parametrize(
    "axes", [a for n in range(1, 5) for a in combinations(range(4), n)], ids=str
)
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_all_axes_of_all_layouts(hold, kind, axes):
    shape = (2, 21, 5, 6)
    x = exact_operands(shape, DType.F32, RNG)
    for view in (row_major(DType.F32, shape), nhwc_view(DType.F32, shape, 24)):
        hold(REDUCE, Reduce(kind, axes), [x], inputs=[view], exact=True)


@pytest.mark.parametrize("channels", [1, 3, 16, 40, 130, 1283])
def test_global_mean(hold, channels):
    shape = (2, channels, 7, 7)
    view = nhwc_view(DType.F32, shape)
    out = nhwc_view(DType.F32, (2, channels, 1, 1))
    hold(REDUCE, Reduce("mean", (2, 3)), [operand(shape)], inputs=[view], outputs=[out], k=49)


@pytest.mark.parametrize("kind", ["mean", "max", "l2", "log_sum_exp"])
def test_cut_reductions(hold, kind):
    """Few results over many elements: two phases, the same bits for every team."""
    shape = (1, 24, 83, 90)
    x = operand(shape, kind)
    for view in (row_major(DType.F32, shape), nhwc_view(DType.F32, shape, 30)):
        hold(REDUCE, Reduce(kind, (2, 3)), [x], inputs=[view], k=7470)
        hold(REDUCE, Reduce(kind, (0, 1, 2, 3)), [x], inputs=[view], k=200_000)


def test_a_cut_takes_two_phases():
    view = nhwc_view(DType.F32, (1, 16, 112, 112))
    out = nhwc_view(DType.F32, (1, 16, 1, 1))
    op = Reduce("mean", (2, 3))
    for threads in (1, 8):
        call = Call(op, (view,), (out,), (False,), ZEN4, threads)
        launches = REDUCE.launch(call)
        assert len(launches) == 2
        assert launches[0].chunks >= 4
        assert launches == REDUCE.launch(dataclasses.replace(call, threads=1))


WIDE = {"one image": (1, 130, 43, 44), "many": (17, 70, 15, 16), "few pixels": (2, 5000, 5, 5)}


def wide_call(shape, kind="mean", dtype=DType.F32):
    view = nhwc_view(dtype, shape)
    out = nhwc_view(dtype, (*shape[:2], 1, 1))
    return Call(Reduce(kind, (2, 3)), (view,), (out,), (False,), ZEN4)


@pytest.mark.parametrize("kind", ["mean", "max", "l2"])
@pytest.mark.parametrize("case", WIDE)
def test_large_images_are_read_in_order(hold, kind, case):
    shape = WIDE[case]
    launches = REDUCE.launch(wide_call(shape, kind))
    assert launches[0].config.way == "stream"
    assert len(launches) == (2 if case == "one image" else 1)
    view, out = nhwc_view(DType.F32, shape), nhwc_view(DType.F32, (*shape[:2], 1, 1))
    x, pixels = operand(shape, kind), shape[2] * shape[3]
    results = hold(REDUCE, Reduce(kind, (2, 3)), [x], inputs=[view], outputs=[out], k=pixels)
    if kind == "max":
        np.testing.assert_array_equal(results[0], x.max(axis=(2, 3), keepdims=True))


def test_large_images_with_gaps_and_an_epilogue(hold):
    shape, scale = WIDE["one image"], operand((130, 1, 1))
    view, out = nhwc_view(DType.F32, shape, 140), nhwc_view(DType.F32, (*shape[:2], 1, 1))
    op = Reduce("mean", (2, 3), epilogue=parse("relu(mul($0, $1))"))
    hold(
        REDUCE, op, [operand(shape), scale], inputs=[view, row_major(DType.F32, scale.shape)],
        outputs=[out], k=43 * 44,
    )  # fmt: skip


def test_large_images_in_bfloat16(hold, mixed):
    source, result = mixed
    for shape in ((1, 130, 66, 64), (1, 200, 64, 40)):
        view, out = nhwc_view(source, shape), nhwc_view(result, (*shape[:2], 1, 1))
        x = operand(shape, dtype=source)
        pixels = shape[2] * shape[3]
        hold(REDUCE, Reduce("mean", (2, 3)), [x], inputs=[view], outputs=[out], k=pixels)


@pytest.mark.parametrize("shape", [(1, 130, 65, 63), (2, 164, 61, 63), (17, 96, 31, 45)], ids=str)
def test_sums_of_large_images_in_bfloat16_are_exact(hold, shape):
    """Odd numbers of pixels, channels that leave parts of a vector, infinities and NaN."""
    x = exact_operands(shape, DType.BF16, RNG)
    x[0, 3, 7, 9], x[0, 95, 0, 0], x[0, 5], x[0, 8, 2, 1] = np.nan, np.inf, -np.inf, np.inf
    view, out = nhwc_view(DType.BF16, shape), nhwc_view(DType.F32, (*shape[:2], 1, 1))
    op = Reduce("sum", (2, 3))
    found = hold(REDUCE, op, [x], inputs=[view], outputs=[out], k=4)
    truth = x.astype(np.float64).sum(axis=(2, 3), keepdims=True)
    np.testing.assert_array_equal(found[0], truth.astype(np.float32))


def test_sums_in_the_wrong_order_are_caught(hold, monkeypatch):
    if not runnable_target().bf16:
        pytest.skip("this machine has no dot products of bfloat16")
    right = Reader.in_order_of_two
    monkeypatch.setattr(Reader, "in_order_of_two", lambda self, sums: right(self, sums[::-1]))
    shape = (1, 130, 66, 64)
    view, out = nhwc_view(DType.BF16, shape), nhwc_view(DType.F32, (*shape[:2], 1, 1))
    mutant = launched_as(REDUCE, REDUCE.launch)
    with pytest.raises(AssertionError):
        x = operand(shape, dtype=DType.BF16)
        hold(mutant, Reduce("sum", (2, 3)), [x], inputs=[view], outputs=[out], k=4)


def test_nan_in_a_large_image(hold):
    shape = WIDE["one image"]
    x = operand(shape)
    x[0, 3, 7, 9], x[0, 129, 0, 0], x[0, 5] = np.nan, np.inf, -np.inf
    view, out = nhwc_view(DType.F32, shape), nhwc_view(DType.F32, (*shape[:2], 1, 1))
    hold(REDUCE, Reduce("max", (2, 3)), [x], inputs=[view], outputs=[out], k=1)


@pytest.mark.parametrize("name", ["count", "per_part", "gone_strides", "gone_sizes"])
def test_mutants_of_streams_are_caught(hold, name):
    """The count of a mean, pixels of a part, step and size of the reduced axis."""

    def launch(call):
        first, second = REDUCE.launch(call)
        if name == "count":
            return first, mistaken(second, name)
        return mistaken(first, name), second

    shape = WIDE["one image"]
    view, out = nhwc_view(DType.F32, shape), nhwc_view(DType.F32, (*shape[:2], 1, 1))
    with pytest.raises((AssertionError, IndexError)):
        hold(
            launched_as(REDUCE, launch), Reduce("mean", (2, 3)), [operand(shape)], inputs=[view],
            outputs=[out], k=43 * 44,
        )  # fmt: skip


def test_epilogue(hold):
    shape = (2, 37, 5, 5)
    view, out = nhwc_view(DType.F32, shape), nhwc_view(DType.F32, (2, 37, 1, 1))
    scale, other = operand((37, 1, 1)), operand((2, 1, 1, 1))
    op = Reduce("mean", (2, 3), epilogue=parse("relu(add(mul($0, $1), $2))"))
    dense = [row_major(DType.F32, scale.shape), row_major(DType.F32, other.shape)]
    hold(REDUCE, op, [operand(shape), scale, other], inputs=[view, *dense], outputs=[out], k=25)
    op = Reduce("sum", (1,), keepdims=False, epilogue=parse("mul($0, $1)"))
    hold(REDUCE, op, [operand((6, 50)), operand((6,))], k=50)


def test_half_precision(hold):
    x = operand((3, 70), dtype=DType.F16)
    for axes in ((0,), (1,)):
        hold(REDUCE, Reduce("mean", axes), [x], k=1)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)], ids=str)
def test_empty(hold, shape):
    for axes in ((0,), (1,)):
        for kind in ("sum", "mean", "max", "prod", "log_sum_exp"):
            hold(REDUCE, Reduce(kind, axes), [operand(shape)])


def test_nan_and_infinities(hold):
    x = operand((4, 50))
    x[0, 3], x[1, 49], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    for kind in ("max", "min", "log_sum_exp"):
        for axes in ((0,), (1,)):
            hold(REDUCE, Reduce(kind, axes), [x], k=50)


def test_bfloat16(hold, mixed):
    source, result = mixed
    for shape in ((3, 70, 5), (1, 24, 83, 90)):  # the second in two phases
        x = operand(shape, dtype=source)
        for axes in ((1,), (0, len(shape) - 1)):
            hold(
                REDUCE, Reduce("mean", axes), [x], stored=result, k=shape[0] * shape[-1] + shape[1]
            )


def test_refusals():
    op, target = Reduce("sum", (0,)), ZEN4
    view = row_major(DType.I64, (4, 4))
    assert "int64" in REDUCE.supports(Call(op, (view,), (view,), (False,), target))
    x = View(DType.F32, (4, 3), (3, 1))
    out = View(DType.F32, (1, 3), (1, 0))
    assert "repeats" in REDUCE.supports(Call(op, (x,), (out,), (False,), target))


@pytest.mark.parametrize(
    ("name", "at"), [("count", 0), ("gone_strides", 0), ("gone_sizes", 0), ("gone_sizes", 1)]
)
def test_mutants_are_caught(hold, name, at):
    """The count of a mean, steps and sizes of the reduced axes."""

    def launch(call):
        (phase,) = REDUCE.launch(call)
        return (mistaken(phase, name, at=at),)

    mutant = launched_as(REDUCE, launch)
    with pytest.raises((AssertionError, IndexError)):
        hold(mutant, Reduce("mean", (0, 2)), [operand((5, 6, 17))], k=5)
