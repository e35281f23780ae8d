"""What the parts of the kernel language share: builder, element types, literals, intrinsics."""

from __future__ import annotations

from typing import Any

from saccade.backends.cpu.codegen import llvm
from saccade.backends.cpu.codegen.values import Int, Vec, literal, vector_of
from saccade.backends.cpu.target import Target
from saccade.ir import DType

__all__ = [
    "BASES",
    "BYTES",
    "COUNTERS",
    "FAULT",
    "REACH",
    "THREAD",
    "WIDTH",
    "Emitter",
]

BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "uint64": 8, "uint32": 4, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
    **{dtype.value: 1 for dtype in DType if dtype.is_narrow},
}  # fmt: skip


BASES, COUNTERS, WIDTH, THREAD, FAULT, REACH = range(6)
"""Words of the context."""

_Count = int


class _Literals:
    """Constants. A class of its own, because inside it `int` means the method."""

    b: Any
    lanes: _Count

    def int(self, value: _Count) -> Int:
        """A literal integer."""
        return Int(self.b, literal(llvm.I64, value))

    def vector_type(self, lanes: _Count | None = None, element: str = "float32") -> Any:  # noqa: ANN401
        """LLVM vector type; a scalar type for one lane."""
        return vector_of(llvm.ELEMENTS[element], lanes or self.lanes)

    def number(self, value: float, lanes: _Count | None = None, element: str = "float32") -> Vec:
        """A literal in every lane."""
        return Vec(self.b, literal(self.vector_type(lanes, element), value))

    def zero(self, lanes: _Count | None = None, element: str = "float32") -> Vec:
        """0 in every lane."""
        return self.number(0.0, lanes, element)


class Emitter(_Literals):
    """State of a function under construction.

    Attributes:
        b: LLVM's builder, at the place where code is emitted.
        module, function: What is being built.
        target: Machine.
        lanes: fp32 elements of one vector.
        checked: Whether accesses are compared with their buffers.
        accesses: Buffers of the checked accesses, in order.
    """

    module: Any
    function: Any
    target: Target
    lanes: int
    checked: bool
    accesses: list[str]
    _context: Any

    def _intrinsic(self, name: str, result: Any, operands: list[Any]) -> Any:  # noqa: ANN401
        known = self.module.globals.get(name)
        return known or llvm.ir.Function(self.module, llvm.ir.FunctionType(result, operands), name)

    def _word(self, pointer: Any, index: int) -> Any:  # noqa: ANN401
        address = self.b.gep(pointer, [literal(llvm.I64, index)], source_etype=llvm.I64)
        return self.b.load(address, typ=llvm.I64)

    def _context_pointer(self, index: int) -> Any:  # noqa: ANN401
        return self.b.inttoptr(self._word(self._context, index), llvm.POINTER)
