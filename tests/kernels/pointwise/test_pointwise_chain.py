from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import ARITY, BIT_OPERATORS, parse
from saccade.kernels.base import Call, View
from saccade.kernels.cpu.pointwise.chain import CHAIN
from saccade.opdefs.pointwise import Pointwise
from saccade.testing.kernels import launched_as, mistaken, nhwc_view, row_major
from saccade.testing.targets import ZEN4
from saccade.testing.tolerance import exact_operands, random_operands

RNG = np.random.default_rng(11)


def operands(*shapes, dtype=DType.F32):
    make = random_operands if dtype.is_float else exact_operands
    return [make(s, dtype, RNG) for s in shapes]


def op(text, dtype=DType.F32):
    return Pointwise(parse(text), dtype)


BROADCASTS = [
    [(3, 37)], [(3, 37), (37,)], [(3, 37), (3, 1)], [(1, 37), (3, 1)], [(2, 5, 7, 9), (5, 1, 1)],
    [(2, 5, 7, 9), (2, 5, 1, 1)], [(2, 1, 7, 1), (1, 5, 1, 9)], [(), (4,)], [(), ()],
    [(1, 1, 1), (1,)], [(0, 3), (3,)], [(2, 0, 4), (1, 4)], [(4, 1, 6, 1, 2), (1, 3, 1, 5, 1)],
    [(1000, 3), (3,)],
]  # fmt: skip


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting(hold, shapes):
    arrays = operands(*shapes)
    text = "add($0, mul($1, 2.0))" if len(shapes) == 2 else "mul($0, $0)"
    hold(CHAIN, op(text), arrays)


@pytest.mark.parametrize("channels", [1, 3, 16, 24, 33])
def test_channels_last_with_pitch(hold, channels):
    shape = (2, channels, 5, 7)
    x, scale, y = operands(shape, (2, channels, 1, 1), shape)
    views = [
        nhwc_view(DType.F32, shape, 40),
        row_major(DType.F32, scale.shape),
        nhwc_view(DType.F32, shape),
    ]
    hold(
        CHAIN, op("relu(add(mul($0, $1), $2))"), [x, scale, y], inputs=views,
        outputs=[nhwc_view(DType.F32, shape, 35)],
    )  # fmt: skip


def test_mixed_layouts_and_strides(hold):
    shape = (2, 19, 4, 6)
    x, y, z = operands(shape, shape, shape)
    transposed = View(DType.F32, shape, (456, 24, 1, 4))
    views = [nhwc_view(DType.F32, shape), row_major(DType.F32, shape), transposed]
    for out in (nhwc_view(DType.F32, shape, 23), row_major(DType.F32, shape), transposed):
        hold(CHAIN, op("sub(max($0, $1), $2)"), [x, y, z], inputs=views, outputs=[out])
    spaced = View(DType.F32, shape, (4000, 200, 48, 2))
    hold(CHAIN, op("silu($0)"), [x], inputs=[spaced], outputs=[spaced])


@pytest.mark.parametrize(
    ("channels", "dtype"),
    [*((n, DType.F32) for n in (1, 2, 3, 17, 21, 48)), (21, DType.I64), (21, DType.U8)],
)
def test_operands_in_the_other_order(hold, channels, dtype):
    shape = (2, channels, 5, 13)
    x, y, scale = (
        exact_operands(s, dtype, RNG) for s in (shape, shape, (1, channels, 1, 1))
    )  # fmt: skip
    last, planar = nhwc_view(dtype, shape), row_major(dtype, shape)
    for views, out in [
        ((last, planar), planar),
        ((planar, last), last),
        ((last, last), View(dtype, shape, (8000, 80, 16, 1))),
        ((planar, planar), nhwc_view(dtype, shape, channels + 5)),
    ]:
        operands = [*views, row_major(dtype, scale.shape)]
        hold(
            CHAIN, op("relu(add(add($0, $2), $1))", dtype), [x, y, scale], inputs=operands,
            outputs=[out], exact=True,
        )  # fmt: skip


