"""Kernels for GPUs in Triton's interpreter, on a machine without one.

The interpreter is NumPy: slow, sequential, and wrong in bfloat16 arithmetic. A process that ran it
compiles nothing: Triton decides at its import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from saccade.backends.cuda.ahead import ROWS
from saccade.backends.cuda.codegen.functions import function_of
from saccade.backends.cuda.target import GpuTarget
from saccade.ir import Array, DType
from saccade.kernels.base import Call, Launch
from saccade.kernels.bind import Phase
from saccade.kernels.cuda import packing
from saccade.kernels.cuda.base import CudaCall, CudaKernel, Entry
from saccade.testing.guarded import GuardedMemory
from saccade.testing.quick_triton import quicken

__all__ = ["H200", "interpret", "play", "play_entry"]

H200 = GpuTarget()
"""What tests plan for unless they say otherwise."""

_NUMPY = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "i64": "int64",
    "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32",
    "u16": "uint16", "u8": "uint8",
}  # fmt: skip


class _HostPointer:
    """An address in this process as the interpreter takes a tensor."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address

    def untyped_storage(self) -> _HostPointer:
        return self

    def cpu(self) -> _HostPointer:
        return self

    def copy_(self, _other: object) -> None:
        """It is the same memory."""

    def new_empty(self, *_shape: object, **_options: object) -> _HostPointer:
        return _HostPointer(self.address, self.dtype)

    def set_(self, *_storage: object) -> None:
        """It is the same memory."""

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def stride(self) -> tuple[int, ...]:
        return ()


@cache
def _round_to_bfloat16() -> None:
    """Let the interpreter round float32 to the nearest bfloat16, as GPUs do: it would truncate."""
    from triton import language as tl  # noqa: PLC0415 - it reads TRITON_INTERPRET at its import
    from triton.runtime.interpreter import (  # noqa: PLC0415
        InterpreterBuilder,
        TensorHandle,
    )

    truncate = InterpreterBuilder.cast_impl

    def cast(builder: Any, source: Any, to: Any) -> Any:  # noqa: ANN401 - Triton carries no types
        if source.dtype.scalar != tl.float32 or to.scalar != tl.bfloat16:
            return truncate(builder, source, to)
        return TensorHandle(source.data.astype(DType.BF16.numpy).view(np.uint16), to.scalar)

    InterpreterBuilder.cast_impl = cast


_INSTRUCTIONS = {"ex2.approx.ftz.f32": np.exp2, "rcp.approx.ftz.f32": np.reciprocal}
"""What PTX that functions name does, but for the last bits and subnormal numbers."""


@cache
def _run_instructions() -> None:
    """Let the interpreter do the inline assembly that there is."""
    from triton.runtime.interpreter import (  # noqa: PLC0415 - as above
        InterpreterBuilder,
        TensorHandle,
    )

    class AssemblyResults(NamedTuple):
        only: Any

        def get_result(self, place: int) -> Any:  # noqa: ANN401
            return self[place]

    def run(_builder: Any, text: str, _constraints: str, values: Any, kinds: Any, *_: Any) -> Any:  # noqa: ANN401
        (value,), (kind,) = values, kinds
        with np.errstate(all="ignore"):
            found = _INSTRUCTIONS[text.partition(" ")[0]](value.data)
        return AssemblyResults(TensorHandle(found, kind.scalar))

    InterpreterBuilder.create_inline_asm = run


_PATCHED: set[str] = set()  # modules whose functions replaced `triton.language`'s in this phase


@cache
def _patch_once() -> None:
    """Let functions replace those of `triton.language` once in a phase, not with each call."""
    from triton.runtime import interpreter  # noqa: PLC0415 - as above

    def call(function: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        if function.fn.__module__ not in _PATCHED:
            _PATCHED.add(function.fn.__module__)
            interpreter._patch_lang(function.fn)
        return function.rewrite()(*args, **named)

    interpreter.InterpretedFunction.__call__ = call


def play(entry: Entry, phase: Phase, bases: Sequence[int]) -> None:
    """Run one phase in the interpreter.

    Args:
        entry: The code of its config.
        phase: Its arguments.
        bases: Addresses of the entries of the table of bases.
    """
    places = {a.name: bases[a.ref.base] + a.ref.offset for a in phase.arguments}
    names = {*entry.integers, *entry.extra_integers}
    assert set(phase.integers) == names, f"integers {sorted(phase.integers)}, not {sorted(names)}"
    play_entry(entry, phase.chunks, {**places, **phase.integers})


def play_entry(
    entry: Entry, programs: int, arguments: Mapping[str, Any], offsets: Array | None = None
) -> None:
    """Run programs of an entry in the interpreter.

    Args:
        entry: The code.
        programs: Of the grid.
        arguments: Its integers, and the addresses of its pointers, by name.
        offsets: Of a grid with rows, int64 [rows, pointers]: see `ahead.ROWS`.
    """
    # Before what follows imports Triton, which decides then.
    os.environ["TRITON_INTERPRET"] = "1"
    _round_to_bfloat16()
    _run_instructions()
    _patch_once()
    quicken()
    _PATCHED.clear()
    if programs == 0:
        return
    kinds = dict((*entry.pointers, *entry.extra_pointers))
    places = {*arguments} - {*entry.integers, *entry.extra_integers}
    assert places == set(kinds), f"pointers {sorted(places)}, not {sorted(kinds)}"
    given = {
        name: _HostPointer(value, _NUMPY[kinds[name]]) if name in kinds else value
        for name, value in arguments.items()
    }
    grid: tuple[int, ...] = (programs,)
    if offsets is not None:
        grid = programs, len(offsets)
        given[ROWS] = _HostPointer(offsets.ctypes.data, "int64")
    with np.errstate(all="ignore"):
        function_of(entry, grains=None if offsets is None else {})[grid](**given)


def interpret(
    kernel: CudaKernel,
    call: Call,
    arrays: Sequence[Array],
    launches: Sequence[Launch] | None = None,
) -> tuple[Array, ...]:
    """Results of one kernel in logical order, after its guards were found untouched.

    Args:
        kernel: The kernel.
        call: The call, for a `GpuTarget`.
        arrays: Its operands, in logical order.
        launches: What to run, if not the best variant.

    Raises:
        ValueError: If the kernel does not support the call (the message is its reason).
        OutOfBoundsError: If the kernel writes into a guard band or an operand.
    """
    cuda_call: CudaCall = call  # type: ignore[assignment]  # its target is a GPU's
    reason = kernel.supports(cuda_call)
    if reason is not None:
        raise ValueError(reason)
    placed = GuardedMemory(call, arrays, packing.FUNCTIONS)
    phases = placed.phases(launches or kernel.launch(cuda_call))
    memory, guards = placed.filled()
    before = memory[guards].copy()
    for phase in phases:
        play(kernel.entry(phase.config), phase, [memory.ctypes.data])
    placed.check(before, memory, guards, kernel.name)
    return tuple(placed.result(memory, i) for i in range(len(call.outputs)))
