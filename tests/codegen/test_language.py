from __future__ import annotations

import ctypes

import numpy as np
import pytest

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.codegen.compile import assembly, object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.llvm import ELEMENTS
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.target import host_target
from saccade.errors import CompileError, OptionError

ISAS = ["avx512", "avx2"]


def run(emit, arrays, integers=(), *, isa="native", checked=False, thread=0, threads=1, scratch=0):
    """Emit, compile, call once; arrays are the pointers in order, `scratch` bytes come last."""
    k = KernelBuilder("kernel", host_target(isa), checked=checked)
    emit(k)
    linked = link([object_code(str(k.finish()), k.target)], ["kernel"])
    held = [*arrays, *([np.zeros(scratch * threads, np.uint8)] if scratch else [])]
    words = [w for i, a in enumerate(held) for w in (i, 0, a.nbytes)]
    if scratch:
        words[-1] = scratch
    bases = np.array([a.ctypes.data for a in held], np.int64)
    counters, fault = np.zeros(threads * COUNTER_WORDS, np.int64), np.zeros(3, np.int64)
    args = np.array([*words, *integers], np.int64)
    words = (bases.ctypes.data, counters.ctypes.data, threads, thread, fault.ctypes.data)
    context = np.array([*words, 1], np.int64)
    address = linked.addresses["kernel"]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(
        args.ctypes.data, context.ctypes.data
    )
    return k, fault


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [0, 1, 7, 16, 33])
def test_masked_copy_of_every_element(isa, size):
    for element in ("float32", "float16", "int64", "int32", "int16", "int8", "uint8"):

        def emit(k, element=element):
            x, y, n = k.pointer("x", element), k.pointer("y", element), k.integer("n")
            with k.range(0, n, k.lanes) as i:
                mask = k.first(n - i)
                y.store(x.vec(i, mask), i, mask)

        x = (np.arange(48) % 100).astype(element)
        y = np.zeros(48, element)
        for checked in (False, True):
            y[:] = 77
            _, fault = run(emit, [x[: size or 1], y[: size or 1]], [size], isa=isa, checked=checked)
            assert fault[0] == 0
            np.testing.assert_array_equal(y[:size], x[:size])
            assert (y[size:] == 77).all()


@pytest.mark.parametrize("isa", ISAS)
def test_integers_and_conditions(isa):
    def emit(k):
        y = k.pointer("y", "int64")
        a, b = k.integers("a b")
        results = [
            a + b, a - b, 3 * a, a // b, a % b, -a, 100 - a, (a < b).select(a, b),
            k.minimum_int(a, 5), k.maximum_int(a, b), ((a > 5) & (b > 5)).select(1, 0),
            ((a > 5) | (b > 5)).select(1, 0), (~(a >= b)).select(1, 0), a.equals(17).select(1, 0),
            a.differs(17).select(1, 0),
        ]  # fmt: skip
        for i, value in enumerate(results):
            k.b.store(value.value, k._address(y, i, 1))

    y = np.zeros(15, np.int64)
    run(emit, [y], [17, 5], isa=isa)
    assert y.tolist() == [22, 12, 51, 3, 2, -17, 83, 5, 5, 17, 0, 1, 0, 1, 0]


def test_control_flow():
    def emit(k):
        y, n = k.pointer("y"), k.integer("n")
        total = k.var(0)
        with k.range(0, n) as i:
            with k.when((i % 2).equals(0)):
                total.set(total.get() + i)
            with k.when_else(i < 3) as (then, other):
                with then:
                    y.store(k.number(1.0, 1), i)
                with other:
                    y.store(k.number(2.0, 1), i)
        with k.range(5, 5):
            y.store(k.number(9.0, 1), 0)
        y.store(k.number(3.0, 1), total.get())

    y = np.zeros(20, np.float32)
    run(emit, [y], [8])
    assert y.tolist() == [1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0, 0, 3, *[0] * 7]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("element", ["float32", "int32", "float64"])
def test_lanes_in_any_order(isa, element):
    """Of one register and of two; higher bits of an index do not count."""
    itemsize = np.dtype(element).itemsize
    lanes = host_target(isa).lanes * 4 // itemsize
    if not host_target(isa).permutes(itemsize):
        pytest.skip("not on this target")

    def emit(k):
        x, y, index = k.pointer("x", element), k.pointer("y", element), k.pointer("i", "int32")
        order = index.vec(0, None, lanes)
        first, second = x.vec(0, None, lanes), x.vec(lanes, None, lanes)
        y.store(k.permuted(order, first), 0)
        y.store(k.permuted(order, first, second), lanes)

    x, y = (100 - np.arange(2 * lanes)).astype(element), np.zeros(2 * lanes, element)
    index = (np.arange(lanes) * 7 + 3 + 64 * (np.arange(lanes) % 2)).astype(np.int32)
    run(emit, [x, y, index], isa=isa)
    assert y[:lanes].tolist() == x[index % lanes].tolist()
    assert y[lanes:].tolist() == x[index % (2 * lanes)].tolist()


def test_chunks_are_shared_by_claim():
    def emit(k):
        y, n = k.pointer("y"), k.integer("n")
        with k.chunks(n) as c:
            y.store(y.load(c) + 1.0, c)

    y = np.zeros(10, np.float32)
    for thread in (2, 0, 1):
        run(emit, [y], [10], thread=thread, threads=3)
        if thread == 2:
            assert y.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert (y == 1).all()