@pytest.mark.parametrize("channels", [3, 21, 48, 64])
def test_bfloat16_in_the_other_order(hold, mixed, channels):
    source, result = mixed
    shape = (1, channels, 6, 11)
    x, y = operands(shape, shape, dtype=source)
    last, planar = nhwc_view(source, shape), row_major(source, shape)
    for out in (nhwc_view(result, shape), row_major(result, shape)):
        hold(CHAIN, op("relu(add($0, $1))"), [x, y], inputs=[last, planar], outputs=[out], k=1)


def test_many_blocks_in_the_other_order(hold):
    for shape in ((1, 70, 37, 41), (1, 600, 3, 3)):
        (x,) = operands(shape)
        last, planar = nhwc_view(DType.F32, shape), row_major(DType.F32, shape)
        hold(CHAIN, op("neg($0)"), [x], inputs=[last], outputs=[planar], exact=True)
        hold(CHAIN, op("neg($0)"), [x], inputs=[planar], outputs=[last], exact=True)


def test_rectangles_write_over_no_operand():
    shape = (1, 17, 5, 7)
    last, planar = nhwc_view(DType.F32, shape), row_major(DType.F32, shape)
    for views, allowed in (((last, planar), ()), ((planar, planar), ((0, 0), (1, 0)))):
        call = Call(op("add($0, $1)"), views, (planar,), (False, False), ZEN4)
        assert CHAIN.aliases(call) == allowed


@pytest.mark.parametrize("mutation", ["expr", "kinds", "across", "block", "steps"])
def test_mutants_of_the_other_order_are_caught(hold, mutation):
    shape = (1, 70, 9, 9)

    def launch(call):
        (phase,) = CHAIN.launch(call)
        changes = {"expr": "sub($1, $0)", "kinds": ("unit", "unit", "transposed")}
        if mutation in changes:
            config = dataclasses.replace(phase.config, **{mutation: changes[mutation]})
            return (dataclasses.replace(phase, config=config),)
        return (mistaken(phase, mutation, -1, at=-2),)

    x, y = operands(shape, shape)
    last, planar = nhwc_view(DType.F32, shape), row_major(DType.F32, shape)
    with pytest.raises((AssertionError, IndexError)):
        hold(
            launched_as(CHAIN, launch), op("sub($0, $1)"), [x, y], inputs=[last, planar],
            outputs=[planar],
        )  # fmt: skip


def test_many_rows_and_long_rows(hold):
    hold(CHAIN, op("sigmoid($0)"), operands((1, 70_001)))
    hold(CHAIN, op("mul($0, $1)"), operands((700, 33, 3), (700, 1, 3)))


@pytest.mark.parametrize("name", sorted(ARITY.keys() - BIT_OPERATORS))
def test_every_operator(hold, name):
    count = ARITY[name]
    arrays = operands(*[(5, 23)] * count)
    if name in ("log", "sqrt", "rsqrt", "pow"):
        arrays[0] = np.abs(arrays[0]) + np.float32(0.1)
    text = f"{name}({', '.join(f'${i}' for i in range(count))})"
    hold(CHAIN, op(text), arrays, k=4)


TYPES = [DType.F32, DType.F16, DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL]


CASTS = [(a, b) for a in TYPES for b in TYPES if DType.F32 in (a, b) or DType.I64 in (a, b)]


@pytest.mark.parametrize(("source", "target"), CASTS, ids=lambda d: d.value)
def test_casts(hold, source, target):
    x = exact_operands((3, 37), source, RNG)
    hold(CHAIN, op("$0", target), [np.abs(x) if source is not DType.BOOL else x], exact=True)
    if source.is_float and target in (DType.I64, DType.I32):
        x = np.array([-2.9, -0.5, 0.5, 2.9, 1e3, -1e3], source.numpy)
        hold(CHAIN, op("$0", target), [x], exact=True)


