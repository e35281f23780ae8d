"""What a kernel of NVIDIA's GPUs is: plain functions over a call, and a Triton function's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from saccade.backends.cuda.codegen.entry import Entry
from saccade.ir import DType, Op
from saccade.kernels import base
from saccade.kernels.base import Launch, Variant, View

if TYPE_CHECKING:
    from saccade.backends.cuda.target import GpuTarget
    from saccade.kernels.base import Kernel

    class CudaCall(base.Call):
        """A call for a GPU, whose hardware is a `GpuTarget`: `CudaBackend.target`."""

        target: GpuTarget
else:
    CudaCall = base.Call

__all__ = ["ELEMENTS", "FLOATS", "CudaCall", "CudaKernel", "Entry", "element_of", "selectable"]

ELEMENTS: Mapping[DType, str] = MappingProxyType(
    {
        DType.F32: "fp32", DType.F16: "fp16", DType.BF16: "bf16", DType.F64: "fp64",
        DType.I64: "i64", DType.I32: "i32", DType.I16: "i16", DType.I8: "i8",
        DType.U64: "u64", DType.U32: "u32", DType.U16: "u16", DType.U8: "u8",
        DType.BOOL: "u8",  # one byte, 0 or 1
    }
)  # fmt: skip
"""What Triton calls the elements that a pointer goes to."""
FLOATS = (DType.F32, DType.F16, DType.BF16)
"""What is float32 in registers."""


def element_of(view: View) -> str:
    """What Triton calls the elements of a view."""
    return ELEMENTS[view.dtype]


@dataclass(frozen=True)
class CudaKernel:
    """A kernel of the CUDA backend, listed in `kernels.cuda.CUDA_KERNELS`.

    A launch's chunks are the programs of its grid; code addresses elements relative to pointers
    that go to an operand's first one.

    Attributes:
        name: `family.algorithm`, e.g. `conv2d.implicit_gemm`.
        ops: Operator classes that it may be asked about.
        config: Class of its configs (for reading plans back).
        supports: The reason why it cannot take a call, or None.
        variants: The variants for a call that `supports` gave None for, the one with the least
            estimated time first; at least one. All are legal and worth measuring.
        entry: What is compiled for a config; imports no Triton.
        aliases: Pairs (input, output) that may share memory when their views are equal.
        generic_configs: Configs that other sizes of a call will want.
    """

    name: str
    ops: tuple[type[Op], ...]
    config: type[Any]
    supports: Callable[[CudaCall], str | None]
    variants: Callable[[CudaCall], Iterable[Variant]]
    entry: Callable[[Any], Entry]
    aliases: Callable[[CudaCall], tuple[tuple[int, int], ...]] = field(default=lambda _call: ())
    generic_configs: Callable[[CudaCall], tuple[Any, ...]] = field(default=lambda _call: ())

    def launch(self, call: CudaCall) -> tuple[Launch, ...]:
        """The phases of the best variant."""
        return next(iter(self.variants(call))).launches


def selectable(kernels: Iterable[CudaKernel]) -> tuple[Kernel, ...]:
    """The kernels as selection knows them: every call that it makes is for the backend's target."""
    return cast("tuple[Kernel, ...]", tuple(kernels))