def test_scratch_belongs_to_a_thread():
    def emit(k):
        y, s = k.pointer("y"), k.scratch("s")
        s.store(k.number(5.0, 1), 3)
        y.store(s.load(3), k.thread)

    y = np.zeros(4, np.float32)
    _, fault = run(emit, [y], thread=2, threads=4, scratch=16, checked=True)
    assert fault[0] == 0
    assert y.tolist() == [0, 0, 5, 0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("at", "bad"), [(0, False), (8, False), (9, True), (-1, True), (2**40, True)]
)
def test_checked_accesses(isa, at, bad):
    def emit(k):
        x, y, at = k.pointer("x"), k.pointer("y"), k.integer("at")
        y.store(x.vec(at, lanes=8))

    x, y = np.arange(16, dtype=np.float32), np.zeros(8, np.float32)
    k, fault = run(emit, [x, y], [at], isa=isa, checked=True)
    assert bool(fault[0]) == bad
    if bad:
        assert k.accesses[fault[0] - 1] == "x"
        assert fault[1:].tolist() == [at, 16]
        assert (y == 0).all()


@pytest.mark.parametrize(("at", "extent", "bad"), [(8, 8, False), (9, 8, True), (9, 0, False)])
def test_a_range_is_checked_once(at, extent, bad):
    def emit(k):
        x, y, at, extent = (k.pointer("x"), k.pointer("y"), *k.integers("at extent"))
        run_of = (x + at).within(extent)
        for i in range(4):
            y.store(run_of.load(i), i)

    x, y = np.arange(16, dtype=np.float32), np.zeros(8, np.float32)
    k, fault = run(emit, [x, y], [at, extent], checked=True)
    assert k.accesses.count("x") == 1
    assert bool(fault[0]) == bad
    if bad:
        assert fault[1:].tolist() == [at, 16]
        assert (y == 0).all()
    else:
        assert y[:4].tolist() == x[at : at + 4].tolist()


def test_vectors():
    def emit(k):
        x, y = k.pointer("x"), k.pointer("y")
        v = x.vec(0)
        flipped = k.shuffle(v, v, range(k.lanes - 1, -1, -1))
        y.store(flipped)
        results = [
            k.sum_lanes(v), k.extract(v, 3), k.extract(k.insert(v, x.load(9), 2), 2),
            k.extract(k.maximum(v, 4.5), 1), k.extract(k.minimum(v, 4.5), 7), x.load(2) + 1.0,
            1.0 - x.load(2), 2.0 / x.load(2), -x.load(2), k.fma(x.load(2), x.load(3), x.load(1)),
        ]  # fmt: skip
        for i, value in enumerate(results):
            assert value.lanes == 1
            y.store(value, 32 + i)
        with k.when(k.thread.equals(0)):
            k.prefetch(x, 1 << 40)
            k.prefetch(y, 1 << 40, 2, write=True)

    for isa in ISAS:
        lanes = host_target(isa).lanes
        x, y = np.arange(16, dtype=np.float32), np.zeros(48, np.float32)
        run(emit, [x, y], isa=isa)
        assert y[:lanes].tolist() == list(range(lanes - 1, -1, -1))
        total = lanes * (lanes - 1) / 2
        assert y[32:42].tolist() == [total, 3, 9, 4.5, 4.5, 3, -1, 1, -2, 7]


def test_nan_stays_in_the_first_operand_of_extrema():
    def emit(k):
        x, y = k.pointer("x"), k.pointer("y")
        y.store(k.maximum(x.vec(), 1.0))
        y.store(k.minimum(x.vec(), 1.0), 16)

    for isa in ISAS:
        x, y = np.full(16, np.nan, np.float32), np.zeros(32, np.float32)
        run(emit, [x, y], isa=isa)
        lanes = host_target(isa).lanes
        assert np.isnan(y[:lanes]).all()
        assert np.isnan(y[16 : 16 + lanes]).all()


def test_extrema_are_one_instruction():
    """The order of operands lets the target's instruction do what the language promises for NaN."""
    for isa in ISAS:
        k = KernelBuilder("kernel", host_target(isa))
        x, y = k.pointer("x"), k.pointer("y")
        y.store(k.minimum(k.maximum(x.vec(), -1.0), 1.0))
        text = assembly(str(k.finish()), k.target)
        assert "vmaxps" in text
        assert "vminps" in text
        assert "vcmp" not in text


@pytest.mark.parametrize("element", ELEMENTS)
def test_elements_have_sizes(element):
    """Each is read where it lies; the one of which a byte is missing may not be."""
    size = 2 if element == "bfloat16" else np.dtype(element).itemsize

    def emit(k):
        x, y, at = k.pointer("x", element), k.pointer("y", element), k.integer("at")
        y.store(x.load(at))

    x, y = np.arange(1, 4 * size, dtype=np.uint8), np.zeros(size, np.uint8)
    for at in range(3):
        _, fault = run(emit, [x, y], [at], checked=True)
        assert fault[0] == 0
        np.testing.assert_array_equal(y, x[at * size : (at + 1) * size])
    _, fault = run(emit, [x, y], [3], checked=True)
    assert fault[0]


def test_broken_code_is_a_compile_error():
    with pytest.raises(CompileError, match="not valid"):
        object_code("define void @kernel( {", host_target())


def test_unknown_instruction_sets():
    with pytest.raises(OptionError, match="sse"):
        host_target("sse")
