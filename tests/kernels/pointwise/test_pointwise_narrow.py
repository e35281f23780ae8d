"""Elements of at most 8 bits against `ml_dtypes`, bit by bit: every pattern in, every one out."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.ir import DType
from saccade.ir.expr import IDENTITY, parse
from saccade.kernels.cpu.pointwise import narrow_elements
from saccade.kernels.cpu.pointwise.chain import CHAIN
from saccade.opdefs import Pointwise
from saccade.testing.kernels import nhwc_view, row_major

NARROW = sorted((d for d in DType if d.is_narrow), key=lambda d: d.value)
FLOATS = [d for d in NARROW if d.is_float]
INTEGERS = [d for d in NARROW if not d.is_float]
OTHERS = (DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.I16, DType.U8, DType.BOOL)


def patterns(dtype):
    """Every element: all bytes of integers, whose upper bits do not count."""
    count = 256 if not dtype.is_float else 1 << dtype.bits
    return np.arange(count, dtype=np.uint8).view(dtype.numpy)


def cast(array, dtype):
    """By way of what the elements stand for."""
    with np.errstate(all="ignore"):
        source = DType.of(array.dtype)
        wide = array.astype(source.arithmetic.numpy) if source.is_narrow else array
        return wide.astype(dtype.numpy)


def halves():
    bits = np.arange(1 << 16, dtype=np.uint16)
    return bits.view(np.float16), bits.view(DType.BF16.numpy)


def awkward(dtype):
    """float32 around all numbers that the type has, and around all that are halfway."""
    numbers = np.unique(patterns(dtype).astype(np.float64))
    numbers = numbers[np.isfinite(numbers)]
    numbers = np.concatenate([numbers, [2 * numbers[-1], 2 * numbers[0], 0.0, -0.0]])
    numbers.sort()
    between = (numbers[1:] + numbers[:-1]) / 2
    with np.errstate(over="ignore"):
        exact = np.concatenate([numbers, between]).astype(np.float32)
        near = [np.nextafter(exact, np.float32(to)) for to in (np.inf, -np.inf)]
    noise = np.random.default_rng(5).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    special = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 1])
    return np.concatenate([exact, *near, np.r_[noise, special].astype(np.uint32).view(np.float32)])


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.value)
@pytest.mark.parametrize("to", OTHERS, ids=lambda d: d.value)
def test_every_pattern_loads(hold_bits, dtype, to):
    x = patterns(dtype)
    if dtype.is_float and not to.is_float and to is not DType.BOOL:
        # What no integer is, and what does not fit one, is undefined.
        wide = x.astype(np.float64)
        x = x[np.abs(wide) < (1 << 7)]
    hold_bits(CHAIN, Pointwise(IDENTITY, to), [x], cast(x, to))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.value)
def test_every_half_and_what_is_hard_in_float32_stores(hold_bits, dtype):
    with np.errstate(all="ignore"):
        for x in (*halves(), awkward(dtype)):
            wanted = x.astype(np.float32).astype(dtype.numpy)
            hold_bits(CHAIN, Pointwise(IDENTITY, dtype), [x], wanted)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.value)
@pytest.mark.parametrize("source", [DType.I64, DType.I16, DType.U8, DType.BOOL], ids=str)
def test_integers_store_as_floats(hold_bits, dtype, source):
    x = np.arange(-70_000, 70_000, 3).astype(source.numpy)
    hold_bits(CHAIN, Pointwise(IDENTITY, dtype), [x], x.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.value)
@pytest.mark.parametrize("source", OTHERS, ids=lambda d: d.value)
def test_integers_lose_what_does_not_fit(hold_bits, dtype, source):
    x = np.arange(-3000, 3000, 7).astype(source.numpy)
    if source.is_float:
        x = (x.astype(np.float32) / 4).astype(source.numpy)
    wide = x.astype(np.float32) if source.is_float else x
    hold_bits(CHAIN, Pointwise(IDENTITY, dtype), [x], cast(wide, dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.value)
@pytest.mark.parametrize("to", NARROW, ids=lambda d: d.value)
def test_from_each_to_each(hold_bits, dtype, to):
    x = patterns(dtype)
    if dtype.is_float and not to.is_float:
        x = x[np.abs(x.astype(np.float64)) < (1 << 7)]
    hold_bits(CHAIN, Pointwise(IDENTITY, to), [x], cast(x, to))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17, 31, 33, 67, 129])
def test_ends_of_rows(hold_bits, count):
    x = np.resize(patterns(DType.F8E5M2), (3, count))
    scale = np.linspace(0.5, 3, 3, dtype=np.float32).reshape(3, 1)
    wanted = (x.astype(np.float32) * scale).astype(DType.F8E4M3FN.numpy)
    hold_bits(CHAIN, Pointwise(parse("mul($0, $1)"), DType.F8E4M3FN), [x, scale], wanted)


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.I4], ids=lambda d: d.value)
def test_any_order_of_elements(hold_bits, dtype):
    shape = (2, 21, 5, 13)
    x = np.resize(patterns(dtype), shape)
    wanted = cast(x, DType.F32)
    inputs = [nhwc_view(dtype, shape, 23)]
    hold_bits(CHAIN, Pointwise(IDENTITY, DType.F32), [x], wanted, inputs=inputs)
    y = wanted.transpose(0, 1, 3, 2).copy()
    inputs = [row_major(DType.F32, y.shape)]
    hold_bits(CHAIN, Pointwise(IDENTITY, dtype), [y], cast(y, dtype), inputs=inputs)


def test_integers_of_few_bits_are_computed_with_as_bytes(hold_bits):
    x = np.resize(patterns(DType.I4), 300)
    wide = x.astype(np.int8)
    op = Pointwise(parse("add(mul($0, 9.0), $1)"), DType.I32)
    hold_bits(CHAIN, op, [x, wide], (wide * np.int8(9) + wide).astype(np.int32))


def test_mistakes_show(hold_bits, monkeypatch):
    forms = narrow_elements._FORMATS
    wrong = narrow_elements._Format(8, 3, 6, "last")
    monkeypatch.setitem(forms, DType.F8E4M3FN.value, wrong)
    x = awkward(DType.F8E4M3FN)
    op = Pointwise(parse("add($0, 0.25)"), DType.F8E4M3FN)  # code that no other test has made
    with np.errstate(all="ignore"):
        wanted = (x + np.float32(0.25)).astype(DType.F8E4M3FN.numpy)
    with pytest.raises(AssertionError, match="not equal"):
        hold_bits(CHAIN, op, [x], wanted)
