"""Powers of magnitudes against extended precision, over every exponent of the base."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from saccade.backends.cpu.codegen import powers
from saccade.backends.cpu.codegen.calling import real_word
from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.target import host_target

CASES = [
    ("avx512", "float32", 16), ("avx2", "float32", 1), ("avx512", "float64", 8),
    ("avx2", "float64", 4), ("avx2", "float64", 1),
]  # fmt: skip
EXPONENTS = [2.5, 0.5, 1 / 3, -1.0, -0.25, 7.0, 1e-3, -300.0, 0.01]


@cache
def code(isa, element, lanes):
    target = host_target(isa)
    k = KernelBuilder("kernel", target)
    x, y = k.pointer("x", element), k.pointer("y", element)
    size, exponent = k.integer("size"), k.real("exponent")
    with k.range(0, size, lanes) as i:
        v = x.vec(i, lanes=lanes) if lanes > 1 else x.load(i)
        y.store(powers.power(k, v, exponent), i)
    return link([object_code(str(k.finish()), target)], ["kernel"])


def evaluate(case, x, exponent):
    y = np.zeros_like(x)
    bases = np.array([x.ctypes.data, y.ctypes.data], np.int64)
    words = [w for i, a in enumerate((x, y)) for w in (i, 0, a.nbytes)]
    args = np.array([*words, len(x), real_word(exponent)], np.int64)
    context = np.array([bases.ctypes.data, 0, 1, 0, 0, 1], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    call(code(*case).addresses["kernel"])(args.ctypes.data, context.ctypes.data)
    return y


def magnitudes(element, count=40_000):
    info = np.finfo(element)
    rng = np.random.default_rng(3)
    spread = np.exp2(rng.uniform(info.minexp - 20, info.maxexp, count // 2))
    return np.concatenate([spread, rng.uniform(0.1, 10, count // 2)]).astype(element)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_few_units_in_the_last_place(case, exponent):
    x = magnitudes(case[1])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        rounded = exact.astype(case[1])
        normal = np.isfinite(rounded) & (rounded >= np.finfo(case[1]).tiny)
        y = evaluate(case, x, exponent)
        error = np.abs(y.astype(np.longdouble) - exact) / np.spacing(np.where(normal, rounded, 1))
    assert error[normal].max() < 2 + abs(exponent) / 30
    assert np.array_equal(y[np.isinf(rounded)], rounded[np.isinf(rounded)])
    assert (y[rounded == 0] <= 2 * np.finfo(case[1]).smallest_subnormal).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_corners_as_in_c(case):
    x = np.array([0, np.inf, np.nan, 1] * 4, case[1])
    for exponent in (0.5, 3.0, -0.5, -2.0):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(
                evaluate(case, x, exponent), x ** case_type(case, exponent)
            )


def case_type(case, number):
    return np.dtype(case[1]).type(number)
