"""Run one kernel alone: what every kernel's tests and measurements stand on.

`run_kernel` places the operands in one block with guard bands around every buffer, poisons results,
temporaries and scratch with NaN (`guarded`), plays the phases on a simulated team (one OS thread
plays every logical thread, in a given order, each with its own share of the chunks), and checks
guards and faults.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import numpy as np

from saccade.backends.cpu.codegen.calling import CONTEXT_WORDS, COUNTER_WORDS
from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.codegen.parameters import Parameters
from saccade.backends.cpu.runtime.linker import Linked, link
from saccade.backends.cpu.target import Target, host_target
from saccade.errors import OutOfBoundsError
from saccade.ir import Array, DType, Op
from saccade.kernels.base import Launch, Scratch, View
from saccade.kernels.cpu import packing
from saccade.kernels.cpu.base import CpuCall, CpuKernel, single_variant
from saccade.layout.views import row_major
from saccade.locks import cached_property
from saccade.testing import emulate
from saccade.testing.guarded import GuardedMemory
from saccade.testing.targets import runnable_target

__all__ = [
    "CompiledLaunch",
    "Prepared",
    "anyhow",
    "check_scratch",
    "compile_launch",
    "launched_as",
    "mistaken",
    "nchw_view",
    "nhwc_view",
    "off_by",
    "prepare",
    "row_major",
    "run_kernel",
]

_THREADS = 8  # logical ones that there is scratch for


nchw_view = row_major


def nhwc_view(dtype: DType, shape: Sequence[int], pitch: int | None = None) -> View:
    """Channels-last storage; `pitch` elements from pixel to pixel, else the channel count."""
    _, c, h, w = shape
    p = c if pitch is None else pitch
    return View(dtype, tuple(shape), (h * w * p, 1, w * p, p))


def anyhow(chance: Random, dtype: DType, shape: Sequence[int]) -> View:
    """Storage with axes in any order, gaps after some."""
    order = list(range(len(shape)))
    chance.shuffle(order)
    strides, step = [0] * len(shape), chance.choice([1, 1, 2])
    for axis in order:
        strides[axis] = step
        step = step * shape[axis] + chance.choice([0, 0, 3, 8])
    return View(dtype, tuple(shape), tuple(strides))


class CompiledLaunch(NamedTuple):
    """The code of one phase.

    Attributes:
        code: An object file with the symbol `kernel`.
        parameters: Of the function.
        accesses: Names, by their numbers in fault records.
        scratches: Names of the buffers of which each thread has its own.
    """

    code: bytes
    parameters: Parameters
    accesses: list[str]
    scratches: frozenset[str]


def compile_launch(
    kernel: CpuKernel, launch: Launch, target: Target, checked: bool
) -> CompiledLaunch:
    """The code of one phase."""
    builder = KernelBuilder("kernel", target, checked=checked)
    kernel.emit(builder, launch.config)
    code = object_code(str(builder.finish()), target)
    scratches = frozenset(builder.scratches)
    return CompiledLaunch(code, builder.parameters, builder.accesses, scratches)


def check_scratch(launch: Launch, compiled: CompiledLaunch) -> None:
    """Raise if threads would share what is meant for each of them.

    Teams of these tests run one thread after the other, and would not see that.
    """
    meant = {name for name, operand in launch.operands.items() if isinstance(operand, Scratch)}
    shared = meant - compiled.scratches if launch.chunks > 1 else ()
    assert not shared, f"{sorted(shared)}: scratch that `k.scratch` does not declare"


@dataclass
class Prepared:
    """A kernel ready to run on given operands; `run` may be repeated and timed."""

    codes: list[bytes]
    emulated: bool
    launches: tuple[Launch, ...]
    args: list[Array]
    bases: Array
    memory: Array
    fault: Array
    accesses: list[list[str]]
    placed: GuardedMemory
    guards: Array

    @cached_property
    def _linked(self) -> list[Linked]:
        return [link([code], ["kernel"]) for code in self.codes]

    def run(self, threads: int = 1, order: Sequence[int] | None = None) -> None:
        """Play every phase on `threads` logical threads, in `order`.

        Raises:
            OutOfBoundsError: If checked code leaves a buffer.
        """
        order = tuple(order or range(threads))
        self.fault[:] = 0  # or a second run would raise what the first one found
        if self.emulated:
            phase, fault = emulate.play(
                emulate.EmulatedRun(self.codes, self.args, self.memory, order)
            )
            self._raise(phase, fault)
            return
        for phase, (linked, args) in enumerate(zip(self._linked, self.args, strict=True)):
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
                linked.addresses["kernel"]
            )
            # Anew for each phase: threads take their chunks by them, from 0.
            counters = np.zeros(threads * COUNTER_WORDS, np.int64)
            for thread in order:
                context = np.array(
                    [
                        self.bases.ctypes.data,
                        counters.ctypes.data,
                        threads,
                        thread,
                        self.fault.ctypes.data,
                        1,
                    ],
                    np.int64,
                )
                assert len(context) == CONTEXT_WORDS
                function(args.ctypes.data, context.ctypes.data)
                self._raise(phase, self.fault)

    def _raise(self, phase: int, fault: Sequence[int] | Array) -> None:
        access, offset, length = (int(v) for v in fault[:3])
        if access:
            name = self.accesses[phase][access - 1]
            raise OutOfBoundsError(f"access {name}[{offset}] of a buffer of {length} elements")

    def result(self, index: int) -> Array:
        """Output `index` in logical order, copied."""
        return self.placed.result(self.memory, index)


def prepare(
    kernel: CpuKernel,
    op: Op,
    arrays: Sequence[Array],
    outputs: Sequence[View],
    *,
    inputs: Sequence[View] | None = None,
    constant: Sequence[bool] | None = None,
    isa: str | Target = "native",
    checked: bool = False,
    threads: int = 1,
    exact: bool = False,
) -> Prepared:
    """Compile a kernel for `op` over `arrays` (logical order; stored as `inputs`, or row-major).

    It is planned for `isa`, a target, or as `runnable_target` names it.

    Raises:
        OptionError: If this machine cannot run `isa`.
        ValueError: If the kernel does not support the call (the message is its reason).
    """
    views = tuple(inputs or (row_major(DType.of(a.dtype), a.shape) for a in arrays))
    target = isa if isinstance(isa, Target) else runnable_target(isa)
    known = tuple(constant or (False,) * len(views))
    call = CpuCall(op, views, tuple(outputs), known, target, threads, exact)
    reason = kernel.supports(call)
    if reason is not None:
        raise ValueError(reason)
    launches = kernel.launch(call)
    placed = GuardedMemory(call, arrays, packing.FUNCTIONS, _THREADS)
    phases = placed.phases(launches)
    memory, guards = placed.filled()
    compiled = [compile_launch(kernel, launch, target, checked) for launch in launches]
    for launch, one in zip(launches, compiled, strict=True):
        check_scratch(launch, one)
    return Prepared(
        [one.code for one in compiled],
        _foreign(target.isa),
        launches,
        [
            np.array(one.parameters.words(phase), np.int64)
            for phase, one in zip(phases, compiled, strict=True)
        ],
        np.array([memory.ctypes.data], np.int64),
        memory,
        np.zeros(3, np.int64),
        [one.accesses for one in compiled],
        placed,
        guards,
    )


def _foreign(isa: str) -> bool:
    return isa == "neon" and host_target().isa != "neon"


def launched_as(kernel: CpuKernel, launch: Callable[[CpuCall], tuple[Launch, ...]]) -> CpuKernel:
    """The kernel with one variant for a call: for forced variants and planted mistakes."""
    return replace(kernel, variants=single_variant(launch, kernel.cost))


def off_by(kernel: CpuKernel, name: str, by: int = 1, at: int = 0) -> CpuKernel:
    """The kernel with a planted mistake: an integer of every phase that has it is `by` more.

    Of an array that is element number `at`.
    """

    def wrong(call: CpuCall) -> tuple[Launch, ...]:
        phases = kernel.launch(call)
        assert any(name in phase.integers for phase in phases), name
        return tuple(mistaken(p, name, by, at) if name in p.integers else p for p in phases)

    return launched_as(kernel, wrong)


def mistaken(phase: Launch, name: str, by: int = 1, at: int = 0) -> Launch:
    """The phase with an integer that is `by` more, or of an array element number `at`."""
    value = phase.integers[name]
    if isinstance(value, tuple):
        words = list(value)
        words[at] += by
        return replace(phase, integers={**phase.integers, name: tuple(words)})
    return replace(phase, integers={**phase.integers, name: value + by})


def run_kernel(
    kernel: CpuKernel,
    op: Op,
    arrays: Sequence[Array],
    outputs: Sequence[View],
    *,
    inputs: Sequence[View] | None = None,
    constant: Sequence[bool] | None = None,
    isa: str | Target = "native",
    checked: bool = False,
    threads: int = 1,
    order: Sequence[int] | None = None,
    exact: bool = False,
) -> tuple[Array, ...]:
    """Results of one kernel in logical order, after its guards were found untouched.

    Raises:
        ValueError: If the kernel does not support the call.
        OutOfBoundsError: If a checked kernel leaves a buffer, or any kernel writes into a guard
            band or an input.
    """
    ready = prepare(
        kernel, op, arrays, outputs, inputs=inputs, constant=constant, isa=isa, checked=checked,
        threads=threads, exact=exact,
    )  # fmt: skip
    before = ready.memory[ready.guards].copy()
    ready.run(threads, order)
    ready.placed.check(before, ready.memory, ready.guards, kernel.name)
    return tuple(ready.result(i) for i in range(len(outputs)))
