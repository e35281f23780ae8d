"""The gradient of a p-norm, element by element: dx = shape(x) · factor, one factor per result.

    rule      p        shape(x)                       factor
    l1        1        sgn(x)                         g
    l2        2        x                              g / n, 0 where n = 0
    l3        3        x |x|                          g / n², 0 where n = 0
    above     p > 1    sgn(x) |x|^(p-1)               g / n^(p-1), 0 where n = 0
    below     p < 1    sgn(x) |x|^(p-1), 0 at x = 0   g · n^(1-p)
    extreme   ±∞       sgn(x) where |x| = n, else 0   g / ties; in `gradient_integers`

A product with 0 stands where PyTorch has one, so that infinite and NaN gradients come out alike.
"""

from __future__ import annotations

from saccade.backends.cpu.codegen import math, powers
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec

__all__ = ["factor", "rule_of", "shape"]


def rule_of(p: float) -> str:
    """The rule for a power other than 0."""
    if abs(p) == float("inf"):
        return "extreme"
    # Small whole powers are products, which take far less than `powers.power`.
    return {1.0: "l1", 2.0: "l2", 3.0: "l3"}.get(p, "below" if p < 1 else "above")


def shape(k: KernelBuilder, rule: str, x: Vec, exponent: Vec | None) -> Vec:
    """What is multiplied by the factor; `exponent` is p - 1, a float64 scalar."""
    if rule == "l2":
        return x
    if rule == "l3":
        return x * math.absolute(k, x)
    if rule in ("above", "below"):
        assert exponent is not None
        power = powers.power(k, math.absolute(k, x), exponent)
        signed = math.copysign(k, power, x)
        # 0 to a negative power would be infinite.
        return signed if rule == "above" else x.compare("==", 0.0).select(x.like(0.0), signed)
    return _sign(x)


def _sign(x: Vec) -> Vec:
    """-1, 0 or 1; 0 for NaN."""
    negative = x.compare("<", 0.0).select(x.like(-1.0), x.like(0.0))
    return x.compare(">", 0.0).select(x.like(1.0), negative)


def factor(k: KernelBuilder, rule: str, grad: Vec, norm: Vec, exponent: Vec | None) -> Vec:
    """The factor of rules that need one computed; `exponent` is |p - 1|."""
    if rule == "l2":
        return norm.compare("==", 0.0).select(grad * 0.0, grad / norm)
    if rule == "below":
        assert exponent is not None
        return grad * powers.power(k, norm, exponent)
    if rule == "l3":
        power = norm * norm
    else:
        assert exponent is not None
        power = powers.power(k, norm, exponent)
    return norm.compare("==", 0.0).select(grad.like(0.0), grad / power)
