"""Elements of any type as float64 vectors, and back."""

from __future__ import annotations

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.math import absolute, bits, float_from, int_constant
from saccade.backends.cpu.codegen.values import Mask, Vec, vector_of
from saccade.kernels.cpu.pointwise.vector_elements import from_float, integers_of, to_float

__all__ = ["from_double", "to_double"]


def to_double(k: KernelBuilder, v: Vec, element: str) -> Vec:
    """Elements of type `element`, float64 or truth values, as float64 lanes."""
    if element == "float64":
        return v
    assert element == "bool", element
    return k.convert(to_float(k, v, element), "float64")


def from_double(k: KernelBuilder, v: Vec, element: str) -> Vec:
    """Float64 lanes as `element`: towards zero for integers, `!= 0` for bool (ONNX Cast)."""
    if element == "float64":
        return v
    if element == "float32":
        return k.convert(v, "float32")
    if element == "bool":
        held = v.compare("!=", 0.0)
        return Vec(k.b, k.b.zext(held.value, vector_of(llvm.I8, v.lanes)))
    found = integers_of(k, v, element)
    return from_float(k, _to_odd(k, v), element) if found is None else found


def _to_odd(k: KernelBuilder, v: Vec) -> Vec:
    """Float32 lanes that round to fewer bits as the float64 lanes would.

    Those that are no float32 become the odd one of their two neighbours: it is no half of anything
    shorter, which rounding to the nearest twice could meet.
    """
    near = k.convert(v, "float32")
    back = k.convert(near, "float64")
    # Ordered: NaN is as it should be.
    other = Mask(k.b, k.b.fcmp_ordered("!=", back.value, v.value))
    word, one = bits(k, near), int_constant(near, 1)
    even = Mask(k.b, k.b.icmp_signed("==", k.b.and_(word, one), int_constant(near, 0)))
    short = absolute(k, back).compare("<", absolute(k, v))
    step = k.b.select(short.value, one, int_constant(near, -1))
    # Magnitudes grow with their bits, whatever the sign is.
    return (other & even).select(float_from(k, k.b.add(word, step)), near)
