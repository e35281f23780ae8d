"""Every function against float64 over dense ranges and at the corners of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest

from saccade.backends.cpu.codegen import gates

WIDTHS = [("avx512", 16), ("avx512", 8), ("avx512", 1), ("avx2", 8), ("avx2", 4), ("avx2", 1)]
CORNERS = np.array(
    [
        0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38, -1.1754942e-38,
        1.17549435e-38, 3.4028235e38, -3.4028235e38, 1e-20, -1e-20, 88.72283, 88.72284, -87.33655,
        -103.97, -104.0, 0.5, -0.5, 1.5, 2.5, -2.5, 8388607.5, 8388609.0, 1e10, -1e10, 0.9277,
        0.41421354,
    ],
    np.float32,
)  # fmt: skip


def dense(low, high, count=200_003):
    rng = np.random.default_rng(7)
    return np.concatenate([np.linspace(low, high, count), rng.uniform(low, high, 9973)]).astype(
        np.float32
    )


def spread(count=200_003):
    """Every exponent, both signs."""
    bits = np.linspace(0x00000001, 0x7F7FFFFF, count).astype(np.uint32)
    magnitudes = bits.view(np.float32)
    return np.concatenate([magnitudes, -magnitudes])


def ulps(actual, exact):
    """Distance in units of the last place of float32; NaN is no distance from NaN."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(
            np.maximum(np.abs(np.nan_to_num(rounded, posinf=3.4e38, neginf=3.4e38)), 1e-45)
        )
        distance = np.abs(actual.astype(np.float64) - exact) / unit.astype(np.float64)
    same = (np.isnan(actual) & np.isnan(exact)) | (actual == rounded)
    return np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _log1p_exp(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS = {
    # name: reference, ranges, largest distance in ulp
    "exp": (np.exp, [(-105, 89.5), (-1, 1)], 2),
    "log": (np.log, [(1e-3, 10), (0.5, 1.5), (0, 1e6)], 2),
    "tanh": (np.tanh, [(-10, 10), (-0.1, 0.1)], 4),
    "erf": (_erf, [(-4.5, 4.5), (-0.1, 0.1)], 2),
    "softplus": (_log1p_exp, [(-80, 80), (-2, 2)], 4),
    "sin": (np.sin, [(-7, 7), (-1e5, 1e5), (-1e9, 1e9)], 2),
    "cos": (np.cos, [(-7, 7), (-1e5, 1e5), (-1e9, 1e9)], 2),
    "sqrt": (np.sqrt, [(0, 100)], 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [(0, 100)], 1.5),
    "reciprocal": (lambda x: 1 / x, [(-100, 100)], 0.51),
    "floor": (np.floor, [(-10, 10)], 0),
    "ceil": (np.ceil, [(-10, 10)], 0),
    "round": (np.rint, [(-10, 10)], 0),
    "abs": (np.abs, [(-10, 10)], 0),
    "neg": (np.negative, [(-10, 10)], 0),
    "sign": (np.sign, [(-10, 10)], 0),
    "relu": (lambda x: np.maximum(x, 0), [(-10, 10)], 0),
    "softsign": (lambda x: x / (1 + np.abs(x)), [(-100, 100)], 2),
    "isnan": (np.isnan, [(-1, 1)], 0),
    "not": (lambda x: x == 0, [(-1, 1)], 0),
}


def _check(evaluate, name, x, *, isa, lanes):
    reference, _, limit = FUNCTIONS[name]
    actual = evaluate(f"{name}($0)", x, isa=isa, lanes=lanes)
    with np.errstate(all="ignore"):
        exact = np.asarray(reference(x.astype(np.float64)), np.float64)
    distance = ulps(actual, exact)
    worst = int(np.argmax(distance))
    assert distance[worst] <= limit, (x[worst], actual[worst], exact[worst], distance[worst])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("isa", "lanes"), [("avx512", 16), ("avx2", 8)])
def test_ulp(evaluate, name, isa, lanes):
    _, ranges, _ = FUNCTIONS[name]
    for low, high in ranges:
        _check(evaluate, name, dense(low, high), isa=isa, lanes=lanes)
    _check(evaluate, name, spread(), isa=isa, lanes=lanes)
    _check(evaluate, name, CORNERS, isa=isa, lanes=lanes)


@pytest.mark.parametrize(
    "name", sorted({*FUNCTIONS, "sigmoid", "silu", "gelu", "mish", "hardswish"})
)
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_a_vector_equals_its_lanes_alone(evaluate, name, isa):
    x = np.concatenate([CORNERS, dense(-20, 20, 1001), spread(1001)])
    whole = evaluate(f"{name}($0)", x, isa=isa)
    for lanes in (1, 4, 8, 16, 64):
        # Subnormal results may round twice where a width has no scaling instruction.
        np.testing.assert_allclose(
            evaluate(f"{name}($0)", x, isa=isa, lanes=lanes), whole, rtol=1e-6, atol=3e-45
        )