@pytest.mark.parametrize("dtype", [DType.I64, DType.I32], ids=lambda d: d.value)
@pytest.mark.parametrize(
    "text",
    ["add($0, $1)", "sub($0, $1)", "mul($0, $1)", "div($0, $1)", "mod($0, $1)", "fmod($0, $1)",
     "min($0, $1)", "max($0, $1)", "neg($0)", "abs($0)", "sign($0)", "clip($0, -2.0, 3.0)",
     "clip($0, -2.0, inf)", "where(less($0, $1), $0, mul($1, 3.0))"],
)  # fmt: skip
def test_integers(hold, text, dtype):
    rng = np.random.default_rng(2)
    x = rng.integers(-50, 50, (4, 35)).astype(dtype.numpy)
    y = rng.integers(1, 9, (35,)).astype(dtype.numpy) * rng.choice([-1, 1], 35).astype(dtype.numpy)
    hold(CHAIN, op(text, dtype), [x, y], exact=True)


@pytest.mark.parametrize("dtype", [DType.I64, DType.I32], ids=lambda d: d.value)
@pytest.mark.parametrize("name", ["div", "mod", "fmod"])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_the_least_integer_is_divided_by_minus_one(hold, name, dtype):
    """A processor's own division traps."""
    x = np.full(19, np.iinfo(dtype.numpy).min, dtype.numpy)
    hold(CHAIN, op(f"{name}($0, $1)", dtype), [x, np.full(19, -1, dtype.numpy)], exact=True)


