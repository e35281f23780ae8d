"""Any floating-point element as lanes that sums are kept in, and back.

float64 stays float64; float32, float16 and bfloat16 are float32 lanes, rounded once where they are
stored.
"""

from __future__ import annotations

from dataclasses import replace

from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import IntLike, Mask, Vec
from saccade.ir import DType

__all__ = [
    "FLOATS",
    "HALVES",
    "lanes_of",
    "load",
    "load_one",
    "narrow_pairs",
    "splat",
    "store",
    "wide",
]

FLOATS = frozenset({DType.F32, DType.F16, DType.BF16, DType.F64})

HALVES = frozenset({"bfloat16", "float16"})
"""Elements of which two are as long as one of their sums."""


def wide(*elements: str) -> str:
    """The element that sums over these are kept in."""
    return "float64" if "float64" in elements else "float32"


def lanes_of(k: KernelBuilder, element: str) -> int:
    """Lanes of one register of wide elements."""
    return k.lanes // 2 if element == "float64" else k.lanes


def load(
    k: KernelBuilder, p: Ptr, at: IntLike, lanes: int, element: str, mask: Mask | None = None
) -> Vec:
    """Consecutive elements as lanes of `element` (float32 or float64); masked ones read as 0."""
    if p.element == "float16" and lanes > 1:
        bits = replace(p, element="int16").vec(at, mask, lanes)
        half = Vec(k.b, k.b.bitcast(bits.value, k.vector_type(lanes, "float16")))
        return k.convert(half, element)
    loaded = p.vec(at, mask, lanes) if lanes > 1 else p.load(at)
    return k.convert(loaded, element)


def load_one(k: KernelBuilder, p: Ptr, at: IntLike, element: str) -> Vec:
    """One element as a scalar of `element`."""
    return k.convert(p.load(at), element)


def splat(k: KernelBuilder, p: Ptr, at: IntLike, lanes: int, element: str) -> Vec:
    """One element in every lane."""
    return k.broadcast(load_one(k, p, at, element), lanes)


def store(k: KernelBuilder, p: Ptr, value: Vec, at: IntLike, mask: Mask | None = None) -> None:
    """Wide lanes as elements of the buffer, rounded to nearest even.

    Lanes of float64 go into float64 or float32.
    """
    if p.element == "bfloat16":
        p.store(value, at, mask)
        return
    narrow = k.convert(value, p.element)
    if p.element == "float16" and value.lanes > 1:
        bits = Vec(k.b, k.b.bitcast(narrow.value, k.vector_type(value.lanes, "int16")))
        replace(p, element="int16").store(bits, at, mask)
        return
    p.store(narrow, at, mask)


def narrow_pairs(k: KernelBuilder, even: Vec, odd: Vec, element: str) -> Vec:
    """float32 lanes as one of `HALVES`, rounded: int32 lanes, the even one in the lower half."""
    if element == "bfloat16":
        bits = k.narrow_pairs(even, odd)
    else:
        kind, lanes = k.vector_type(even.lanes, "int16"), even.lanes
        low, high = (Vec(k.b, k.b.bitcast(k.convert(v, element).value, kind)) for v in (even, odd))
        bits = k.shuffle(low, high, [half + i for i in range(lanes) for half in (0, lanes)])
    return Vec(k.b, k.b.bitcast(bits.value, k.vector_type(even.lanes, "int32")))
