"""Loads and stores of every floating-point element, whole vectors and tails."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec
from saccade.backends.cpu.runtime.linker import link
from saccade.kernels.cpu.floats import lanes_of, load, load_one, splat, store, wide
from saccade.testing.targets import runnable_target

NUMPY = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def run(isa, emit, arrays, integers=()):
    target = runnable_target(isa)
    k = KernelBuilder("kernel", target)
    emit(k)
    linked = link([object_code(str(k.finish()), target)], ["kernel"])
    words = [w for i, a in enumerate(arrays) for w in (i, 0, a.nbytes)]
    bases = np.array([a.ctypes.data for a in arrays], np.int64)
    fault = np.zeros(3, np.int64)
    args = np.array([*words, *integers], np.int64)
    context = np.array([bases.ctypes.data, 0, 1, 0, fault.ctypes.data, 1], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    call(linked.addresses["kernel"])(args.ctypes.data, context.ctypes.data)


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("source", "result"),
    [(a, b) for a in NUMPY for b in NUMPY if a != "float64" or NUMPY[b](0).itemsize >= 4],
)
@pytest.mark.parametrize("count", [1, 7, 16, 29])
def test_conversions_round_once(isa, source, result, count):
    element = wide(source, result)

    def emit(k):
        x, y, first = (
            k.pointer("x", source), k.pointer("y", result), k.pointer("first", result),
        )  # fmt: skip
        n = k.integer("n")
        lanes = lanes_of(k, element)
        with k.range(0, n, lanes) as i:
            mask = k.first(n - i, lanes)
            store(k, y, load(k, x, i, lanes, element, mask), i, mask)
        store(k, first, splat(k, x, n - 1, lanes, element), 0)
        store(k, first, load_one(k, x, 0, element), 0)

    rng = np.random.default_rng(count)
    x = (rng.standard_normal(count) * 300).astype(NUMPY[source])
    y = np.full(count + 2, 9, NUMPY[result])
    first = np.zeros(16, NUMPY[result])
    run(isa, emit, [x, y, first], [count])
    want = x.astype(NUMPY[element]).astype(NUMPY[result])
    assert y[:count].tobytes() == want.tobytes()
    assert (y[count:] == 9).all()
    assert first[0] == want[0]
    assert first[1] == want[-1]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_numbers_between_integers_and_lanes(isa):
    def emit(k):
        x, out = k.pointer("x"), k.pointer("out", "int64")
        scale = k.real("scale")
        vector = x.vec(0, lanes=8)
        bits = k.mask_bits(vector.compare(">", 0.0))
        left = k.var(bits)
        rounds = k.var(0)
        with k.repeat_while(lambda: left.get().differs(0)):
            lowest = k.count_trailing_zeros(left.get())
            out.store(as_vec(k, lowest), rounds.get())
            left.set(left.get() & (left.get() - 1))
            rounds.set(rounds.get() + 1)
        out.store(as_vec(k, rounds.get()), 8)
        real = k.convert(scale, "float32") * k.to_real(k.int(3))
        out.store(as_vec(k, k.to_int(real)), 9)
        out.store(as_vec(k, ((k.int(5) << 2) | 1) ^ (k.int(64) >> 3)), 10)

    x = np.array([1, -1, 0, 3, np.nan, -4, 5, 6], np.float32)
    out = np.zeros(11, np.int64)
    run(isa, emit, [x, out], [real_word(-2.5)])
    assert out.tolist() == [0, 3, 6, 7, 0, 0, 0, 0, 4, -7, (5 << 2 | 1) ^ 8]


def as_vec(k, integer):
    """What `store` takes."""
    return Vec(k.b, integer.value)
