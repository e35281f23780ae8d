"""What depends on how elements are stored: BitCast, and casts to what has exponents alone."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.frontend.onnx.call import OnnxNode, Operand
from saccade.frontend.onnx.importers._elementwise import ONNX_DTYPES, cast_to, pointwise
from saccade.frontend.onnx.refusal import Refusal
from saccade.frontend.onnx.survey import Survey
from saccade.ir import DType, Expr, Value
from saccade.ir.expr import apply, const
from saccade.opdefs import BitCast

__all__ = ["import_bit_cast", "to_exponents"]

_HALVES = (DType.F16, DType.BF16)
# Of float32, whose exponent is biased as that of float8e8m0 is.
_MANTISSA, _SIZE = 23, 0x7FFFFFFF
_LAST, _NO_NUMBER = 0xFE, 0xFF


def import_bit_cast(call: OnnxNode) -> Sequence[Operand]:
    """ONNX BitCast 26, between types of as many bits."""
    dtype = ONNX_DTYPES.get(call.integer("to", 0))
    if dtype is None:
        raise Refusal("reads bits as an element type that Saccade does not have")
    x = _as_in_the_file(call)
    if x.dtype.bits != dtype.bits:
        raise call.broken(f"reads {x.dtype.value} as {dtype.value}")
    if x.dtype is dtype:
        return [x]
    if dtype is DType.BOOL:
        # A truth value is 0 or 1, whatever byte was there.
        return [cast_to(call, call.emit(BitCast(DType.U8), x), DType.BOOL)]
    return [call.emit(BitCast(dtype), x)]


def _as_in_the_file(call: OnnxNode) -> Value:
    """The operand in its own type: what ONNX has in 16 bits may be kept in float32."""
    x, given = call.value(0), call.node.inputs[0]
    declared = None if given is None else Survey.dtype_of(given)
    return cast_to(call, x, declared) if x.dtype is DType.F32 and declared in _HALVES else x


def to_exponents(call: OnnxNode, x: Value, *, saturate: bool, mode: str) -> Value:
    """ONNX Cast to float8e8m0 24: the exponents of float32, rounded; signs are passed over.

    Args:
        call: The node.
        x: Numbers; infinity is no number in the result.
        saturate: Whether what rounds to more than the largest power becomes that, or no number.
        mode: `up`, away from zero; `down`; or `nearest`, halfway up.
    """
    make = {"up": _up, "down": _down, "nearest": _nearest}.get(mode)
    if make is None:
        raise call.broken(f"round_mode {mode!r}")

    def code(bits: Expr) -> Expr:
        size = apply("bit_and", bits, const(_SIZE))
        rounded = make(size)
        if saturate:
            rounded = apply("min", rounded, const(_LAST))
        finite = apply("less", size, const(_NO_NUMBER << _MANTISSA))
        return apply("where", finite, rounded, const(_NO_NUMBER))

    bits = call.emit(BitCast(DType.I32), cast_to(call, x, DType.F32))
    return call.emit(BitCast(DType.F8E8M0), pointwise(call, code, [bits], DType.U8))


def _exponent(size: Expr, added: int = 0) -> Expr:
    total = apply("add", size, const(added)) if added else size
    return apply("shift_right", total, const(_MANTISSA))


def _down(size: Expr) -> Expr:
    return _exponent(size)


def _up(size: Expr) -> Expr:
    return _exponent(size, (1 << _MANTISSA) - 1)


def _nearest(size: Expr) -> Expr:
    half = 1 << (_MANTISSA - 1)
    # As the standard's reference has it, half of the least normal number goes down.
    normal = apply("greater_equal", size, const(1 << _MANTISSA))
    return apply("where", normal, _exponent(size, half), _exponent(size, half - 1))
