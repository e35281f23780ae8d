"""Sigmoid and silu, which stand in the epilogues of whole networks: every instruction counts.

Both are quotients by `1 + e^-x`, with e^-x = 2^n · e^-r. Where one instruction looks 32 numbers up,
n counts 32nds and a polynomial of degree 2 is left of e^-r; elsewhere n is whole and the degree 5.
Operands are clamped to where 2^n is a float32, so that one product scales, fused with the sum.

    fine    within 4 ulp down to x = -18, 7 below
    coarse  for results that are rounded to bfloat16 at once: within 2^-12.5 of the result before
            that, 0.55 ulp of bfloat16 in all; lower degrees, and an estimate for the division

All saturate at |x| = 87: no special case for infinities. The results of one target are the same on
any number of lanes.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec, literal, vector_of

__all__ = ["sigmoid", "silu"]

_LOG2E = 1.4426950408889634
_LN2 = 0.6931471805599453
_RANGE = 87.0  # neither e^87 nor e^-87 leaves the normal numbers
_MAGIC = 12582912.0  # 1.5 · 2^23: adding it leaves a rounded integer in the low bits
_STEPS = 32  # powers of two in a table, between 1 and 2
# e^-r, relative errors of the least maximum; 1 for the first, so that sigmoid(0) is exact.
_WHOLE = (1.0, -0.999999702, 0.499991477, -0.166676536, 0.0418981761, -0.00828921795)
_WHOLE_COARSE = (1.0, -1.00019584, 0.50413038, -0.16517976)  # 1.0e-4
_STEP = (1.0, -1.00001464, 0.50000005)  # 5.3e-8


def sigmoid(k: KernelBuilder, x: Vec, *, coarse: bool = False) -> Vec:
    """1 / (1 + e^-x); some 2^-126 where it is smaller."""
    gate = _gate(k, k.maximum(x, -_RANGE), coarse)
    return k.reciprocal_estimate(gate) if _estimates(k, coarse) else 1.0 / gate


def silu(k: KernelBuilder, x: Vec, *, coarse: bool = False) -> Vec:
    """X · sigmoid(x), with one division; some -2^-119 where it is closer to 0, as at -∞."""
    x = k.maximum(x, -_RANGE)
    gate = _gate(k, x, coarse)
    return x * k.reciprocal_estimate(gate) if _estimates(k, coarse) else x / gate


def _estimates(k: KernelBuilder, coarse: bool) -> bool:
    return coarse and k.target.estimates_reciprocals


def _gate(k: KernelBuilder, x: Vec, coarse: bool) -> Vec:
    """1 + e^-x for x ≥ -87.

    One constant for ln 2 costs 2 ulp of e^-x at -69, where it is 1e30.
    """
    x = k.minimum(x, _RANGE)
    steps = _STEPS if k.target.looks_up else 1
    # With 127 on top the low bits, but for those of the table, are the exponent of a float32.
    shift = _MAGIC + 127 * steps
    shifted = k.fma(x, x.like(-_LOG2E * steps), x.like(shift))
    n = shifted - shift
    if steps == 1:
        bits = _shifted_left(k, shifted, 23)
        rest = _polynomial(k, x, n, _WHOLE_COARSE if coarse else _WHOLE, _LN2)
    else:
        bits = k.b.add(_shifted_left(k, shifted, 18), _fractions(k, shifted))
        if coarse:  # 1 - r, with one product less
            rest = k.fma(n, n.like(-_LN2 / steps), 1.0 - x)
        else:
            rest = _polynomial(k, x, n, _STEP, _LN2 / steps)
    return k.fma(rest, Vec(k.b, k.b.bitcast(bits, x.type)), x.like(1.0))


def _polynomial(
    k: KernelBuilder, x: Vec, n: Vec, coefficients: tuple[float, ...], step: float
) -> Vec:
    """Of r = x + n · step."""
    r = k.fma(n, n.like(step), x)
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = k.fma(total, r, x.like(c))
    return total


def _integers(k: KernelBuilder, v: Vec) -> Any:  # noqa: ANN401
    return k.b.bitcast(v.value, vector_of(llvm.I32, v.lanes))


def _shifted_left(k: KernelBuilder, v: Vec, by: int) -> Any:  # noqa: ANN401
    return k.b.shl(_integers(k, v), literal(vector_of(llvm.I32, v.lanes), by))


def _fractions(k: KernelBuilder, shifted: Vec) -> Any:  # noqa: ANN401
    """Bits of 2^(j/32) less those that j itself leaves, j being the low bits of `shifted`."""
    return k.look_up(Vec(k.b, _integers(k, shifted)), _table()).value


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    powers = (struct.pack("<f", 2.0 ** (j / _STEPS)) for j in range(_STEPS))
    exact = [int.from_bytes(power, "little") for power in powers]
    return tuple(bits - 0x3F800000 - (j << 18) for j, bits in enumerate(exact))