def _relative(x):
    return np.abs(x) + 1e-30


ABSOLUTE = {
    # Decaying tails: the error is held against the size of the operand, or flushed below 1e-35.
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: 1 / (1 + np.exp(-x)) + 1e-30, 3),
    "silu": (lambda x: x / (1 + np.exp(-x)), lambda x: np.abs(x / (1 + np.exp(-x))) + 1e-28, 4),
    "gelu": (lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), _relative, 2),
    "mish": (
        lambda x: x * np.tanh(_log1p_exp(x)),
        lambda x: np.abs(x * np.tanh(_log1p_exp(x))) + 1e-28,
        6,
    ),
    "hardswish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), _relative, 2),
}


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize(("isa", "lanes"), WIDTHS)
def test_activations(evaluate, name, isa, lanes):
    reference, size, limit = ABSOLUTE[name]
    for x in (dense(-30, 30, 20_001), dense(-120, 120, 20_001), spread(20_001), CORNERS):
        actual = evaluate(f"{name}($0)", x, isa=isa, lanes=lanes).astype(np.float64)
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            exact = reference(wide)
            error = np.abs(actual - exact) / size(wide) / np.finfo(np.float32).eps
        error = np.where((np.isnan(actual) & np.isnan(exact)) | (actual == exact), 0, error)
        # -inf · 0 is NaN in a formula with a product, but 0 in one with a quotient.
        error = np.where(np.isneginf(wide), 0, error)
        worst = int(np.argmax(error))
        assert error[worst] <= limit, (x[worst], actual[worst], exact[worst], error[worst])


GATES = {"sigmoid": np.ones_like, "silu": lambda x: x}


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_gates_in_ulp(evaluate, name, isa):
    for low, high, limit in ((-69, -18, 7), (-18, 120, 4), (-1, 1, 4)):
        x = dense(low, high)
        wide = x.astype(np.float64)
        distance = ulps(
            evaluate(f"{name}($0)", x, isa=isa), GATES[name](wide) / (1 + np.exp(-wide))
        )
        worst = int(np.argmax(distance))
        assert distance[worst] <= limit, (x[worst], distance[worst])


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_gates_are_the_same_on_any_number_of_lanes(evaluate, name, isa, stored):
    x = np.concatenate([CORNERS, dense(-120, 120, 20_001), spread(20_001)])
    whole = evaluate(f"{name}($0)", x, isa=isa, stored=stored)
    for lanes in (1, 4, 8, 16, 32, 64):
        part = evaluate(f"{name}($0)", x, isa=isa, lanes=lanes, stored=stored)
        np.testing.assert_array_equal(part, whole)


def _every_bfloat16():
    """All of them as float32, but NaN."""
    x = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    return x[~np.isnan(x)]


