"""bfloat16 in memory: conversions and dot products against exact models, on every path."""

from __future__ import annotations

import ctypes
import dataclasses

import ml_dtypes
import numpy as np
import pytest

from saccade.backends.cpu.codegen.bfloat16 import BFloat16
from saccade.backends.cpu.codegen.compile import assembly, object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.target import described_target, host_target

BF16 = ml_dtypes.bfloat16
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 3.4e38, -3.4e38], np.float32)


def _targets():
    native = host_target()
    yield pytest.param(native, id="instructions" if native.bf16 else "native")
    yield pytest.param(dataclasses.replace(native, bf16=False), id="shifts")
    yield pytest.param(host_target("avx2"), id="avx2")


TARGETS = list(_targets())


def run(target, emit, arrays, integers=(), *, checked=False):
    k = KernelBuilder("kernel", target, checked=checked)
    emit(k)
    linked = link([object_code(str(k.finish()), target)], ["kernel"])
    words = [w for i, a in enumerate(arrays) for w in (i, 0, a.nbytes)]
    bases = np.array([a.ctypes.data for a in arrays], np.int64)
    fault = np.zeros(3, np.int64)
    args = np.array([*words, *integers], np.int64)
    context = np.array([bases.ctypes.data, 0, 1, 0, fault.ctypes.data], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    call(linked.addresses["kernel"])(args.ctypes.data, context.ctypes.data)
    return k, fault


def bits(array):
    return array.view(np.uint16)


@pytest.mark.parametrize("target", TARGETS)
def test_every_bfloat16_survives_a_load_and_a_store(target):
    def emit(k):
        x, wide, y = k.pointer("x", "bfloat16"), k.pointer("wide"), k.pointer("y", "bfloat16")
        with k.range(0, 1 << 16, k.lanes) as i:
            wide.store(x.vec(i), i)
            y.store(wide.vec(i), i)

    x = np.arange(1 << 16, dtype=np.uint16).view(BF16)
    wide, y = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, BF16)
    run(target, emit, [x, wide, y])
    np.testing.assert_array_equal(wide.view(np.uint32), bits(x).astype(np.uint32) << 16)
    normal = (np.abs(wide) >= np.finfo(np.float32).tiny) | (wide == 0)
    np.testing.assert_array_equal(bits(y)[normal], bits(x)[normal])
    assert ((bits(y)[np.isnan(wide)] & 0x7FFF) > 0x7F80).all()


@pytest.mark.parametrize("target", TARGETS)
def test_stores_round_to_nearest_even(target):
    def emit(k):
        x, y, last = k.pointer("x"), k.pointer("y", "bfloat16"), k.integer("last")
        with k.range(0, last, k.lanes) as i:
            y.store(x.vec(i), i)
        y.store(x.load(0), last)

    rng = np.random.default_rng(1)
    ties = (rng.integers(0x0080, 0x7F00, 512).astype(np.uint32) << 16) | 0x8000
    near = np.concatenate([ties, ties + 1, ties - 1]).view(np.float32)
    x = np.concatenate([near, -near, SPECIAL, rng.standard_normal(2040).astype(np.float32)])
    y = np.zeros(len(x) + 1, BF16)
    run(target, emit, [x, y], [len(x)])
    with np.errstate(over="ignore"):
        wanted = x.astype(BF16).astype(np.float32)
    np.testing.assert_array_equal(y[:-1].astype(np.float32), wanted)
    assert y[-1] == x[0].astype(BF16)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("checked", [False, True])
def test_masks_touch_the_first_elements_only(target, checked):
    def emit(k):
        x, y, n = k.pointer("x", "bfloat16"), k.pointer("y", "bfloat16"), k.integer("n")
        with k.range(0, n, k.lanes) as i:
            mask = k.first(n - i)
            y.store(x.vec(i, mask) + x.splat(0), i, mask)

    for size in (1, 7, 16, 33):
        x = np.arange(1, 49).astype(BF16)
        y = np.full(48, 77, BF16)
        _, fault = run(target, emit, [x[:size], y[:size]], [size], checked=checked)
        assert fault[0] == 0
        np.testing.assert_array_equal(y[:size], x[:size] + 1)
        assert (y[size:] == 77).all()


@pytest.mark.parametrize("target", TARGETS)
def test_checks_count_elements(target):
    def emit(k):
        x, y, at = k.pointer("x", "bfloat16"), k.pointer("y", "int32"), k.integer("at")
        y.store(x.pairs(at))

    x, y = np.zeros(40, BF16), np.zeros(16, np.int32)
    for at, bad in ((0, False), (40 - 2 * target.lanes, False), (41 - 2 * target.lanes, True)):
        k, fault = run(target, emit, [x, y], [at], checked=True)
        assert bool(fault[0]) == bad
        if bad:
            assert (k.accesses[0], *fault[1:]) == ("x", at, 40)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scale", [1.0, 2.0**30])
