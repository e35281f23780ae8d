"""Elements of any type, at any stride, as float32 or int64 vectors, and back."""

from __future__ import annotations

from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.language import KernelBuilder, Ptr
from saccade.backends.cpu.codegen.values import Int, IntLike, Mask, Vec, literal, vector_of
from saccade.ir import DType
from saccade.kernels.cpu.pointwise.narrow_elements import (
    NARROW,
    decoded,
    encoded,
    extended,
    is_narrow_float,
    masked,
)

__all__ = [
    "FLOATS",
    "INTEGERS",
    "from_float",
    "from_integer",
    "integers_of",
    "load",
    "narrowed",
    "store",
    "to_float",
    "to_integer",
]

FLOATS = frozenset({DType.F32, DType.F16, DType.BF16})
INTEGERS = frozenset(
    {
        DType.I64, DType.I32, DType.I16, DType.I8,
        DType.U64, DType.U32, DType.U16, DType.U8, DType.BOOL,
    }
)  # fmt: skip
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64", "bool")
_REGISTERS = ("float32", "bfloat16")
"""Elements that are float32 lanes once they are loaded, and until they are stored."""
_HALF = 2.0**63  # of what 64 bits without a sign hold
_FEW_BITS = frozenset(dtype.value for dtype in NARROW if not dtype.is_float)


def load(
    k: KernelBuilder,
    p: Ptr,
    kind: str,
    at: Int,
    inner: IntLike,
    stride: Int,
    mask: Mask | None,
    lanes: int,
) -> Vec:
    """`lanes` elements of a row from position `inner` on, in their own type.

    Args:
        k: Builder.
        p: Buffer.
        kind: `unit`, `zero` or `strided` (see `movement.loop_nest.inner_kind`).
        at: Offset of the row.
        inner: First position.
        stride: Elements between positions (of kind `strided`).
        mask: Lanes to load (of kind `unit`); None for all.
        lanes: Number of lanes.
    """
    if kind == "zero":
        return k.broadcast(p.load(at), lanes)
    if kind == "unit":
        return p.vec(at + inner, mask, lanes) if lanes > 1 else p.load(at + inner)
    vector = p.load(at + stride * inner)
    if lanes == 1:
        return vector
    vector = k.broadcast(vector, lanes)
    for lane in range(1, lanes):
        vector = k.insert(vector, p.load(at + stride * (inner + lane)), lane)
    return vector


def store(
    k: KernelBuilder,
    p: Ptr,
    kind: str,
    at: Int,
    inner: Int,
    stride: Int,
    mask: Mask | None,
    value: Vec,
) -> None:
    """The mirror image of `load`, for kinds `unit` and `strided`."""
    if kind != "strided":
        p.store(value, at + inner, mask)
        return
    for lane in range(value.lanes):
        p.store(k.extract(value, lane), at + stride * (inner + lane))


def to_float(k: KernelBuilder, v: Vec, element: str) -> Vec:
    """Elements of type `element` as float32 lanes."""
    kind = k.vector_type(v.lanes)
    if element in _REGISTERS:
        return v
    if element == "float16":
        return Vec(k.b, k.b.fpext(v.value, kind))
    if is_narrow_float(element):
        return decoded(k, v, element)
    convert = k.b.uitofp if element in _UNSIGNED else k.b.sitofp
    return Vec(k.b, convert(v.value, kind))


def from_float(k: KernelBuilder, v: Vec, element: str) -> Vec:
    """Float32 lanes as `element`: towards zero for integers, `!= 0` for bool (ONNX Cast)."""
    if element in _REGISTERS:
        return v
    if element in ("float16", "float64"):
        return k.convert(v, element)
    if is_narrow_float(element):
        return encoded(k, v, element)
    if element == "bool":
        return _as_bool(k, v.compare("!=", 0.0).value, v.lanes)
    found = integers_of(k, v, element)
    assert found is not None, element
    return found


def integers_of(k: KernelBuilder, v: Vec, element: str) -> Vec | None:
    """Floating-point lanes towards zero, as integers of type `element`; None for another type."""
    if element in (*_REGISTERS, "float16") or is_narrow_float(element):
        return None
    # Half of the unsigned numbers of 32 bits are beyond the signed ones.
    wide = llvm.I64 if element in ("int64", "uint32", "uint64") else llvm.I32
    kind = vector_of(wide, v.lanes)
    if element != "uint64":
        return narrowed(k, k.b.fptosi(v.value, kind), v.lanes, element)
    # So it is of 64 bits: what is beyond is converted less 2^63, which is one bit.
    half = v.like(_HALF)
    beyond = v.compare(">=", half)
    near = k.b.fptosi(beyond.select(v - half, v).value, kind)
    top = k.b.select(beyond.value, literal(kind, -(2**63)), literal(kind, 0))
    return Vec(k.b, k.b.xor(near, top))


def to_integer(k: KernelBuilder, v: Vec, element: str) -> Vec:
    """Integer elements as int64 lanes."""
    if element in ("int64", "uint64"):
        return v
    if element in _FEW_BITS:
        v, element = extended(k, v, element), DType(element).arithmetic.value
    extend = k.b.zext if element in _UNSIGNED else k.b.sext
    return Vec(k.b, extend(v.value, vector_of(llvm.I64, v.lanes)))


def from_integer(k: KernelBuilder, v: Vec, element: str, source: str) -> Vec:
    """Int64 lanes as `element`; integers wrap around.

    Args:
        k: Builder.
        v: The lanes.
        element: Type of the results.
        source: Whose bits the lanes hold: a sign is none in uint64.
    """
    convert = k.b.uitofp if source == "uint64" else k.b.sitofp
    if element == "float64":
        return Vec(k.b, convert(v.value, k.vector_type(v.lanes, element)))
    if element in (*_REGISTERS, "float16") or is_narrow_float(element):
        return from_float(k, Vec(k.b, convert(v.value, k.vector_type(v.lanes))), element)
    if element == "bool":
        return _as_bool(k, k.b.icmp_signed("!=", v.value, literal(v.type, 0)), v.lanes)
    return narrowed(k, v.value, v.lanes, element)


def _as_bool(k: KernelBuilder, condition: Any, lanes: int) -> Vec:  # noqa: ANN401
    # Conditions are single bits, elements bytes of 0 or 1.
    return Vec(k.b, k.b.zext(condition, vector_of(llvm.I8, lanes)))


def narrowed(k: KernelBuilder, integers: Any, lanes: int, element: str) -> Vec:  # noqa: ANN401
    """Integers without the bits that an element does not have."""
    kind = k.vector_type(lanes, element)
    value = integers if kind == integers.type else k.b.trunc(integers, kind)
    return masked(k, value, element) if element in _FEW_BITS else Vec(k.b, value)