def _coarse_errors(evaluate, name, isa, x):
    """Of what is to be rounded to bfloat16, relative to the result or to what is left of 0."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        exact = GATES[name](wide) / (1 + np.exp(-wide))
    exact[np.isneginf(x)] = 0.0
    actual = evaluate(f"{name}($0)", x, isa=isa, stored="bfloat16").astype(np.float64)
    same = actual == exact
    with np.errstate(invalid="ignore"):
        error = np.abs(actual - exact) / np.maximum(np.abs(exact), 2.0**-106)
    return np.where(same, 0.0, error)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_gates_that_are_rounded_to_bfloat16(evaluate, name, isa):
    """Of every bfloat16, and of what lies between them."""
    normal = _every_bfloat16()
    normal = normal[np.abs(normal) > 1e-37]
    for x in (normal, dense(-86, 86)):
        error = _coarse_errors(evaluate, name, isa, x)
        worst = int(np.argmax(error))
        assert error[worst] <= 2.0**-12.5, (x[worst], error[worst])


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_a_mistake_in_coarse_gates_is_caught(evaluate, isa, monkeypatch):
    right = gates._table()
    wrong = tuple(c * (1 + 0.002 * (i > 0)) for i, c in enumerate(gates._WHOLE_COARSE))
    monkeypatch.setattr(gates, "_WHOLE_COARSE", wrong)
    monkeypatch.setattr(gates, "_table", lambda: (0, *right[:-1]))

    def mutant(text, *operands, **how):
        return evaluate(text.replace("$0", "add($0, 0.0)"), *operands, **how)  # code of its own

    assert _coarse_errors(mutant, "silu", isa, dense(-20, 20, 20_001)).max() > 2.0**-12.5


@pytest.mark.parametrize(("isa", "lanes"), WIDTHS)
def test_gates_at_the_ends(evaluate, isa, lanes):
    """Saturated, not NaN, at the infinities and whatever else is out of range; NaN stays."""
    far = np.float32([-np.inf, -3.4028235e38, -1e30, -1e8, -200, -88, -87.5])
    quiet = np.array([0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7FFFFFFF], np.uint32).view(np.float32)
    tiny = np.float32([0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39])
    for name, least in (("sigmoid", 2.0**-125), ("silu", 2.0**-119)):
        text = f"{name}($0)"
        assert np.abs(evaluate(text, far, isa=isa, lanes=lanes)).max() <= least
        top = np.ones_like(far) if name == "sigmoid" else -far
        np.testing.assert_array_equal(evaluate(text, -far, isa=isa, lanes=lanes), top)
        assert np.isnan(evaluate(text, quiet, isa=isa, lanes=lanes)).all()
        middle = tiny * 0 + np.float32(0.5) if name == "sigmoid" else tiny / 2
        result = evaluate(text, tiny, isa=isa, lanes=lanes)
        np.testing.assert_array_equal(result, middle)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(middle))


@pytest.mark.parametrize(("isa", "lanes"), WIDTHS)
def test_elu_and_hard_sigmoid(evaluate, isa, lanes):
    x = np.concatenate([dense(-20, 20, 20_001), np.float32([0, -0.0, -1e-20, 1e30, -1e30])])
    wide = x.astype(np.float64)
    exact = np.where(x < 0, 0.7 * np.expm1(np.minimum(wide, 0)), wide)
    assert ulps(evaluate("elu($0, 0.7)", x, isa=isa, lanes=lanes), exact).max() <= 4
    exact = np.clip(0.2 * wide + 0.5, 0, 1)
    actual = evaluate("hard_sigmoid($0, 0.2, 0.5)", x, isa=isa, lanes=lanes)
    assert np.abs(actual - exact).max() <= 3e-7


def _grid():
    values = np.concatenate(
        [CORNERS, np.float32([2, -2, 3, -3, 4, 1e-3, 7.25, -7.25, 1023, 0.3, 65536])]
    )
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


@pytest.mark.parametrize(("isa", "lanes"), WIDTHS)
def test_pow(evaluate, isa, lanes):
    rng = np.random.default_rng(3)
    a, b = _grid()
    x = np.concatenate(
        [a, np.exp(rng.uniform(-80, 80, 20_000)).astype(np.float32), rng.uniform(0.9, 1.1, 5000)]
    )
    y = np.concatenate([b, rng.uniform(-5, 5, 20_000), rng.uniform(-900, 900, 5000)])
    x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    distance = ulps(evaluate("pow($0, $1)", x, y, isa=isa, lanes=lanes), exact)
    worst = int(np.argmax(distance))
    assert distance[worst] <= 2, (x[worst], y[worst], exact[worst])


@pytest.mark.parametrize(("isa", "lanes"), WIDTHS)
@pytest.mark.parametrize("name", ["fmod", "mod"])
def test_remainders(evaluate, name, isa, lanes):
    rng = np.random.default_rng(4)
    a, b = _grid()
    x = np.concatenate([a, rng.uniform(-100, 100, 5000), np.exp2(rng.uniform(-140, 127, 5000))])
    y = np.concatenate([b, rng.uniform(-5, 5, 5000), np.exp2(rng.uniform(-140, 127, 5000))])
    x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.fmod(x, y)
        if name == "mod":
            exact = np.where(exact * np.sign(y) < 0, exact + y, exact)
    np.testing.assert_array_equal(evaluate(f"{name}($0, $1)", x, y, isa=isa, lanes=lanes), exact)


def test_huge_sines_are_reduced_exactly(evaluate):
    # NumPy's float64 sine reduces exactly, whatever the size of its operand.
    x = np.concatenate([spread(20_001), np.float32([16367173 * 2.0**72, 1e30, 1e38, 2.0**104])])
    for isa in ("avx512", "avx2"):
        assert ulps(evaluate("sin($0)", x, isa=isa), np.sin(x.astype(np.float64))).max() <= 2


def test_the_measure_has_teeth(evaluate):
    x = dense(-5, 5, 1001)
    exact = np.exp(x.astype(np.float64))
    assert ulps(evaluate("exp($0)", x) * np.float32(1 + 1e-6), exact).max() > 4
    assert ulps(np.float32([np.nan]), np.float64([1.0])) == np.inf
    assert ulps(np.float32([0.0]), np.float64([1e-40])) > 4
