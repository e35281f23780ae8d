"""The GELU family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._activations import gelu_tanh, swish
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.importers.contrib._forms import only
from saccade.frontend.onnx.importers.matrix import multiplied
from saccade.frontend.onnx.moves import move, slice_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Expr, Value
from saccade.ir.expr import apply

__all__ = [
    "import_bias_add",
    "import_bias_gelu",
    "import_bias_split_gelu",
    "import_fast_gelu",
    "import_gelu",
    "import_gemm_fast_gelu",
    "import_quick_gelu",
]

_GELU = partial(apply, "gelu")


def _of_sum(call: OnnxNode, operands: Sequence[Value], make: Callable[[Expr], Expr]) -> Value:
    """A function of the sum of operands."""
    return pointwise(
        call, lambda *parts: make(reduce(partial(apply, "add"), parts)), operands, operands[0].dtype
    )


def _given(call: OnnxNode) -> list[Value]:
    return [call.value(index) for index in range(len(call.operands)) if call.has(index)]


def import_gelu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.Gelu 1: by the error function."""
    only(call, inputs=1)
    return [_of_sum(call, [call.value(0)], _GELU)]


def import_bias_gelu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.BiasGelu 1: Gelu of a sum."""
    only(call, inputs=2)
    return [_of_sum(call, [call.value(0), call.value(1)], _GELU)]


def import_fast_gelu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.FastGelu 1: the tanh form, of a sum or not."""
    only(call, inputs=2)
    return [_of_sum(call, _given(call), gelu_tanh)]


def import_gemm_fast_gelu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.GemmFastGelu 1: FastGelu of a product."""
    only(call, inputs=3)
    y = multiplied(call, call.value(0), call.value(1))
    return [_of_sum(call, [y, *_given(call)[2:]], gelu_tanh)]


def import_quick_gelu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QuickGelu 1: `x · sigmoid(alpha · x)`."""
    only(call, "alpha", inputs=1)
    alpha = call.finite("alpha", 1.702)
    return [pointwise(call, lambda x: swish(x, alpha), [call.value(0)])]


def import_bias_add(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.BiasAdd 1: a sum of three."""
    only(call, inputs=3)
    return [_of_sum(call, [call.value(index) for index in range(3)], lambda e: e)]


def import_bias_split_gelu(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.BiasSplitGelu 1: a sum's first half times Gelu of its second one."""
    only(call, inputs=2)
    x, bias = call.value(0), call.value(1)
    size = x.shape[-1] if x.rank else None
    if not isinstance(size, int):
        raise Refusal("halves of an axis that varies")
    if size % 2 or bias.shape != (size,):
        raise call.broken(f"halves of {list(x.shape)} with a bias {list(bias.shape)}")
    half = size // 2
    parts = [
        move(call, value, slice_map(value.shape, {value.rank - 1: (start, half, 1)}))
        for start in (0, half)
        for value in (x, bias)
    ]

    def make(left: Expr, left_bias: Expr, right: Expr, right_bias: Expr) -> Expr:
        gate = apply("gelu", apply("add", right, right_bias))
        return apply("mul", apply("add", left, left_bias), gate)

    return [pointwise(call, make, parts, x.dtype)]
