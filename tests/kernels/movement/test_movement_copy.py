from __future__ import annotations

import dataclasses
from itertools import permutations

import numpy as np
import pytest

from saccade.ir import DType, Factor, IndexMap
from saccade.kernels.base import Call, In, Out, View
from saccade.kernels.cpu.movement.copy import COPY, map_strides
from saccade.kernels.cpu.movement.copy_code import copy_launch, copy_way
from saccade.opdefs.bits import BitCast
from saccade.opdefs.movement import Move
from saccade.testing.kernels import nhwc_view, off_by, row_major, run_kernel
from saccade.testing.targets import ZEN4

RNG = np.random.default_rng(5)
DTYPES = [DType.U8, DType.BF16, DType.F32, DType.I64]


def identity(shape):
    return Move(
        IndexMap(
            tuple((n,) for n in shape),
            tuple(Factor(n, i) for i, n in enumerate(shape)),
            (1,) * len(shape),
        )
    )


def transposed(shape, order):
    factors = tuple(Factor(shape[axis], axis) for axis in order)
    return Move(IndexMap(tuple((n,) for n in shape), factors, (1,) * len(shape)))


def values(shape, dtype=DType.F32):
    """Distinct elements, as far as the type has them."""
    count = int(np.prod(shape))
    return RNG.permutation(count).reshape(shape).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
@pytest.mark.parametrize(
    "shape",
    [
        (2, 16, 4, 8), (1, 17, 5, 7), (1, 3, 9, 11), (2, 33, 1, 37), (1, 70, 8, 16), (1, 5, 3, 50),
        (1, 21, 7, 9), (1, 48, 3, 11),
    ],
    ids=str,
)  # fmt: skip
def test_between_layouts(hold, shape, dtype):
    x = values(shape, dtype)
    dense, last = row_major(dtype, shape), nhwc_view(dtype, shape)
    pitched = nhwc_view(dtype, shape, shape[1] + 3)
    for source, to in [
        (dense, last),
        (last, dense),
        (dense, pitched),
        (pitched, dense),
        (last, pitched),
    ]:
        hold(COPY, identity(shape), [x], inputs=[source], outputs=[to], exact=True)


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
@pytest.mark.parametrize(
    "shape", [(5, 18, 35), (2, 3, 40), (40, 2, 3), (4, 64, 4), (1, 1, 9)], ids=str
)
def test_transposes(hold, shape, order):
    hold(COPY, transposed(shape, order), [values(shape)], exact=True)


def test_higher_ranks(hold):
    shape = (3, 2, 5, 4, 7)
    for order in [(4, 2, 0, 3, 1), (1, 3, 0, 2, 4), (4, 3, 2, 1, 0)]:
        hold(COPY, transposed(shape, order), [values(shape)], exact=True)


@pytest.mark.parametrize("block", [2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2, 3, 20])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(hold, block, channels, mode):
    h, w, c = 6, 21, channels * block * block
    inner = (block, block, channels) if mode == "DCR" else (channels, block, block)
    rows, columns, depth = (1, 2, 3) if mode == "DCR" else (2, 3, 1)
    factors = tuple(Factor(n, i) for n, i in [
        (1, 0), (channels, depth), (h, 4), (block, rows), (w, 5), (block, columns)
    ])  # fmt: skip
    op = Move(IndexMap(((1,), inner, (h,), (w,)), factors, (1, 1, 2, 2)))
    x = values((1, c, h, w))
    out = (1, channels, h * block, w * block)
    for source in (row_major(DType.F32, x.shape), nhwc_view(DType.F32, x.shape)):
        for to in (row_major(DType.F32, out), nhwc_view(DType.F32, out)):
            hold(COPY, op, [x], inputs=[source], outputs=[to], exact=True)


def test_few_planes_are_written_side_by_side():
    """Two rows of blocks of channels: the source is read once, in its order."""
    to, source = (4000, 2000, 40, 1), (4000, 40, 80, 1)
    launch = copy_launch((30, 2, 50, 40), to, source, 4, (Out(0), In(0)))
    assert launch.config.way == "rows"
    assert launch.integers["sizes"] == (30, 50, 2, 40)
    launch = copy_launch(
        (30, 9, 50, 40), (18000, 2000, 40, 1), (18000, 40, 360, 1), 4, (Out(0), In(0))
    )
    assert launch.integers["sizes"] == (30, 9, 50, 40)


