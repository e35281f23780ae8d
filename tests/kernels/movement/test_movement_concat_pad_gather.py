from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.movement.concat import CONCAT
from saccade.kernels.cpu.movement.gather import GATHER
from saccade.kernels.cpu.movement.pad import PAD
from saccade.opdefs.movement import Concat, Gather, GatherNd, Pad
from saccade.testing.kernels import launched_as, nhwc_view, row_major, run_kernel
from saccade.testing.targets import ZEN4

RNG = np.random.default_rng(9)
DTYPES = [DType.U8, DType.F16, DType.BF16, DType.F32, DType.I64]


def values(shape, dtype=DType.F32):
    return RNG.permutation(int(np.prod(shape))).reshape(shape).astype(dtype.numpy)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
def test_concat(hold, axis, dtype):
    shapes = [[2, 3, 4, 5] for _ in range(3)]
    for shape, n in zip(shapes, (16, 1, 7), strict=True):
        shape[axis] = n
    arrays = [values(tuple(s), dtype) for s in shapes]
    op = Concat(axis)
    out = op.reference(*arrays)[0].shape
    hold(CONCAT, op, arrays, exact=True)
    last = [nhwc_view(dtype, a.shape) for a in arrays]
    hold(CONCAT, op, arrays, inputs=last, outputs=[nhwc_view(dtype, out, out[1] + 2)], exact=True)
    hold(CONCAT, op, arrays, inputs=last, exact=True)


def test_concat_of_one_and_of_nothing(hold):
    hold(CONCAT, Concat(0), [values((3, 4))], exact=True)
    hold(CONCAT, Concat(1), [values((3, 4)), values((3, 0)), values((3, 2))], exact=True)


