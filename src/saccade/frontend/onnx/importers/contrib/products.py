"""Products of quantised matrices, of matrices that are quantised on the way, and of few bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import cast_to, pointwise
from saccade.frontend.onnx.importers._quantised import dequantised, quantised, rescaled
from saccade.frontend.onnx.importers.contrib._forms import as_standard, only, optional
from saccade.frontend.onnx.importers.matrix import multiplied
from saccade.frontend.onnx.importers.quantisation import factor, matmul
from saccade.frontend.onnx.importers.recurrent import import_lstm
from saccade.frontend.onnx.moves import move, reshaped, transpose_map
from saccade.frontend.onnx.refusal import Refusal
from saccade.ir import Array, DType, Expr, Value
from saccade.ir.expr import apply, const
from saccade.opdefs import MatMul, Reduce

__all__ = [
    "import_dynamic_quantize_lstm",
    "import_dynamic_quantize_matmul",
    "import_matmul_integer_to_float",
    "import_matmul_n_bits",
    "import_qgemm",
]

_ADD = partial(apply, "add")
_MUL = partial(apply, "mul")


def import_qgemm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.QGemm 1: the sums plus C, scaled; quantised where a scale says how."""
    only(call, "alpha", "transA", "transB", inputs=9)
    a, b = (_oriented(call, index, f"trans{name}") for index, name in ((0, "A"), (3, "B")))
    sums = matmul(call, (a, b), (call.value(2), call.value(5)))
    if call.has(6):
        sums = pointwise(call, _ADD, [sums, call.value(6)], DType.I32)
    scales = [_columns(call, call.value(index)) for index in (1, 4)]
    alpha = call.finite("alpha", 1.0)
    if alpha != 1:
        scales[0] = pointwise(call, lambda e: apply("mul", e, const(alpha)), scales[:1])
    if not call.has(7):
        scale = pointwise(call, _MUL, scales, DType.F32)
        return [pointwise(call, _MUL, [cast_to(call, sums, DType.F32), scale], DType.F32)]
    zero = optional(call, 8)
    scale = factor(call, scales[0], scales[1], _columns(call, call.value(7)))
    stored = None if zero is None else _columns(call, zero)
    return [rescaled(call, sums, scale, stored, DType.U8 if zero is None else zero.dtype)]


def _columns(call: OnnxNode, parameter: Value) -> Value:
    """One number for all columns, or one for each: vectors broadcast as they are."""
    return reshaped(call, parameter, ()) if parameter.shape == (1,) else parameter


def _oriented(call: OnnxNode, index: int, name: str) -> Value:
    x = call.value(index)
    if x.rank != 2:
        raise call.broken(f"an operand of {x.rank} axes")
    return move(call, x, transpose_map(x.shape, (1, 0))) if call.flag(name) else x


