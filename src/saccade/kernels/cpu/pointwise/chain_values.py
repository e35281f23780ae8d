"""What a chain computes in: float32, int64 or float64 lanes, from elements of any type and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from saccade.backends.cpu.codegen.expressions import emit_expr
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec
from saccade.ir.expr import Expr
from saccade.kernels.cpu.pointwise.chain_integers import emit_integer_expr
from saccade.kernels.cpu.pointwise.double_elements import from_double, to_double
from saccade.kernels.cpu.pointwise.vector_elements import (
    from_float,
    from_integer,
    to_float,
    to_integer,
)

if TYPE_CHECKING:
    from saccade.kernels.cpu.pointwise.chain import ChainConfig

__all__ = ["computed", "widened"]


def widened(k: KernelBuilder, raw: Vec, element: str, arithmetic: str) -> Vec:
    """Elements of type `element` as lanes of the type that is computed in."""
    if arithmetic == "int64":
        return to_integer(k, raw, element)
    return to_double(k, raw, element) if arithmetic == "float64" else to_float(k, raw, element)


def computed(
    k: KernelBuilder, config: ChainConfig, expr: Expr, operands: Sequence[Vec], lanes: int
) -> Vec:
    """The results of an expression, as elements of the result's type."""
    element = config.elements[0]
    if config.arithmetic == "int64":
        value, source = emit_integer_expr(k, expr, operands, lanes, config.elements)
        return from_integer(k, value, element, source)
    if config.arithmetic == "float64":
        return from_double(k, emit_expr(k, expr, operands, lanes, "float64"), element)
    # What is stored says how coarse functions may be, and nothing of float64.
    stored = "float32" if element == "float64" else element
    return from_float(k, emit_expr(k, expr, operands, lanes, stored), element)
