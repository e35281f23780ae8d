"""Moves on GPUs: walks over any storage, in every variant, and what they refuse."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from saccade.ir import DType, Factor, IndexMap
from saccade.kernels.base import Call, Out, View
from saccade.kernels.cuda import kernel_named
from saccade.kernels.cuda.movement.loop_axes import collapsed, division, power_dividing
from saccade.kernels.cuda.movement.walk_plan import walks
from saccade.opdefs import Concat, Gather, GatherNd, Move, Pad, ScatterRows
from saccade.testing.kernels import anyhow, nhwc_view, row_major
from saccade.testing.triton import H200, interpret

COPY, CONCAT, PAD, GATHER, EXCHANGE = (
    kernel_named(f"movement.{name}") for name in ("copy", "concat", "pad", "gather", "exchange")
)


SCATTER = kernel_named("movement.scatter")


def call_of(op, inputs, out):
    return Call(op, tuple(inputs), (out,), (False,) * len(inputs), H200)


def hold(kernel, op, arrays, inputs, out):
    """Every variant gives what the reference gives."""
    call = call_of(op, inputs, out)
    (truth,) = op.reference(*arrays)
    for variant in kernel.variants(call):
        result = interpret(kernel, call, arrays, variant.launches)[0]
        np.testing.assert_array_equal(result, truth)
    return variant.launches


@pytest.fixture(params=range(6))
def chance(request):
    return random.Random(request.param)


def some(chance, shape, dtype=DType.F32):
    rng = np.random.default_rng(chance.randrange(1000))
    return rng.integers(0, 100, shape).astype(dtype.numpy)


def a_shape(chance, least=1):
    return [chance.choice([1, 2, 3, 8, 5, 16]) for _ in range(chance.randint(least, 4))]


def test_copies(chance):
    """Transposed, sliced, flipped, repeated; axes split and merged."""
    sizes = [chance.choice([1, 2, 3, 4, 8, 16]) for _ in range(chance.randint(1, 4))]
    factors = []
    for source, n in enumerate(sizes):
        start = chance.randrange(n)
        factors.append(
            chance.choice(
                (Factor(n, source), Factor(n, source, n - 1, -1), Factor(n - start, source, start))
            )
        )
    factors += [Factor(3, None)] * chance.randrange(2)
    chance.shuffle(factors)
    groups = ((sizes[0], *sizes[1:2]), *((n,) for n in sizes[2:]))
    ends = (2, *(1,) * (len(factors) - 2)) if len(factors) > 1 else (1,)
    op = Move(IndexMap(groups, tuple(factors), ends))
    shape, result = op.map.in_shape, op.map.out_shape
    dtype = chance.choice([DType.F32, DType.F16, DType.U8, DType.I64])
    views = [anyhow(chance, dtype, shape)], anyhow(chance, dtype, result)
    hold(COPY, op, [some(chance, shape, dtype)], *views)


def test_concats(chance):
    shape = a_shape(chance)
    axis = chance.randrange(len(shape))
    parts = [chance.choice([0, 1, 2, 5, 8]) for _ in range(chance.randint(1, 10))]
    shapes = [[part if a == axis else n for a, n in enumerate(shape)] for part in parts]
    total = [sum(s[axis] for s in shapes) if a == axis else n for a, n in enumerate(shape)]
    views = [anyhow(chance, DType.F16, s) for s in shapes], anyhow(chance, DType.F16, total)
    arrays = [some(chance, s, DType.F16) for s in shapes]
    launches = hold(CONCAT, Concat(axis), arrays, *views)
    assert len(launches) == -(-sum(0 not in s for s in shapes) // 8)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads(chance, mode):
    shape = a_shape(chance)
    most = {"reflect": -1, "wrap": 0}
    pads = [(0, 0)] * len(shape)
    for axis, n in enumerate(shape):
        if chance.random() < 0.6:
            room = n + most[mode] if mode in most else 5
            pads[axis] = (chance.randint(0, room), chance.randint(0, room))
    result = [n + a + b for n, (a, b) in zip(shape, pads, strict=True)]
    op = Pad(tuple(pads), mode, 7.0)
    views = [anyhow(chance, DType.F32, shape)], anyhow(chance, DType.F32, result)
    hold(PAD, op, [some(chance, shape)], *views)


def test_pads_around_nothing():
    x = np.zeros((3, 0), np.float16)
    pads = ((1, 0), (2, 3))
    views = [row_major(DType.F16, (3, 0))], row_major(DType.F16, (4, 5))
    hold(PAD, Pad(pads, "constant", -2.0), [x], *views)


@pytest.mark.parametrize("index", [DType.I32, DType.I64])
def test_gathers(chance, index):
    shape = a_shape(chance)
    axis = chance.randrange(len(shape))
    where = [chance.choice([1, 3, 4]) for _ in range(chance.randint(0, 2))]
    rng = np.random.default_rng(5)
    indices = np.asarray(rng.integers(-shape[axis], shape[axis], where), index.numpy)
    result = [*shape[:axis], *where, *shape[axis + 1 :]]
    views = [anyhow(chance, DType.F16, shape), anyhow(chance, index, where)]
    arrays = [some(chance, shape, DType.F16), indices]
    hold(GATHER, Gather(axis), arrays, views, anyhow(chance, DType.F16, result))


def test_gathers_by_tuples(chance):
    shape = a_shape(chance)
    batch = chance.randrange(len(shape))
    depth = chance.randint(1, len(shape) - batch)
    where = [*shape[:batch], *[chance.choice([1, 4]) for _ in range(chance.randint(0, 2))]]
    rng, picked = np.random.default_rng(5), shape[batch : batch + depth]
    indices = np.stack([rng.integers(-n, n, where) for n in picked], -1)
    result = [*where, *shape[batch + depth :]]
    views = [anyhow(chance, DType.F32, shape), anyhow(chance, DType.I64, indices.shape)]
    arrays = [some(chance, shape), indices]
    hold(GATHER, GatherNd(batch), arrays, views, anyhow(chance, DType.F32, result))


def test_indices_out_of_range_are_clamped():
    data, indices = (
        np.arange(12.0, dtype=np.float32).reshape(4, 3),
        np.array([4, -5, 2**40, -(2**62)]),
    )
    call = call_of(
        Gather(0), [row_major(DType.F32, (4, 3)), row_major(DType.I64, (4,))],
        row_major(DType.F32, (4, 3)),
    )  # fmt: skip
    result = interpret(GATHER, call, (data, indices))[0]
    np.testing.assert_array_equal(result, data[[3, 0, 3, 0]])


def test_reasons():
    f32 = row_major(DType.F32, (2, 3))
    same = Move(IndexMap(((2,), (3,)), (Factor(2, 0), Factor(3, 1)), (1, 1)))
    assert COPY.supports(call_of(same, [f32], row_major(DType.F16, (2, 3)))) == (
        "a change of element type"
    )
    repeated = View(DType.F32, (2, 3), (0, 1))
    assert COPY.supports(call_of(same, [f32], repeated)) == "the result repeats elements"
    assert PAD.supports(call_of(Pad(((0, 0), (0, 4)), "wrap"), [f32], f32)) == (
        "wrap of more elements than there are"
    )
    indices = row_major(DType.I64, (1,))
    none = row_major(DType.F32, (0, 3))
    assert GATHER.supports(call_of(Gather(0), [none, indices], row_major(DType.F32, (1, 3)))) == (
        "slices of an empty axis"
    )
    small = row_major(DType.U8, (1,))
    assert GATHER.supports(call_of(Gather(0), [f32, small], f32)) == "indices of type uint8"


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 64, 197, 641, 65535, 65537, 2**30, 2**31 - 1])
def test_divisions_by_multiplication(divisor):
    factor, shift = division(divisor)
    assert -(2**31) <= factor < 2**31
    ends = [m * divisor + d for m in (0, 1, 2, (2**31 - 1) // divisor) for d in (-1, 0, 1)]
    rng = np.random.default_rng(divisor)
    for n in [*ends, 2**31 - 1, *rng.integers(0, 2**31, 200)]:
        if 0 <= n < 2**31:
            assert (2 * int(n) * (factor % 2**32) >> 32) >> shift == n // divisor


def test_axes():
    strides = ((48, 1, 24, 4), (48, 12, 6, 1))
    axes, which = collapsed((2, 4, 2, 6), strides)
    assert axes.sizes == (2, 12, 4) and which == (0, 3, 1)
    assert collapsed((2, 4, 2, 6), strides[:1])[0].sizes == (96,)
    assert collapsed((), ((), ()))[0].sizes == (1,)
    assert power_dividing((24, 8, 0, -40), 16) == 8


def way(shape, source, result):
    steps = [view.strides for view in (result, source)]
    return next(iter(walks(collapsed(shape, steps)[0], (2, 2))))


def test_layouts_meet_in_rectangles_and_the_rest_goes_in_whole_vectors():
    shape = (8, 64, 14, 14)
    rows, last = row_major(DType.F16, shape), nhwc_view(DType.F16, shape, 64)
    assert way(shape, rows, last).code.kinds == ("s1", "1s")
    assert way(shape, last, rows).code.kinds == ("s1", "1s")
    wide = nhwc_view(DType.F16, shape, 256)
    for source in (last, wide):
        code = way(shape, source, last).code
        assert code.kinds == ("1", "1") and code.block[1] == 8 and set(code.steps) == {8}


@pytest.mark.parametrize("pitch", [64, 128])
def test_other_sizes_of_a_copy_have_code(pitch):
    """Whatever the batch and the height, down to one."""
    found = set()
    for n, h, w in ((1, 14, 14), (8, 14, 14), (3, 7, 9), (1, 1, 16)):
        shape = (n, 64, h, w)
        same = IndexMap(
            tuple((size,) for size in shape), tuple(map(Factor, shape, range(4))), (1,) * 4
        )
        views = [row_major(DType.F16, shape)], nhwc_view(DType.F16, shape, pitch)
        call = call_of(Move(same), *views)
        (config,) = COPY.generic_configs(call)
        assert config in {variant.launches[0].config for variant in COPY.variants(call)}
        found.add(config)
    assert len(found) == 1


def shuffle(channels, h, w):
    """Channels (channel, row, column) to blocks of two by two pixels."""
    sizes = ((1, 0), (channels, 1), (h, 4), (2, 2), (w, 5), (2, 3))
    given = ((1,), (channels, 2, 2), (h,), (w,))
    return Move(IndexMap(given, tuple(Factor(n, at) for n, at in sizes), (1, 1, 2, 2)))


@pytest.mark.parametrize(("channels", "w"), [(64, 8), (32, 48), (128, 5)])
def test_neighbours_that_go_far_apart_go_in_runs(channels, w):
    op = shuffle(channels, 3, w)
    x = np.arange(12 * channels * w, dtype=np.float32).reshape(1, 4 * channels, 3, w)
    inputs, out = [nhwc_view(DType.F32, x.shape)], nhwc_view(DType.F32, (1, channels, 6, 2 * w))
    assert EXCHANGE.supports(call_of(op, inputs, out)) is None
    hold(EXCHANGE, op, [x], inputs, out)


def test_halves_of_a_shuffle_go_faster_than_walks():
    op = shuffle(32, 720, 640)
    inputs = [nhwc_view(DType.F16, (1, 128, 720, 640))]
    call = call_of(op, inputs, nhwc_view(DType.F16, (1, 32, 1440, 1280)))
    first, walk = (next(iter(kernel.variants(call))) for kernel in (EXCHANGE, COPY))
    assert first.micros < walk.micros
    assert first.launches[0].config.runs == (1024, 2048)
    assert first.launches[0].config.steps == (8, 8)  # accesses of 16 bytes


@pytest.mark.parametrize(
    ("channels", "image"),
    [(64, row_major), (3, nhwc_view), (48, nhwc_view)],
    ids=["planes", "few channels", "three times sixteen"],
)
def test_short_runs_are_left_to_walks(channels, image):
    x, y = (1, 4 * channels, 3, 8), (1, channels, 6, 16)
    call = call_of(shuffle(channels, 3, 8), [image(DType.F32, x)], image(DType.F32, y))
    assert "no blocks" in EXCHANGE.supports(call)


def test_transposes_are_rectangles():
    shape = (1, 64, 32, 32)
    op = Move(IndexMap(tuple((n,) for n in shape), tuple(map(Factor, shape, range(4))), (1,) * 4))
    call = call_of(op, [row_major(DType.F32, shape)], nhwc_view(DType.F32, shape))
    assert EXCHANGE.supports(call) == "rectangles do"
    same = call_of(op, [row_major(DType.F32, shape)], row_major(DType.F32, shape))
    assert EXCHANGE.supports(same) == "neighbours stay neighbours"


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_rows_without_updates_are_left_alone_in_the_place_of_the_data(reduction):
    rng = np.random.default_rng(0)
    data, updates = (rng.standard_normal((n, 6)).astype(np.float32) for n in (40, 5))
    arrays = [data, np.array([3, -1, 39, 0, 17]), updates]
    inputs = [row_major(DType.of(a.dtype), a.shape) for a in arrays]
    call = call_of(ScatterRows(reduction), inputs, row_major(DType.F32, data.shape))
    (truth,) = call.op.reference(*arrays)
    for variant in SCATTER.variants(call):
        *first, apply = variant.launches
        assert np.array_equal(interpret(SCATTER, call, arrays, [*first, apply])[0], truth)
        # As if the result lay where the data are, which is guarded memory here: NaN all over.
        place = replace(apply, operands={**apply.operands, "data": Out(0)})
        (found,) = interpret(SCATTER, call, arrays, [*first, place])
        written = [0, 3, 17, 39]
        left = np.delete(found, written, 0)
        assert np.isnan(left).all()
        wanted = updates[[3, 0, 4, 2]] if reduction == "none" else np.full((4, 6), np.nan)
        assert np.array_equal(found[written], wanted, equal_nan=True)