INTEGER_TYPES = (DType.I64, DType.I32, DType.I8, DType.U8)


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=lambda d: d.value)
@pytest.mark.parametrize(
    "text",
    ["div(add($0, $1), 2.0)", "div(sub($0, $1), 3.0)", "mod(mul($0, $1), 5.0)", "max(neg($0), 1.0)",
     "min(abs($0), $1)", "max(div($0, -1.0), 3.0)", "shift_right(shift_left($0, 3.0), 3.0)",
     "shift_right(bit_not($0), 1.0)", "where(less(add($0, 1.0), $0), $0, $1)",
     "shift_right(add($0, $1), $1)"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_integers_wrap_around_after_each_operator(hold, text, dtype):
    """Also where the next operator is in the same kernel, and in wider registers."""
    info = np.iinfo(dtype.numpy)
    x = np.array([info.max, info.min, info.max - 1, info.min + 1, 0, 1, 77], dtype.numpy)
    if dtype is DType.U8:
        text = text.replace("-1.0", "1.0")  # which it does not have
    grid = np.repeat(x[:, None], 7, 1)
    arrays = [np.ascontiguousarray(grid), np.ascontiguousarray(grid.T)][: 1 + ("$1" in text)]
    hold(CHAIN, op(text, dtype), arrays, exact=True)
    hold(CHAIN, op(text, DType.I64), arrays, exact=True)


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=lambda d: d.value)
@pytest.mark.parametrize("name", ["bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"])
def test_bits(hold, name, dtype):
    info, bits = np.iinfo(dtype.numpy), 8 * dtype.itemsize
    x = np.array([info.max, info.min, 0, 1, 5, 100, info.max // 3], dtype.numpy)
    y = [0, 1, bits - 1, bits, bits + 1, 63, 64, 65, 100, *((-1, -bits) if info.min else ())]
    arrays = [np.repeat(x[:, None], len(y), 1), np.repeat(np.array([y], dtype.numpy), 7, 0)]
    hold(CHAIN, op(f"{name}($0, $1)", dtype), arrays, exact=True)
    hold(CHAIN, op("bit_not($0)", dtype), [x], exact=True)


def test_bits_of_floats_are_refused():
    x = row_major(DType.F32, (4, 5))
    call = Call(op("bit_and($0, $1)"), (x, x), (x,), (False, False), ZEN4, 1)
    assert CHAIN.supports(call) == "bit_and of numbers that are no integers"


def test_short_integers_without_neighbours_wrap_around(hold):
    x = RNG.integers(0, 256, (5, 9, 2)).astype(np.uint8)
    far = View(DType.U8, (5, 9), (18, 2))
    hold(CHAIN, op("add($0, 250.0)", DType.U8), [x[..., 0]], inputs=[far], exact=True)


def test_int64_needs_all_its_bits(hold):
    x = np.array([2**62 + 1, -(2**62) - 1, 2**53 + 1], np.int64)
    hold(CHAIN, op("add($0, 1.0)", DType.I64), [x], exact=True)


def test_bools(hold):
    a, b, c = (exact_operands((3, 45), DType.BOOL, RNG) for _ in range(3))
    hold(CHAIN, op("xor(and($0, $1), not($2))", DType.BOOL), [a, b, c], exact=True)
    x, y = operands((3, 45), (3, 45))
    hold(CHAIN, op("where($0, $1, $2)"), [a, x, y], exact=True)
    hold(CHAIN, op("less_equal($0, $1)", DType.BOOL), [x, y], exact=True)


def test_half_precision(hold):
    x, y = operands((7, 37), (37,), dtype=DType.F16)
    hold(CHAIN, op("silu(add($0, $1))", DType.F16), [x, y], k=2)


def test_half_precision_is_rounded_once(hold):
    """2048 + 1 + 1: float16 has no 2049, and would come to 2048 after two sums of its own."""
    arrays = [np.full(37, value, np.float16) for value in (2048, 1, 1)]
    (result,) = hold(CHAIN, op("add(add($0, $1), $2)", DType.F16), arrays, exact=True)
    assert (result == 2050).all() and result.dtype == np.float16


def test_nan_passes_through(hold):
    x = np.array([np.nan, 1, -1, np.inf, -np.inf, 0], np.float32)
    y = np.array([1, np.nan, 0, 0, np.nan, 1], np.float32)
    for text in ("relu($0)", "clip($0, -1.0, 1.0)", "max($0, $1)", "min($0, $1)", "max($0, 0.5)"):
        hold(CHAIN, op(text), [x, y], exact=True)


def _call(op, *arrays, out=None):
    views = tuple(row_major(DType.of(a.dtype), a.shape) for a in arrays)
    result = out or row_major(op.dtype, np.broadcast_shapes(*(a.shape for a in arrays)))
    return Call(op, views, (result,), (False,) * len(views), ZEN4)


def test_bfloat16(hold, mixed):
    source, result = mixed
    x, y = operands((7, 37), (37,), dtype=source)
    hold(CHAIN, op("silu(add($0, $1))"), [x, y], stored=result, k=2)
    hold(CHAIN, op("$0"), [x], stored=result, exact=True)
    shape = (2, 19, 4, 6)
    (z,) = operands(shape, dtype=source)
    planar, last = row_major(source, shape), nhwc_view(result, shape, 23)
    hold(CHAIN, op("mul($0, $0)"), [z], inputs=[planar], outputs=[last])


@pytest.mark.parametrize("size", [31, 64, 65, 127, 128, 200, 337])
def test_several_vectors_at_once(hold, size):
    """Rows that end anywhere; $1 is one element for a row, $2 has the row's own."""
    shapes = ((3, size), (3, 1), (size,))
    for dtype in (DType.F32, DType.BF16):
        arrays = [exact_operands(shape, dtype, RNG) for shape in shapes]
        hold(CHAIN, op("add(mul($0, $1), $2)"), arrays, exact=True)
    mixed = [exact_operands(shapes[0], DType.BF16, RNG), *operands(*shapes[1:])]
    hold(CHAIN, op("add(mul($0, $1), $2)"), mixed)


def test_every_bfloat16_passes_through_a_chain(hold):
    bits = np.arange(1 << 16, dtype=np.uint16)
    tiny = (bits & 0x7F80 == 0) & (bits & 0x7F != 0)  # instructions take these for zero
    x = bits[~tiny].view(DType.BF16.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaN
        for text in ("$0", "relu($0)", "max(neg($0), $0)"):
            hold(CHAIN, op(text), [x], exact=True)


def test_bfloat16_beside_float32_and_other_types(hold):
    (x,), (y,) = operands((7, 37), dtype=DType.BF16), operands((7, 37))
    mask = exact_operands((7, 37), DType.BOOL, RNG)
    hold(CHAIN, op("where($0, $1, $2)"), [mask, x, y], stored=DType.BF16, k=1)
    hold(CHAIN, op("less($0, $1)", DType.BOOL), [x, y], exact=True)
    (n,) = operands((7, 37), dtype=DType.I32)
    hold(CHAIN, op("$0", DType.F32), [n], stored=DType.BF16, exact=True)
    hold(CHAIN, op("$0", DType.I32), [x], exact=True)


def test_refusals():
    assert CHAIN.supports(_call(op("tanh($0)", DType.F64), np.zeros(3))) == "tanh of float64"
    assert "exp of integers" in CHAIN.supports(
        _call(op("exp($0)", DType.I64), np.zeros(3, np.int64))
    )
    out = View(DType.F32, (2, 3), (0, 1))
    assert "repeats" in CHAIN.supports(_call(op("$0"), np.zeros((2, 3), np.float32), out=out))


def test_one_code_serves_many_shapes():
    configs = set()
    for c, h in ((16, 7), (24, 56), (960, 3)):
        shape = (1, c, h, h)
        x, s = nhwc_view(DType.F32, shape), row_major(DType.F32, (1, c, 1, 1))
        call = Call(op("mul($0, $1)"), (x, s), (x,), (False, False), ZEN4)
        configs.add(CHAIN.launch(call)[0].config)
    assert len(configs) == 1


def test_unused_operands_only_lend_their_shape(hold):
    x, y, z = operands((4, 1), (4, 9), (9,))
    hold(CHAIN, op("add($0, $2)"), [x, y, z])
    hold(CHAIN, op("$1"), [x, y])


@pytest.mark.parametrize("mutation", ["expr", "kinds"])
def test_mutants_are_caught(hold, mutation):
    def launch(call):
        (phase,) = CHAIN.launch(call)
        changes = {"expr": "add($1, $1)", "kinds": ("unit", "unit", "unit")}
        config = dataclasses.replace(phase.config, **{mutation: changes[mutation]})
        return (dataclasses.replace(phase, config=config),)

    x, y = operands((3, 37), (3, 1))
    with pytest.raises((AssertionError, IndexError)):
        hold(launched_as(CHAIN, launch), op("add($0, $1)"), [x, y])


@pytest.mark.parametrize("stored", [DType.F32, DType.BF16], ids=lambda d: d.value)
def test_results_past_the_caches(hold, past_caches, stored):
    shape = (2, 64, 3, 5)
    x, scale, y = operands(shape, (1, 64, 1, 1), shape, dtype=stored)
    text = op("relu(add(mul($0, $1), $2))")
    wide, dense = nhwc_view(stored, shape, 96), nhwc_view(stored, shape)
    for out in (dense, wide, nhwc_view(stored, shape, 68)):
        views = [wide, row_major(stored, scale.shape), dense]
        hold(CHAIN, text, [x, scale, y], inputs=views, outputs=[out], runs=past_caches)
    hold(CHAIN, op("silu($0)"), operands((1000,), dtype=stored), k=64, runs=past_caches)


def test_only_rows_of_whole_lines_go_past_the_caches(past_caches):
    shape, target = (1, 64, 8, 8), past_caches[0][0]
    for pitch, streamed in ((64, True), (80, True), (72, False)):
        x, y = nhwc_view(DType.F32, shape), nhwc_view(DType.F32, shape, pitch)
        for l3, expected in ((0, streamed), (y.nbytes, False)):
            machine = dataclasses.replace(target, l3=l3)
            call = Call(op("relu($0)"), (x,), (y,), (False,), machine, 2)
            assert CHAIN.launch(call)[0].config.streamed == (expected and target.fills_lines)


@pytest.mark.parametrize("stored", [DType.F32, DType.BF16], ids=lambda d: d.value)
def test_operands_in_the_other_order_past_the_caches(hold, past_caches, stored):
    shape = (2, 64, 8, 9)
    x, y = operands(shape, shape, dtype=stored)
    last, planar = nhwc_view(stored, shape), row_major(stored, shape)
    for views, out in [([planar, last], last), ([last, last], planar), ([planar, planar], last)]:
        hold(CHAIN, op("relu(add($0, $1))"), [x, y], inputs=views, outputs=[out], runs=past_caches)
