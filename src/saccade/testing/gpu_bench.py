"""Runs variants of kernels on a GPU, in guarded memory and in checked mode.

Between guards (`guarded`), a write that leaves its buffer shows. So does a read whose value went
into a result: the guards are once an ordinary number and once NaN, and results must be the same
bits. Apart, each buffer is an allocation of its size, and results and workspaces are left as the
driver gives them: `compute-sanitizer` then sees every access that leaves one, and every read of
what was never written. In checked mode the code itself looks (`codegen.checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from saccade.backends.cuda.codegen.checked import TABLE_HEAD
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import CodeKey, code_key
from saccade.backends.cuda.runtime.driver import CudaDriver
from saccade.backends.cuda.runtime.graph import Launches, PhaseCode, check_arguments
from saccade.backends.cuda.runtime.tensor_maps import reach
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import OutOfBoundsError
from saccade.ir import Array
from saccade.kernels.bind import Phase, Ref
from saccade.testing.gpu_cases import GpuCase, placed
from saccade.testing.gpu_code import GpuCode
from saccade.testing.guarded import GuardedBuffer, GuardedMemory

__all__ = ["NOT_A_NUMBER", "NUMBER", "GpuBench", "expect_maps_inside", "expect_no_fault"]

NUMBER, NOT_A_NUMBER = 0xA5, 0xFF
"""Bytes of guards that are small negative numbers, and NaN, in every type of floats."""
_LINE = 16
"""Bytes: a vector that begins at a multiple of its size may end behind a buffer's last element, but
not behind the line that this is in."""
_SCRATCH = -2
"""Place of the argument that takes a table of buffers in checked code."""


@dataclass(frozen=True)
class _Bound:
    """A variant's phases over device memory.

    Attributes:
        phases: Their arguments go by the table of bases.
        bases: Addresses.
        buffers: For each buffer its first address and the one past its last.
        names: What the code calls them.
    """

    phases: list[Phase]
    bases: list[int]
    buffers: list[tuple[int, int]]
    names: list[str]


class GpuBench:
    """One GPU, one context, code of many kernels.

    Args:
        driver: Of the GPU.
        target: What kernels are planned for.
        code: Gives a kernel's code.
        apart: Whether each buffer is an allocation of its own.
    """

    def __init__(
        self,
        driver: CudaDriver,
        target: GpuTarget,
        code: Callable[[CodeKey], GpuCode],
        *,
        apart: bool = False,
    ) -> None:
        self.driver, self.target, self.apart = driver, target, apart
        self._code = code
        self._functions: dict[tuple[CodeKey, bool], int] = {}
        self._block, self._room = 0, 0
        with driver.current():
            self._stream = driver.make_stream()

    def run(
        self, one: GpuCase, *, checked: bool = False, pattern: int = NUMBER
    ) -> tuple[Array, ...]:
        """Results of a variant in logical order.

        Args:
            one: The variant.
            checked: Whether its checked code runs.
            pattern: Every byte of the guards.

        Raises:
            OutOfBoundsError: If it wrote beside a buffer, or into an operand; checked, if an access
                left the buffers, which is then named.
            DeviceError: If it took the context with it.
        """
        memory, phases = placed(one, self.target)
        with self.driver.current():
            if self.apart:
                return self._run_apart(one, memory, phases, checked=checked)
            return self._run_guarded(one, memory, phases, pattern, checked=checked)

    def _run_guarded(
        self,
        one: GpuCase,
        memory: GuardedMemory,
        phases: list[Phase],
        pattern: int,
        *,
        checked: bool,
    ) -> tuple[Array, ...]:
        content, guards = memory.filled(pattern)
        before = content[guards].copy()
        base = self._grown(content.nbytes)
        self._upload(base, content)
        buffers = [(base + b.offset, base + b.offset + b.nbytes) for b in memory.buffers()]
        names = _names(phases, memory.buffers())
        self._play(one, _Bound(phases, [base], buffers, names), checked=checked)
        self._download(content, base)
        memory.check(before, content, guards, one.kernel)
        return tuple(memory.result(content, i) for i in range(len(memory.call.outputs)))

    def _run_apart(
        self, one: GpuCase, memory: GuardedMemory, phases: list[Phase], *, checked: bool
    ) -> tuple[Array, ...]:
        buffers = memory.buffers()
        with self._allocated([_whole_lines(buffer.nbytes) for buffer in buffers]) as bases:
            for base, buffer in zip(bases, buffers, strict=True):
                if buffer.content is not None:
                    # The rest of the last line may be read but must not matter: NaN would show it.
                    whole = _whole_lines(buffer.nbytes)
                    self.driver.fill(base, NOT_A_NUMBER, whole, self._stream)
                    self._upload(base, buffer.content)
            ends = [(base, base + b.nbytes) for base, b in zip(bases, buffers, strict=True)]
            names = _names(phases, buffers)
            self._play(one, _Bound(_moved(phases, buffers), bases, ends, names), checked=checked)
            content, _ = memory.filled()
            for i, view in enumerate(memory.call.outputs):
                ref = memory.output(i)
                number = next(n for n, b in enumerate(buffers) if b.offset == ref.offset)
                if view.extent:
                    self._download(content[ref.offset : ref.offset + ref.nbytes], bases[number])
        return tuple(memory.result(content, i) for i in range(len(memory.call.outputs)))

    def _play(self, one: GpuCase, bound: _Bound, *, checked: bool) -> None:
        """Launch the phases one after the other, and wait."""
        # CUDA refuses a grid without programs.
        busy = [phase for phase in bound.phases if phase.chunks]
        codes, accesses = [], []
        for number, phase in enumerate(busy):
            key = code_key(one.kernel, phase)
            code = self._code(key)
            cubin = code.checked.cubin if checked else code.plain
            accesses.append(code.checked.accesses)
            function = self._function(key, cubin, checked=checked)
            expect_maps_inside(phase, cubin)
            codes.append(check_arguments(PhaseCode(number, phase, cubin, function)))
        launches = Launches(codes, len(bound.bases), self.driver.encoders)
        launches.point(np.array(bound.bases, np.int64))
        tables = [_table(bound.buffers) for _ in busy] if checked else []
        with self._allocated([table.nbytes for table in tables]) as places:
            # Without checks there are no tables.
            for launch, table, place in zip(launches.each, tables, places, strict=False):
                self._upload(place, table)
                launch.values[_SCRATCH] = place
            for launch in launches.each:
                self.driver.launch(launch, self._stream)
            self.driver.wait_stream(self._stream)
            for table, place, names in zip(tables, places, accesses, strict=False):
                self._download(table, place)
                expect_no_fault(one.kernel, table, names, bound.names)

    def _function(self, key: CodeKey, cubin: Cubin, *, checked: bool) -> int:
        if (key, checked) not in self._functions:
            loaded = self.driver.load(cubin.code, cubin.symbol, cubin.shared)
            self._functions[key, checked] = loaded
        return self._functions[key, checked]

    def _upload(self, address: int, content: Array) -> None:
        if content.nbytes:
            # The copy may still be on its way, and the array gone, once the caller goes on.
            self.driver.upload(address, content.ctypes.data, content.nbytes, self._stream)
            self.driver.wait_stream(self._stream)

    def _download(self, content: Array, address: int) -> None:
        if content.nbytes:
            self.driver.download(content.ctypes.data, address, content.nbytes, self._stream)
            self.driver.wait_stream(self._stream)

    def _grown(self, nbytes: int) -> int:
        """The block that all guarded memory is in, one after the other."""
        if nbytes > self._room:
            if self._room:
                self.driver.free(self._block)
            # Where the allocation fails, nobody may go on with the block that was freed.
            self._room = 0
            # Twice, so that cases of growing sizes seldom allocate.
            self._block = self.driver.allocate(2 * nbytes)
            self._room = 2 * nbytes
        return self._block

    @contextmanager
    def _allocated(self, sizes: Sequence[int]) -> Iterator[list[int]]:
        """Memory for each size, given back behind the block unless the GPU was lost in it."""
        bases: list[int] = []
        try:
            bases.extend(self.driver.allocate(max(nbytes, 1)) for nbytes in sizes)
            yield bases
        finally:
            if self.driver.lost is None:
                for base in bases:
                    self.driver.free(base)


def _names(phases: Sequence[Phase], buffers: Sequence[GuardedBuffer]) -> list[str]:
    """What the phases' code calls each buffer; empty for what none of them takes."""
    found: dict[int, dict[str, None]] = {buffer.offset: {} for buffer in buffers}
    for phase in phases:
        for argument in phase.arguments:
            found[argument.ref.offset][argument.name] = None
    return ["/".join(names) for names in found.values()]