def import_matmul_integer_to_float(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.MatMulIntegerToFloat 1: scaled sums of products, and a bias."""
    only(call, inputs=7)
    sums = matmul(
        call, (call.value(0), call.value(1)), (optional(call, 4), optional(call, 5))
    )  # fmt: skip
    return [_scaled(call, sums, (call.value(2), call.value(3)), optional(call, 6))]


def _scaled(call: OnnxNode, sums: Value, scales: tuple[Value, Value], bias: Value | None) -> Value:
    """`sums · a · b + bias` in the scales' type."""
    both = pointwise(call, _MUL, [_columns(call, scale) for scale in scales], DType.F32)
    operands = [cast_to(call, sums, DType.F32), both, *([] if bias is None else [bias])]

    def make(e: Expr, s: Expr, *rest: Expr) -> Expr:
        number = apply("mul", e, s)
        return apply("add", number, *rest) if rest else number

    return pointwise(call, make, operands, scales[0].dtype)


def import_dynamic_quantize_matmul(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.DynamicQuantizeMatMul 1: A is quantised as DynamicQuantizeLinear does."""
    only(call, inputs=5)
    a, scale, zero = _dynamically(call, call.value(0))
    sums = matmul(call, (a, call.value(1)), (zero, optional(call, 3)))
    return [_scaled(call, sums, (scale, call.value(2)), optional(call, 4))]


def _dynamically(call: OnnxNode, x: Value) -> tuple[Value, Value, Value]:
    """A value in uint8, its scale and its zero point, from its least and largest element."""
    axes = tuple(range(x.rank))
    low, high = (call.emit(Reduce(kind, axes, keepdims=False), x) for kind in ("min", "max"))
    levels = const(255)

    def width(a: Expr, b: Expr) -> Expr:
        spread = apply("sub", apply("max", b, const(0)), apply("min", a, const(0)))
        # Zeros alone: any scale gives them back.
        none = apply("equal", spread, const(0))
        return apply("where", none, const(1), apply("div", spread, levels))

    def origin(a: Expr, s: Expr) -> Expr:
        place = apply("div", apply("neg", apply("min", a, const(0))), s)
        return apply("clip", apply("round", place), const(0), levels)

    scale = pointwise(call, width, [low, high], DType.F32)
    zero = cast_to(call, pointwise(call, origin, [low, scale], DType.F32), DType.U8)
    return quantised(call, x, scale, zero, DType.U8), scale, zero


def import_dynamic_quantize_lstm(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.DynamicQuantizeLSTM 1: an LSTM of its weights' numbers.

    Inputs and states are not quantised on the way: results are those that quantising them comes
    near to.
    """
    known = (
        "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size",
        "input_forget",
    )  # fmt: skip
    only(call, *known, inputs=12)
    w, r = (_gates_first(call, index, scale) for index, scale in ((1, 8), (2, 10)))
    return import_lstm(as_standard(call, call.operand(0), w, r, *call.operands[3:8]))


def _gates_first(call: OnnxNode, index: int, scale: int) -> Value:
    """Weights [D, inputs, 4·units] as the numbers [D, 4·units, inputs] that ONNX has."""
    weights = call.value(index)
    if weights.rank != 3:
        raise call.broken(f"weights of {weights.rank} axes")
    directions, _, gates = weights.shape

    def spread(parameter: Value) -> Value:
        # One number for each direction, or one for each gate's unit.
        count = 1 if parameter.rank < 2 else gates
        return reshaped(call, parameter, (directions, 1, count))

    numbers = dequantised(
        call, weights, spread(call.value(scale)), spread(call.value(scale + 1)), DType.F32
    )
    return move(call, numbers, transpose_map(numbers.shape, (0, 2, 1)))


_FEW_BITS = (2, 4, 8)


def import_matmul_n_bits(call: OnnxNode) -> Sequence[Operand]:
    """ONNX com.microsoft.MatMulNBits 1: weights of 2, 4 or 8 bits, which become numbers here."""
    known = ("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked")
    only(call, *known, inputs=6)
    if call.has(4):
        raise Refusal("rows in another order (g_idx)")
    if call.integer("weight_prepacked", 0):
        raise Refusal("attribute 'weight_prepacked'")
    x = call.value(0)
    weights = call.build.constant(_unpacked(call).astype(x.dtype.arithmetic.numpy), "weights")
    y = multiplied(call, x, cast_to(call, weights, x.dtype), MatMul(transpose_b=True))
    if call.has(5):
        y = pointwise(call, _ADD, [y, call.value(5)], y.dtype)
    return [y]


def _unpacked(call: OnnxNode) -> Array:
    """The weights [N, K], float32."""
    rows, inner = call.integer("N", 0), call.integer("K", 0)
    bits, block = call.integer("bits", 4), call.integer("block_size", 0)
    if bits not in _FEW_BITS:
        raise Refusal(f"weights of {bits} bits")
    packed = call.constant(1, "packed weights")
    if block < 16 or block & (block - 1) or min(rows, inner) < 1:
        raise call.broken(f"blocks of {block} of {rows} by {inner} weights")
    blocks = -(-inner // block)
    # Before anything is allocated: the file may claim any sizes.
    if packed.dtype != np.uint8 or packed.size != rows * blocks * block * bits // 8:
        raise call.broken(f"{rows} by {inner} weights in {list(packed.shape)} {packed.dtype}")
    scales = call.constant(2, "scales").astype(np.float32)
    if scales.size != rows * blocks:
        raise call.broken(f"{scales.size} scales of {rows * blocks} blocks")
    levels = _fields(packed.reshape(rows, -1), bits).reshape(rows, blocks, block)
    offset = _offsets(call, bits, (rows, blocks))
    numbers = (levels.astype(np.float32) - offset[..., None]) * scales.reshape(rows, blocks, 1)
    return np.asarray(numbers.reshape(rows, -1)[:, :inner])


def _offsets(call: OnnxNode, bits: int, shape: tuple[int, int]) -> Array:
    """Zero points of blocks: numbers, or packed like weights; the middle if there are none."""
    if not call.has(3):
        return np.full(shape, 1 << (bits - 1), np.float32)
    given = call.constant(3, "zero points")
    rows, blocks = shape
    each = -(-blocks * bits // 8) if given.dtype == np.uint8 else blocks
    if given.size != rows * each:
        raise call.broken(f"{given.size} zero points of {rows} rows of {blocks} blocks")
    if given.dtype == np.uint8:
        given = _fields(given.reshape(rows, each), bits)
    return given.reshape(rows, -1)[:, :blocks].astype(np.float32)


def _fields(packed: Array, bits: int) -> Array:
    """The numbers in each byte of rows, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    fields = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(fields.reshape(len(packed), -1))
