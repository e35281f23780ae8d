"""Elements of at most 8 bits that NumPy does not have: bytes to float32 lanes, and back.

A float of `m` bits of mantissa is the float32 whose bits are its own, moved up and with another
bias; below its least normal number it is an integer times its least one. Back, integer arithmetic
rounds to nearest even, and so does an addition to a float32 whose last bit is that least one. All
is exact to the bit as `ml_dtypes` has it: what overflows, both zeros, and what is no number.
Nothing needs float32's denormal numbers, which threads may have switched off, but for the least of
`float8_e8m0fnu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.values import Vec, literal, vector_of
from saccade.ir import DType

__all__ = ["NARROW", "decoded", "encoded", "extended", "is_narrow_float", "masked"]

NARROW = frozenset(dtype for dtype in DType if dtype.is_narrow)
# Bits of float32.
_NAN, _INFINITE = 0x7FC00000, 0x7F800000
_QUIET = 0x7E  # of float8_e5m2, as `ml_dtypes` writes it
_EXPONENTS = DType.F8E8M0.value


@dataclass(frozen=True)
class _Format:
    """A float of a sign, an exponent and a mantissa.

    Attributes:
        bits: All of them.
        mantissa: Those of the mantissa.
        bias: Of the exponent.
        special: What is no number: `ieee`; `last`, the largest code of either sign; `zero`, the
            negative zero; or `none`.
    """

    bits: int
    mantissa: int
    bias: int
    special: str

    @property
    def sign(self) -> int:
        """The bit of the sign, and how many codes there are below it."""
        return 1 << (self.bits - 1)


_FORMATS = {
    DType.F8E4M3FN.value: _Format(8, 3, 7, "last"),
    DType.F8E4M3FNUZ.value: _Format(8, 3, 8, "zero"),
    DType.F8E5M2.value: _Format(8, 2, 15, "ieee"),
    DType.F8E5M2FNUZ.value: _Format(8, 2, 16, "zero"),
    DType.F4E2M1.value: _Format(4, 1, 1, "none"),
}


def is_narrow_float(element: str) -> bool:
    """Whether elements of this name are what `decoded` and `encoded` convert."""
    return element in _FORMATS or element == _EXPONENTS


def decoded(k: KernelBuilder, raw: Vec, element: str) -> Vec:
    """Bytes that hold `element` as float32 lanes."""
    b, code = k.b, k.b.zext(raw.value, vector_of(llvm.I32, raw.lanes))
    if element == _EXPONENTS:
        # 2 ** -127 is half of float32's least normal number.
        found = b.select(_equal(b, code, 0), _like(code, 1 << 22), b.shl(code, _like(code, 23)))
        return _float(k, b.select(_equal(b, code, 0xFF), _like(code, _NAN), found))
    form = _FORMATS[element]
    size = b.and_(code, _like(code, form.sign - 1))
    sign = b.shl(b.and_(code, _like(code, form.sign)), _like(code, 32 - form.bits))
    normal = b.add(
        b.shl(size, _like(code, 23 - form.mantissa)), _like(code, (127 - form.bias) << 23)
    )
    least = 2.0 ** (1 - form.bias - form.mantissa)
    small = Vec(b, b.uitofp(size, k.vector_type(raw.lanes))) * least
    is_small = b.icmp_unsigned("<", size, _like(code, 1 << form.mantissa))
    found = b.select(is_small, _bits(k, small), normal)
    if form.special == "last":
        found = b.select(_equal(b, size, form.sign - 1), _like(code, _NAN), found)
    elif form.special == "zero":
        found = b.select(_equal(b, code, form.sign), _like(code, _NAN), found)
    elif form.special == "ieee":
        top = _infinite(form)
        found = b.select(_equal(b, size, top), _like(code, _INFINITE), found)
        found = b.select(b.icmp_unsigned(">", size, _like(code, top)), _like(code, _NAN), found)
    return _float(k, b.or_(found, sign))


def encoded(k: KernelBuilder, value: Vec, element: str) -> Vec:
    """Float32 lanes as bytes that hold `element`, rounded to nearest even."""
    b, bits = k.b, _bits(k, value)
    size = b.and_(bits, _like(bits, 0x7FFFFFFF))
    if element == _EXPONENTS:
        return _bytes(k, _exponents(b, bits, size))
    form = _FORMATS[element]
    sign = b.and_(b.lshr(bits, _like(bits, 32 - form.bits)), _like(bits, form.sign))
    code = _rounded(k, _float(k, size), form)
    if form.special == "zero":
        # What is too large is no number, and there is one zero: both are without a sign.
        over = b.icmp_unsigned(">=", code, _like(code, form.sign))
        signed = b.select(_equal(b, code, 0), code, b.or_(code, sign))
        return _bytes(k, b.select(over, _like(code, form.sign), signed))
    most = _infinite(form) if form.special == "ieee" else form.sign - 1
    large = b.icmp_unsigned(">", code, _like(code, most))
    code = b.or_(b.select(large, _like(code, most), code), sign)
    if form.special != "last":
        nan = b.icmp_unsigned(">", size, _like(size, _INFINITE))
        # Without a code for it: zero, of the other sign.
        other = _like(code, _QUIET) if form.special == "ieee" else _like(code, form.sign)
        code = b.select(nan, b.xor(other, sign), code)
    return _bytes(k, code)


def _rounded(k: KernelBuilder, size: Vec, form: _Format) -> Any:  # noqa: ANN401 - LLVM values
    """Codes of numbers without a sign, beyond the last one where they are too large."""
    b, bits = k.b, _bits(k, size)
    shift = 23 - form.mantissa
    odd = b.and_(b.lshr(bits, _like(bits, shift)), _like(bits, 1))
    half = b.add(odd, _like(bits, (1 << (shift - 1)) - 1))
    normal = b.sub(
        b.lshr(b.add(bits, half), _like(bits, shift)),
        _like(bits, (127 - form.bias) << form.mantissa),
    )
    # The last bit of this number is the format's least one: adding rounds to a multiple of it.
    unit = size.like(2.0 ** (24 - form.bias - form.mantissa))
    small = b.sub(_bits(k, size + unit), _bits(k, unit))
    below = b.icmp_unsigned("<", bits, _like(bits, (128 - form.bias) << 23))
    return b.select(below, small, normal)


def _exponents(b: Any, bits: Any, size: Any) -> Any:  # noqa: ANN401
    """Codes of `float8_e8m0fnu`: the nearest power of two, halfway the larger one."""
    normal = b.lshr(b.add(size, _like(size, 1 << 22)), _like(size, 23))
    # As `ml_dtypes` has it: above the least power of all, the next one is the nearest.
    small = b.lshr(b.add(size, _like(size, (1 << 22) - 1)), _like(size, 23))
    below = b.icmp_unsigned("<", size, _like(size, 1 << 23))
    code = b.select(below, small, normal)
    # Nothing but what is positive and finite has a power.
    positive = b.icmp_signed(">", bits, _like(bits, 0))
    finite = b.icmp_signed("<", bits, _like(bits, _INFINITE))
    return b.select(b.and_(positive, finite), code, _like(code, 0xFF))


def extended(k: KernelBuilder, raw: Vec, element: str) -> Vec:
    """Bytes that hold narrow integers, as those of 8 bits."""
    free = _like(raw.value, 8 - DType(element).bits)
    shift = k.b.lshr if element.startswith("u") else k.b.ashr
    return Vec(k.b, shift(k.b.shl(raw.value, free), free))


def masked(k: KernelBuilder, raw: Any, element: str) -> Vec:  # noqa: ANN401
    """Bytes without the bits that narrow integers do not have."""
    return Vec(k.b, k.b.and_(raw, _like(raw, (1 << DType(element).bits) - 1)))


def _infinite(form: _Format) -> int:
    return form.sign - (1 << form.mantissa)


def _equal(b: Any, value: Any, number: int) -> Any:  # noqa: ANN401
    return b.icmp_unsigned("==", value, _like(value, number))


def _like(value: Any, number: int) -> Any:  # noqa: ANN401
    return literal(value.type, number)


def _bits(k: KernelBuilder, value: Vec) -> Any:  # noqa: ANN401
    return k.b.bitcast(value.value, vector_of(llvm.I32, value.lanes))


def _float(k: KernelBuilder, bits: Any) -> Vec:  # noqa: ANN401
    return Vec(k.b, k.b.bitcast(bits, k.vector_type(getattr(bits.type, "count", 1))))


def _bytes(k: KernelBuilder, code: Any) -> Vec:  # noqa: ANN401
    return Vec(k.b, k.b.trunc(code, vector_of(llvm.I8, getattr(code.type, "count", 1))))