def _moved(phases: Sequence[Phase], buffers: Sequence[GuardedBuffer]) -> list[Phase]:
    """The phases, with a base for each buffer."""
    numbers = {buffer.offset: number for number, buffer in enumerate(buffers)}
    return [
        phase._replace(
            arguments=tuple(
                a._replace(ref=Ref(numbers[a.ref.offset], 0, a.ref.nbytes)) for a in phase.arguments
            ),
        )
        for phase in phases
    ]


def _table(buffers: Sequence[tuple[int, int]]) -> Array:
    """A table of buffers as checked code reads it."""
    head = [0] * (TABLE_HEAD - 1) + [len(buffers)]
    ends = ((first, _whole_lines(end)) for first, end in buffers)
    return np.array([*head, *(end for pair in ends for end in pair)], np.int64)


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def expect_maps_inside(phase: Phase, cubin: Cubin) -> None:
    """Hold what tensor maps reach against their operands; nothing else bounds loads by TMA.

    Raises:
        OutOfBoundsError: If one reaches further.
    """
    rooms = {argument.name: argument.ref.nbytes for argument in phase.arguments}
    for descriptor in cubin.descriptors:
        nbytes = reach(descriptor, phase.integers)
        if nbytes > rooms[descriptor.name]:
            raise OutOfBoundsError(
                f"{cubin.symbol}: the tensor map of {descriptor.name} has {nbytes} bytes, the "
                f"operand {rooms[descriptor.name]}"
            )


def expect_no_fault(
    kernel: str, table: Array, accesses: Sequence[str], names: Sequence[str]
) -> None:
    """Look at a table of buffers after a run of checked code.

    Args:
        kernel: Whose code.
        table: What the run left.
        accesses: See `CheckedCubin`.
        names: What the code calls the buffers.

    Raises:
        OutOfBoundsError: If an access was refused: what it is, its line, and where it went.
    """
    number, address = int(table[0]), int(table[1])
    if not number:
        return
    ends = table[TABLE_HEAD:].reshape(-1, 2).tolist()
    away = [max(first - address, address - end, 0) for first, end in ends]
    nearest = away.index(min(away))
    first, end = ends[nearest]
    raise OutOfBoundsError(
        f"{kernel}: {accesses[number - 1]} leaves the buffers: byte {address - first} of the "
        f"{end - first} of {names[nearest] or 'a buffer'}"
    )
