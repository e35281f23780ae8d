"""Convolutions and products with what ONNX Runtime's optimiser has put into them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._activations import activation
from saccade.frontend.onnx.importers._elementwise import pointwise
from saccade.frontend.onnx.importers.contrib._forms import (
    as_standard,
    channels_first,
    channels_last,
    only,
    optional,
)
from saccade.frontend.onnx.importers.convolution import convolved
from saccade.frontend.onnx.importers.matrix import import_gemm, multiplied
from saccade.frontend.onnx.importers.pooling import import_max_pool
from saccade.frontend.onnx.moves import move, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Expr, Value
from saccade.ir.expr import IDENTITY, apply, arg, const, substitute
from saccade.opdefs import MatMul

__all__ = [
    "import_fused_conv",
    "import_fused_gemm",
    "import_fused_matmul",
    "import_fused_matmul_activation",
    "import_nhwc_conv",
    "import_nhwc_fused_conv",
    "import_nhwc_max_pool",
    "import_transpose_matmul",
]

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_DEFAULTS: dict[str, tuple[float, ...]] = {
    "Celu": (1.0,), "Clip": (), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,),
    "Relu": (), "Selu": (1.67326319217681884765625, 1.05070102214813232421875), "Sigmoid": (),
    "Softplus": (), "Softsign": (), "Tanh": (), "ThresholdedRelu": (1.0,), "HardSwish": (),
}  # fmt: skip
"""What is fused, and ONNX's defaults of alpha, beta or gamma."""


def import_fused_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.FusedConv 1: a convolution, a sum and an activation."""
    only(call, "activation", "activation_params", *_WINDOW, inputs=4)
    y = convolved(call, call.value(0), call.value(1), optional(call, 2))
    return [_finished(call, y, optional(call, 3))]


def import_nhwc_fused_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.NhwcFusedConv 1: as FusedConv, of data with channels last."""
    only(call, "activation", "activation_params", *_WINDOW, inputs=4)
    added = optional(call, 3)
    # Before the channels are last again: an epilogue has the convolution's axes.
    added = None if added is None else channels_first(call, added)
    return [channels_last(call, _finished(call, _nhwc(call), added))]


def import_nhwc_conv(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.NhwcConv 1: data has its channels last, weights are ONNX's."""
    only(call, *_WINDOW, inputs=3)
    return [channels_last(call, _nhwc(call))]


def _nhwc(call: OnnxNode) -> Value:
    """The convolution of data with channels last, its result with channels first."""
    x = channels_first(call, call.value(0))
    return convolved(call, x, call.value(1), optional(call, 2))


def import_nhwc_max_pool(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.NhwcMaxPool 1: a MaxPool of data with channels last."""
    only(
        call, "auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides", inputs=1
    )  # fmt: skip
    (y,) = import_max_pool(as_standard(call, channels_first(call, call.value(0))))
    assert isinstance(y, Value)
    return [channels_last(call, y)]


def _finished(call: OnnxNode, y: Value, added: Value | None) -> Value:
    """A convolution's result, with what is added to it, and its activation."""
    name = call.text("activation", "")
    numbers = call.numbers("activation_params") or ()
    return _activated(call, y, added, _activation(call, name, numbers))


def _activated(call: OnnxNode, y: Value, added: Value | None, expr: Expr) -> Value:
    operands = [y] if added is None else [y, added]
    if len(operands) == 1 and expr == IDENTITY:
        return y
    return pointwise(
        call, lambda *parts: substitute(expr, {0: reduce(_sum, parts)}), operands, y.dtype
    )


def _sum(a: Expr, b: Expr) -> Expr:
    return apply("add", a, b)


def _activation(call: OnnxNode, name: str, numbers: Sequence[float]) -> Expr:
    """What an activation does to `$0`; numbers that are not given are ONNX's."""
    if not name:
        return IDENTITY
    usual = _DEFAULTS.get(name)
    if usual is None:
        raise Refusal(f"activation {name!r}")
    if name == "Clip":
        if len(numbers) != 2:
            raise call.broken(f"activation_params {list(numbers)} of a Clip")
        return activation("clip", numbers)
    if len(numbers) > len(usual):
        raise call.broken(f"activation_params {list(numbers)} of a {name}")
    given = (*numbers, *usual[len(numbers) :])
    if name == "Celu":
        (alpha,) = (const(number) for number in given)
        return apply("mul", apply("elu", apply("div", arg(0), alpha), const(1.0)), alpha)
    return activation(name.lower(), given)


_LETTERS = ("alpha", "beta", "gamma")
_KINDS = {"HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma")}
"""Which letters an activation's numbers have, where it is not alpha alone."""


def _lettered(call: OnnxNode) -> Expr:
    """The activation of a node that spells its numbers as attributes of their own."""
    name = call.text("activation", "")
    usual = _DEFAULTS.get(name, ())
    letters = _KINDS.get(name, _LETTERS[: len(usual)])
    if name == "Clip":
        raise Refusal("activation 'Clip'")
    numbers = [
        call.number(f"activation_{letter}", default)
        for letter, default in zip(letters, usual, strict=True)
    ]
    return _activation(call, name, numbers)


def import_fused_gemm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.FusedGemm 1: a Gemm and an activation."""
    letters = (f"activation_{letter}" for letter in _LETTERS)
    only(call, "activation", *letters, "alpha", "beta", "transA", "transB", inputs=3)
    (y,) = import_gemm(as_standard(call))
    assert isinstance(y, Value)
    return [_activated(call, y, None, _lettered(call))]


_PRODUCT = ("alpha", "transA", "transB", "transBatchA", "transBatchB")


def import_fused_matmul(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.FusedMatMul 1: `alpha · A'B'`."""
    only(call, *_PRODUCT, inputs=2)
    return [_product(call)]


def import_transpose_matmul(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.TransposeMatMul 1: an older name of FusedMatMul."""
    only(call, "alpha", "transA", "transB", inputs=2)
    return [_product(call)]


def import_fused_matmul_activation(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.FusedMatMulActivation 1: FusedMatMul and an activation of each element."""
    letters = (f"activation_{letter}" for letter in _LETTERS)
    only(call, "activation", *letters, *_PRODUCT, inputs=2)
    return [_activated(call, _product(call), None, _lettered(call))]


def _product(call: OnnxNode) -> Value:
    a, b = (_batch_first(call, index, f"transBatch{'AB'[index]}") for index in (0, 1))
    alpha = call.finite("alpha", 1.0)
    op = MatMul(
        # Vectors have nothing to transpose.
        transpose_a=call.flag("transA") and a.rank > 1,
        transpose_b=call.flag("transB") and b.rank > 1,
        epilogue=IDENTITY if alpha == 1 else apply("mul", arg(0), const(alpha)),
    )
    return multiplied(call, a, b, op)


def _batch_first(call: OnnxNode, index: int, name: str) -> Value:
    """An operand whose rows stand before its batches, if the attribute says so: behind them."""
    x = call.value(index)
    if not call.flag(name) or x.rank < 3:
        return x
    return move(call, x, transpose_map(x.shape, (*range(1, x.rank - 1), 0, x.rank - 1)))
