"""Activations that nodes name in an attribute, and forms that several operators have."""

from __future__ import annotations

import math
from collections.abc import Sequence

from saccade.ir import Expr
from saccade.ir.expr import apply, arg, const

__all__ = ["activation", "gelu_tanh", "swish"]


def gelu_tanh(x: Expr) -> Expr:
    """The standard's tanh form of GELU, its constants included."""
    cube = apply("mul", apply("mul", x, apply("mul", x, x)), const(0.044715))
    inner = apply("mul", apply("add", x, cube), const(math.sqrt(2 / math.pi)))
    half = apply("mul", x, const(0.5))
    return apply("mul", half, apply("add", apply("tanh", inner), const(1)))


def swish(x: Expr, alpha: float) -> Expr:
    """`x · sigmoid(alpha · x)`."""
    if alpha == 1:
        return apply("silu", x)
    return apply("mul", x, apply("sigmoid", apply("mul", x, const(alpha))))


def activation(name: str, numbers: Sequence[float]) -> Expr:
    """What an activation does to `$0`.

    Args:
        name: In lower case, as ONNX calls it.
        numbers: Its alpha, beta and gamma, as many as it has.
    """
    x = arg(0)
    parameters = [const(number) for number in numbers]
    match name:
        case "affine":
            return apply("add", apply("mul", x, parameters[0]), parameters[1])
        case "leakyrelu":
            return apply("leaky_relu", x, parameters[0])
        case "thresholdedrelu":
            return apply("where", apply("less", x, parameters[0]), const(0), x)
        case "scaledtanh":
            return apply("mul", parameters[0], apply("tanh", apply("mul", parameters[1], x)))
        case "hardsigmoid":
            return apply("hard_sigmoid", x, *parameters)
        case "elu":
            return apply("elu", x, parameters[0])
        case "selu":
            return apply("mul", apply("elu", x, parameters[0]), parameters[1])
        case "clip":
            return apply("clip", x, *parameters)
    return apply(name, x)