@pytest.mark.parametrize("groups", [2, 3])
def test_channel_shuffle(hold, groups):
    c, h, w = 58 * groups, 5, 7
    factors = (Factor(1, 0), Factor(c // groups, 2), Factor(groups, 1), Factor(h, 3), Factor(w, 4))
    op = Move(IndexMap(((1,), (groups, c // groups), (h,), (w,)), factors, (1, 2, 1, 1)))
    x = values((1, c, h, w))
    view = nhwc_view(DType.F32, x.shape)
    hold(COPY, op, [x], inputs=[view], outputs=[view], exact=True)
    hold(COPY, op, [x], exact=True)


def test_slices_flips_and_repeats(hold):
    factors = (Factor(3, 0, 1), Factor(4, None), Factor(5, 1, 11, -2), Factor(7, 2, 2, 3))
    op = Move(IndexMap(((5,), (12,), (40,)), factors, (1, 2, 1)))
    hold(COPY, op, [values((5, 12, 40))], exact=True)
    flip = Move(IndexMap(((70,),), (Factor(70, 0, 69, -1),), (1,)))
    hold(COPY, flip, [values((70,))], exact=True)
    fill = Move(IndexMap(((3,), (1,)), (Factor(3, 0), Factor(45, None)), (1, 1)))
    for dtype in DTYPES:
        hold(COPY, fill, [values((3, 1), dtype)], exact=True)


@pytest.mark.parametrize("shape", [(), (1, 1), (0, 4), (3, 0)], ids=str)
def test_tiny(hold, shape):
    hold(COPY, identity(shape), [values(shape)], exact=True)


def test_large_enough_for_many_chunks(hold):
    shape = (1, 100, 60, 61)
    x = values(shape)
    hold(COPY, identity(shape), [x], outputs=[nhwc_view(DType.F32, shape)], exact=True)
    hold(COPY, identity(shape), [x], inputs=[nhwc_view(DType.F32, shape)], exact=True)
    hold(COPY, identity((300_001,)), [values((300_001,))], exact=True)


def test_nan_payloads_survive(hold):
    x = np.array([0x7F800001, 0xFFC12345, 0x80000000] * 9, np.uint32).view(np.float32)
    view = row_major(DType.F32, x.shape)
    (y,) = run_kernel(COPY, identity(x.shape), [x], [view])
    np.testing.assert_array_equal(y.view(np.uint32), x.view(np.uint32))


def test_ways():
    dense, last = (16 * 49, 49, 7, 1), (16 * 49, 1, 7 * 16, 16)
    sizes = (1, 16, 7, 7)
    assert copy_way(sizes, last, dense, 4) == copy_way(sizes, dense, last, 4) == "transpose"
    assert copy_way(sizes, dense, dense, 4) == "rows"
    assert copy_way((3, 100), (1, 3), (100, 1), 4) == "interleave"
    assert copy_way((3, 100), (100, 1), (1, 3), 4) == "deinterleave"
    assert copy_way((100,), (1,), (0,), 4) == "fill"
    assert copy_way((100,), (1,), (3,), 4) == "scalar"


def test_refusal():
    view = row_major(DType.F32, (2, 3))
    repeated = View(DType.F32, (2, 3), (0, 1))
    call = Call(identity((2, 3)), (view,), (repeated,), (False,), ZEN4)
    assert "repeats" in COPY.supports(call)


def test_strides_of_a_map():
    op = transposed((4, 6), (1, 0))
    view = row_major(DType.F32, (4, 6))
    assert map_strides(op.map, view, row_major(DType.F32, (6, 4))) == ((6, 4), (4, 1), (1, 6), 0)


@pytest.mark.parametrize(
    ("name", "at"), [("sizes", 2), ("across", 0), ("block", 0), ("steps", 0), ("steps", 1)]
)
def test_mutants_of_transposes_are_caught(hold, name, at):
    shape = (2, 101, 70)  # no whole number of rectangles of any width, either way
    with pytest.raises((AssertionError, IndexError)):
        mutant = off_by(COPY, name, at=at)
        hold(mutant, transposed(shape, (0, 2, 1)), [values(shape)], exact=True)


@pytest.mark.parametrize(
    ("name", "at"), [("strides", 0), ("strides", 2), ("starts", 0), ("starts", 1)]
)
def test_mutants_are_caught(hold, name, at):
    """Any size, stride or start that is off by one is noticed."""
    mutant = off_by(COPY, name, at=at)
    shape = (5, 7, 20)
    to = row_major(DType.F32, (5, 9, 20))
    with pytest.raises((AssertionError, IndexError)):
        hold(
            mutant, identity(shape), [values(shape)],
            outputs=[View(DType.F32, shape, to.strides)], exact=True,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.value)
@pytest.mark.parametrize("channels", [64, 96, 80])
def test_reorders_past_the_caches(hold, past_caches, channels, dtype):
    shape = (2, channels, 8, 8)
    x = values(shape, dtype)
    dense, last, wide = (
        row_major(dtype, shape), nhwc_view(dtype, shape), nhwc_view(dtype, shape, channels + 64)
    )  # fmt: skip
    for source, to in [(dense, last), (dense, wide), (last, dense), (last, wide)]:
        hold(
            COPY, identity(shape), [x], inputs=[source], outputs=[to], exact=True, runs=past_caches
        )


@pytest.mark.parametrize(
    ("shape", "pitch", "streamed"),
    [
        ((1, 64, 8, 9), 64, True),
        ((1, 64, 8, 9), 80, True),
        ((1, 64, 8, 9), 72, False),
        ((1, 72, 8, 9), 80, False),  # its last rectangle begins inside a line
    ],
    ids=str,
)
def test_only_whole_lines_go_past_the_caches(past_caches, shape, pitch, streamed):
    target = past_caches[0][0]
    x, y = row_major(DType.F32, shape), nhwc_view(DType.F32, shape, pitch)
    for l3, expected in ((0, streamed), (y.nbytes, False)):
        machine = dataclasses.replace(target, l3=l3)
        (phase,) = COPY.launch(Call(identity(shape), (x,), (y,), (False,), machine, 2))
        assert phase.config.streamed == (expected and target.fills_lines)


@pytest.mark.parametrize(
    ("source", "to"),
    [(DType.F32, DType.I32), (DType.I64, DType.F64), (DType.BF16, DType.I16),
     (DType.I4, DType.U4), (DType.F8E5M2, DType.U8)],
)  # fmt: skip
def test_bits_in_another_order(hold_bits, source, to):
    """Where operand and result are stored alike they are one, and no copy."""
    shape = (2, 19, 4, 6)
    count = int(np.prod(shape)) * source.itemsize
    raw = RNG.integers(0, 1 << min(8, source.bits), count, dtype=np.uint8)
    x = raw.view(source.numpy).reshape(shape)
    wanted = raw.view(to.numpy).reshape(shape)
    hold_bits(COPY, BitCast(to), [x], wanted, inputs=[nhwc_view(source, shape, 23)])
    hold_bits(COPY, BitCast(to), [x], wanted)