PADS = [((0, 0), (0, 0), (1, 2), (3, 1)), ((1, 0), (2, 2), (0, 1), (0, 0)), ((0, 0),) * 4]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", PADS, ids=str)
def test_pad(hold, mode, pads):
    x = values((2, 17, 3, 5))
    op = Pad(pads, mode, -2.5)
    out = op.reference(x)[0].shape
    hold(PAD, op, [x], exact=True)
    last = nhwc_view(DType.F32, x.shape)
    hold(PAD, op, [x], inputs=[last], outputs=[nhwc_view(DType.F32, out, out[1] + 3)], exact=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
def test_pad_types(hold, dtype):
    hold(PAD, Pad(((1, 1), (0, 40)), "constant", 3.0), [values((5, 9), dtype)], exact=True)
    hold(PAD, Pad(((1, 1), (4, 8)), "reflect"), [values((5, 9), dtype)], exact=True)


def test_pad_of_nothing(hold):
    hold(PAD, Pad(((1, 2), (1, 1)), "constant", 1.0), [values((0, 3))], exact=True)
    hold(PAD, Pad(((0, 0), (1, 1)), "edge"), [values((0, 3))], exact=True)


def test_changes_of_the_element_type_are_refused():
    wide, narrow = (row_major(d, (4, 3)) for d in (DType.F32, DType.BF16))
    indices = row_major(DType.I64, (4,))
    for kernel, op, inputs in (
        (CONCAT, Concat(0), (narrow, wide)),
        (PAD, Pad(((0, 0), (0, 0))), (wide,)),
        (GATHER, Gather(0), (wide, indices)),
    ):
        call = Call(op, inputs, (narrow,), (False,) * len(inputs), ZEN4)
        assert "element type" in kernel.supports(call)


def test_pad_refusal():
    view, out = row_major(DType.F32, (3,)), row_major(DType.F32, (9,))
    call = Call(Pad(((3, 3),), "reflect"), (view,), (out,), (False,), ZEN4)
    assert "more elements" in PAD.supports(call)


@pytest.mark.parametrize("index", [DType.I64, DType.I32], ids=lambda d: d.value)
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((9, 37), 0, (5,)), ((9, 37), 1, (3, 4)), ((3, 8, 5), 1, (6,)), ((7,), 0, ()),
     ((7,), 0, (40,)), ((4, 6, 20), 0, ()), ((3, 0), 0, (2,)), ((3, 4), 0, (0,)),
     ((300, 64), 0, (1000,))],
    ids=str,
)  # fmt: skip
def test_gather(hold, shape, axis, count, index):
    indices = RNG.integers(-shape[axis], shape[axis], count).astype(index.numpy)
    hold(GATHER, Gather(axis), [values(shape), indices], exact=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
def test_gather_of_channels(hold, dtype):
    x = values((2, 9, 3, 5), dtype)
    view = nhwc_view(dtype, x.shape, 11)
    picks = np.array([8, 0, -1, 3], np.int64)
    out = nhwc_view(dtype, (2, 4, 3, 5), 6)
    hold(
        GATHER, Gather(1), [x, picks], inputs=[view, row_major(DType.I64, (4,))], outputs=[out],
        exact=True,
    )  # fmt: skip


def test_gather_stays_inside_whatever_the_indices():
    x = values((5, 20))
    picks = np.array([2**40, -(2**40), 5, -6], np.int64)
    out = [row_major(DType.F32, (4, 20))]
    (y,) = run_kernel(GATHER, Gather(0), [x, picks], out, checked=True)
    np.testing.assert_array_equal(y, x[[4, 0, 4, 0]])


@pytest.mark.parametrize("index", [DType.I64, DType.I32], ids=lambda d: d.value)
@pytest.mark.parametrize(
    ("shape", "batch", "where"),
    [((9, 37), 0, (5, 1)), ((9, 37), 0, (5, 2)), ((3, 8, 40), 0, (4, 6, 2)), ((3, 8, 5), 1, (3, 1)),
     ((3, 8, 5), 1, (3, 7, 2)), ((2, 3, 8, 5), 2, (2, 3, 4, 1)), ((7,), 0, (1,)),
     ((3, 4), 0, (0, 2)), ((2, 3, 4, 5), 0, (70, 4)), ((3, 0), 0, (2, 1))],
    ids=str,
)  # fmt: skip
def test_gather_nd(hold, shape, batch, where, index):
    sizes = np.array(shape[batch : batch + where[-1]])
    indices = RNG.integers(-sizes, sizes, where).astype(index.numpy)
    hold(GATHER, GatherNd(batch), [values(shape), indices], exact=True)


def test_gather_nd_of_channels(hold):
    x = values((2, 9, 3, 5))
    view = nhwc_view(DType.F32, x.shape, 11)
    picks = np.array([[1, 8], [0, -1], [-2, 3]], np.int64)
    stored = View(DType.I64, (3, 2), (1, 4))
    hold(GATHER, GatherNd(), [x, picks], inputs=[view, stored], exact=True)


def test_gather_nd_stays_inside_whatever_the_indices():
    x = values((5, 20))
    picks = np.array([[2**40, -(2**40)], [5, -21], [-6, 20]], np.int64)
    (y,) = run_kernel(GATHER, GatherNd(), [x, picks], [row_major(DType.F32, (3,))], checked=True)
    np.testing.assert_array_equal(y, x[[4, 4, 0], [0, 0, 19]])


def test_gather_refusals():
    data, indices = row_major(DType.F32, (0, 3)), row_major(DType.I64, (2,))
    out = row_major(DType.F32, (2, 3))
    call = Call(Gather(0), (data, indices), (out,), (False, False), ZEN4)
    assert "empty" in GATHER.supports(call)
    small = row_major(DType.I8, (2,))
    assert "int8" in GATHER.supports(dataclasses.replace(call, inputs=(data, small)))
    repeated = View(DType.F32, (2, 3), (0, 1))
    full = dataclasses.replace(
        call, inputs=(row_major(DType.F32, (4, 3)), indices), outputs=(repeated,)
    )
    assert "repeats" in GATHER.supports(full)


@pytest.mark.parametrize("drop", [0, 1, 2])
def test_a_dropped_phase_is_noticed(hold, drop):
    def launch(call):
        phases = list(PAD.launch(call))
        del phases[drop]
        return tuple(phases)

    mutant = launched_as(PAD, launch)
    with pytest.raises(AssertionError):
        hold(mutant, Pad(((1, 1), (0, 2)), "edge"), [values((5, 9))], exact=True)


@pytest.mark.parametrize("parts", [(64, 32), (40, 56), (64, 64)], ids=str)
def test_concat_past_the_caches(hold, past_caches, parts):
    arrays = [values((1, n, 5, 3)) for n in parts]
    views = [nhwc_view(DType.F32, a.shape) for a in arrays]
    out = nhwc_view(DType.F32, (1, sum(parts), 5, 3))
    hold(
        CONCAT, Concat(1), arrays, inputs=views, outputs=[out], exact=True, runs=past_caches
    )  # fmt: skip
