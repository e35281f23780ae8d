"""LLVM's types, each made once: llvmlite keeps the text of every object that it has printed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from saccade.ir import DType

__all__ = ["BFLOAT", "ELEMENTS", "I1", "I8", "I16", "I32", "I64", "POINTER", "Splat", "ir"]

I64 = ir.IntType(64)
I32 = ir.IntType(32)
I16 = ir.IntType(16)
I8 = ir.IntType(8)
I1 = ir.IntType(1)
POINTER = ir.PointerType()

ELEMENTS: dict[str, Any] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "float16": ir.HalfType(),
    "bfloat16": I16,  # in memory; float32 in registers
    "int64": I64,
    "int32": I32,
    "int16": I16,
    "int8": I8,
    "uint8": I8,
    "uint16": I16,
    "uint32": I32,
    "uint64": I64,
    "bool": I8,
    **{dtype.value: I8 for dtype in DType if dtype.is_narrow},
}
"""What lies in memory, by the name of the element."""


class Splat(ir.Constant):  # type: ignore[misc]  # llvmlite carries no types
    """One number in all lanes of a vector, written once."""

    def _get_reference(self) -> str:
        one = self.constant[0]
        return f"splat ({one.type} {one.get_reference()})"


class _BFloatType(ir.Type):  # type: ignore[misc]
    """LLVM's `bfloat`, which `llvmlite.ir` lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloatType)

    def __hash__(self) -> int:
        return hash(_BFloatType)


BFLOAT = _BFloatType()