def test_dot_products_follow_the_model(target, scale):
    """float32 additions of exact products: odd elements first, then even ones."""

    def emit(k):
        total, a, b = k.pointer("total"), k.pointer("a", "bfloat16"), k.pointer("b", "bfloat16")
        acc = k.var(total.vec())
        with k.range(0, 50) as r:
            pair = k.broadcast(b.pair(r * 2))
            acc.set(k.dot_bf16(acc.get(), a.pairs(r * 2 * k.lanes), pair))
        total.store(acc.get())

    lanes, rng = target.lanes, np.random.default_rng(2)
    total = rng.standard_normal(lanes).astype(np.float32)
    a = (rng.standard_normal((50, lanes, 2)) * scale).astype(BF16)
    b = rng.standard_normal((50, 2)).astype(BF16)
    truth = total.copy()
    for x, y in zip(a.astype(np.float32), b.astype(np.float32), strict=True):
        truth = truth + x[:, 1] * y[1]
        truth = truth + x[:, 0] * y[0]
    run(target, emit, [total, a, b])
    np.testing.assert_array_equal(total, truth)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pair_splits_into_what_its_elements_widen_to(target):
    def emit(k):
        x, y = k.pointer("x", "bfloat16"), k.pointer("y")
        for i, half in enumerate(k.split_pair(x.pairs(0))):
            y.store(half, i * k.lanes)

    lanes = target.lanes
    x = np.random.default_rng(3).standard_normal(2 * lanes).astype(BF16)
    x[:2] = 1e-40, np.inf
    y = np.zeros(2 * lanes, np.float32)
    run(target, emit, [x, y], [])
    np.testing.assert_array_equal(y, np.concatenate([x[::2], x[1::2]]).astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("checked", [False, True])
def test_one_element_in_every_lane(target, checked):
    """By itself, into any number of lanes, and as the even or the odd half of a pair."""
    x = np.array([1e-40, -3.0, np.inf, 7.0, 0.5], BF16)
    counts = [1, 4, 8, target.lanes, 2 * target.lanes]

    def emit(k):
        source, y = k.pointer("x", "bfloat16"), k.pointer("y")
        at = 0
        for i in range(len(x)):
            for lanes in counts:
                y.store(source.splat(i, lanes), at)
                at += lanes
        for i in range(len(x) - 1):
            for odd in (False, True):
                y.store(source.splat_of_pair(i, odd), at)
                at += k.lanes

    wide = x.astype(np.float32)
    halves = [wide[i + odd] for i in range(len(x) - 1) for odd in (0, 1)]
    truth = np.concatenate([np.repeat(wide, sum(counts)), np.repeat(halves, target.lanes)])
    y = np.zeros(len(truth), np.float32)
    _, fault = run(target, emit, [x, y], checked=checked)
    assert fault[0] == 0
    np.testing.assert_array_equal(y, truth)


def test_halves_of_pairs_come_from_loads_that_repeat():
    """Not by way of an integer register, which takes three instructions more for each."""
    target = described_target("zen4", "avx2")
    k = KernelBuilder("kernel", target)
    x, y = k.pointer("x", "bfloat16"), k.pointer("y")
    with k.range(0, 64) as i:
        for odd in (False, True):
            y.store(x.splat_of_pair(i * 2, odd), (i * 2 + int(odd)) * k.lanes)
    lines = assembly(str(k.finish()), target).splitlines()
    loads = [line for line in lines if "vbroadcastss" in line and "(" in line]
    assert len([line for line in loads if ".LCPI" not in line]) >= 2
    assert not [line for line in lines if "vmovd\t" in line or "vpinsr" in line]


def _rounded_in_pairs(target, x, lanes):
    """The same numbers, split into even and odd ones, rounded and put together again."""

    def emit(k):
        even, odd, y = k.pointer("even"), k.pointer("odd"), k.pointer("y", "bfloat16")
        with k.range(0, len(x) // 2, lanes) as i:
            y.store_halves(even.vec(i, None, lanes), odd.vec(i, None, lanes), i * 2)

    y = np.zeros(len(x), BF16)
    run(target, emit, [x[::2].copy(), x[1::2].copy(), y])
    return y


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("registers", [1, 2, 4])
def test_pairs_round_as_single_elements_do(target, registers):
    rng = np.random.default_rng(4)
    ties = ((rng.integers(0x0080, 0x7F00, 504).astype(np.uint32) << 16) | 0x8000).view(np.float32)
    x = np.concatenate([ties, SPECIAL, -ties, rng.standard_normal(520).astype(np.float32)])
    with np.errstate(over="ignore"):
        wanted = x.astype(BF16).astype(np.float32)
    y = _rounded_in_pairs(target, x, registers * target.lanes)
    np.testing.assert_array_equal(y.astype(np.float32), wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_pairs_in_the_wrong_order_are_noticed(target, monkeypatch):
    right = BFloat16.narrow_pairs
    monkeypatch.setattr(BFloat16, "narrow_pairs", lambda k, even, odd: right(k, odd, even))
    x = np.arange(8 * target.lanes, dtype=np.float32)
    assert (_rounded_in_pairs(target, x, target.lanes).astype(np.float32) != x).all()


@pytest.mark.parametrize("target", TARGETS)
def test_pairs_under_a_mask_and_half_a_pair(target):
    def emit(k):
        y, a, n = k.pointer("y"), k.pointer("a", "bfloat16"), k.integer("n")
        mask = k.first(n)
        one = k.broadcast(a.half_pair(0))
        y.store(k.dot_bf16(k.zero(), a.pairs(0, mask), one))

    a = np.array([3, 5, 7, 11, 13, 17], BF16)
    y = np.full(target.lanes, np.nan, np.float32)
    _, fault = run(target, emit, [y, a], [3], checked=True)
    assert fault[0] == 0
    assert y.tolist() == [9, 21, 39, *[0] * (target.lanes - 3)]


def test_the_target_s_instructions_are_used():
    if not host_target().bf16:
        pytest.skip("this machine has no instructions for bfloat16")

    def text(target):
        k = KernelBuilder("kernel", target)
        x, y = k.pointer("x", "bfloat16"), k.pointer("y", "bfloat16")
        y.store(k.dot_bf16(x.vec(64), x.pairs(0), k.broadcast(x.pair(32))))
        return assembly(str(k.finish()), target)

    for name in ("vdpbf16ps", "vcvtneps2bf16"):
        assert name in text(host_target())
        assert name not in text(dataclasses.replace(host_target(), bf16=False))
        assert name not in text(host_target("avx2"))
