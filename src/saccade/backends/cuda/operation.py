"""One call of a kernel by itself, on memory that the caller owns: what operators stand on.

A program is many steps over one arena in a graph; an operation is the phases of a single call,
launched one after the other on the caller's stream. Everything that a launch reads (its
configuration, its arguments, their addresses) lies in one array of words. From run to run only the
addresses of operands change in it, and where a count is another one in every call (`trace`), the
numbers that follow from it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, NamedTuple, Protocol

from saccade.backends.cuda.ahead import AHEAD
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import CodeKey, code_key
from saccade.backends.cuda.runtime.driver import CudaDriver, PlacedLaunch
from saccade.backends.trace import Replay, SymbolicNumber, SymbolicTrace, larger
from saccade.errors import CompileError
from saccade.kernels.base import Launch, Packing, Temp
from saccade.kernels.bind import Binder, Phase, Ref
from saccade.kernels.cuda.base import CudaCall

__all__ = ["CudaOperation", "OperationHost", "Reports", "bound"]

_ALIGNMENT = 256  # bytes, of temporaries
_GRAIN = 16
"""Bytes that operands' addresses are taken for multiples of, unless they are seen not to be."""
_WARP = 32  # threads
_STREAM, _ATTRIBUTES = 4, 5
"""Words of a CUlaunchConfig. The first three are the grid and the block, then comes shared memory;
the last says whether there are attributes."""
_HIGH = 1 << 32
"""1 in the upper half of a word."""
_CHAINED = (6, 1, *[0] * 7)
"""A CUlaunchAttribute: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION is allowed."""
_SCRATCH = 2
"""Pointers that Triton's code takes behind its own: for the device's scratch and the profiler's."""


class Reports(Protocol):
    """Where runs say how many boxes name an image that is not there."""

    def place(self, family: str) -> int:
        """Address of an int32 that the GPU may write, for one run of an operator."""

    def settle(self, stream: int) -> None:
        """Called after each run."""


class OperationHost(Protocol):
    """Whose memory and stream operations use."""

    @property
    def driver(self) -> CudaDriver:
        """Of the GPU."""

    @property
    def reports(self) -> Reports:
        """Of the GPU."""

    def codes(self, keys: Iterable[CodeKey]) -> list[tuple[Cubin, int]]:
        """Code and loaded functions.

        Raises:
            CompileError: If there is none.
        """

    def stream(self) -> int:
        """The caller's."""

    def take(self, nbytes: int) -> tuple[int, object]:
        """An address, and what keeps the memory for work on that stream."""


class _Fixed(NamedTuple):
    """An operation's words as far as they are the same for all runs.

    Attributes:
        words: The words.
        own: Places of addresses of other words, with these words' places.
        launches: Of each the place of its configuration, its function, the place of its table.
    """

    words: array[int]
    own: list[tuple[int, int]]
    launches: list[tuple[int, int, int]]


class _LaunchWords:
    """The words of one run."""

    def __init__(self, fixed: _Fixed) -> None:
        self.filled: int | None = None
        self.sizes: tuple[int, ...] = ()
        self.stream = 0
        self.words = words = fixed.words[:]
        base, _ = words.buffer_info()
        for at, target in fixed.own:
            words[at] = base + 8 * target
        self._launches = [
            PlacedLaunch(base + 8 * config, function, base + 8 * table)
            for config, function, table in fixed.launches
        ]
        self.launches = self._launches

    def fill(self, fill: Replay, count: int) -> bool:
        """Put the numbers for a count in place; False where they do not follow from it."""
        sizes = fill(self.words, count)
        if sizes is None:
            return False
        self.sizes, self.filled = sizes, count
        programs = sizes[-len(self._launches) :]
        # CUDA refuses a grid without programs.
        self.launches = [one for one, n in zip(self._launches, programs, strict=True) if n]
        return True


def bound(
    kernel: str, call: CudaCall, launches: Sequence[Launch], grains: Sequence[int] = ()
) -> tuple[list[int], list[Phase], list[CodeKey]]:
    """Bytes of each temporary; the phases, whose arguments are cells (`_CallCells`); their code.

    Args:
        kernel: As `CudaOperation` has it, as the others.
        call: The same.
        launches: The same.
        grains: The same.
    """
    binder = Binder(1, alignment=_ALIGNMENT, larger=larger)
    temps = binder.workspace(launches).temps
    cells = _CallCells(call, {index: number for number, index in enumerate(temps)}, grains)
    phases = [binder.phase(launch, cells) for launch in launches]
    return [*temps.values()], phases, [code_key(kernel, phase) for phase in phases]


class CudaOperation:
    """The phases of a call; any number of runs at once.

    Args:
        host: Memory, stream, code.
        kernel: Its name.
        call: Operands and results; none of them constant.
        launches: Its phases, one at least. What depends on the count of a trace is a
            `SymbolicNumber`.
        report: Whether the last result is one int32 that goes to `host.reports`.
        trace: Where the numbers come from.
        grains: Of each operand and result what its address is more than a multiple of 16.

    Raises:
        CompileError: If there is no code.
        UntraceableError: If code depends on a number of the trace.
    """

    def __init__(
        self,
        host: OperationHost,
        kernel: str,
        call: CudaCall,
        launches: Sequence[Launch],
        *,
        report: bool = False,
        trace: SymbolicTrace | None = None,
        grains: Sequence[int] = (),
    ) -> None:
        self._host, self._kernel, self._call = host, kernel, call
        self._launches, self._report, self._trace = launches, report, trace
        self._operands = len(call.inputs) + len(call.outputs)
        temps, phases, keys = bound(kernel, call, launches, grains)
        codes = host.codes(keys)
        total: Any = 0
        places = []
        for nbytes in temps:
            places.append(total)
            total += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        # `_LaunchWords.fill` counts the programs from behind.
        sizes = (total, *places, *(phase.chunks for phase in phases))
        self._temps = len(temps)
        self._put = Struct(f"{self._operands + len(temps)}q").pack_into
        self._fixed, numbers = self._laid(phases, codes)
        self._fill: Replay = (lambda *_: sizes) if trace is None else trace.replay(numbers, sizes)
        self._idle: list[_LaunchWords] = []
        self._others: dict[tuple[int, ...], CudaOperation] = {}

    def _laid(
        self, phases: Sequence[Phase], codes: Sequence[tuple[Cubin, int]]
    ) -> tuple[_Fixed, dict[int, SymbolicNumber]]:
        """Words, and what a trace puts where: cells of operands and temporaries come first."""
        zero = self._operands + self._temps
        attribute = zero + 1
        words: list[Any] = [0] * attribute + list(_CHAINED)
        own: list[tuple[int, int]] = []
        launches = []
        for phase, (cubin, function) in zip(phases, codes, strict=True):
            if cubin.descriptors:
                raise CompileError(f"{self._kernel} takes tensor maps: operators have none")
            config = len(words)
            words += [
                phase.chunks + _HIGH, 1 + _WARP * cubin.warps * _HIGH, 1 + _HIGH, cubin.shared,
                0, 0, int(cubin.chained),
            ]  # fmt: skip
            if cubin.chained:
                own.append((config + _ATTRIBUTES, attribute))
            cells = {argument.name: argument.ref.base for argument in phase.arguments}
            table: list[int] = []
            for name in cubin.parameters:
                if name in cells:
                    table.append(cells[name])
                else:
                    table.append(len(words))
                    words.append(0 if name in AHEAD else phase.integers[name])
            table += [zero] * _SCRATCH
            own += [(len(words) + i, target) for i, target in enumerate(table)]
            launches.append((config, function, len(words)))
            words += [0] * len(table)
        numbers = {at: word for at, word in enumerate(words) if isinstance(word, SymbolicNumber)}
        plain = array("q", [0 if isinstance(word, SymbolicNumber) else word for word in words])
        return _Fixed(plain, own, launches), numbers

    def fits(self, count: int) -> bool:
        """Whether it can run for a count: always without a trace."""
        context = self._context()
        try:
            return context.fill(self._fill, count)
        finally:
            self._idle.append(context)

    def _context(self) -> _LaunchWords:
        try:
            return self._idle.pop()  # one step of the interpreter: no two threads get the same
        except IndexError:
            return _LaunchWords(self._fixed)

    def run(self, count: int, pointers: Sequence[int]) -> int:
        """Put it on the caller's stream, with operands, then results, at these addresses.

        Args:
            count: One that fits.
            pointers: Addresses, without that of the report.

        Returns:
            0: what is to report comes later (`Reports`).

        Raises:
            DeviceError: If the GPU was lost.
        """
        bits = 0
        for pointer in pointers:
            bits |= pointer
        if bits % _GRAIN:
            return self._beside(tuple(pointer % _GRAIN for pointer in pointers)).launch(
                count, pointers
            )
        return self.launch(count, pointers)

    def launch(self, count: int, pointers: Sequence[int]) -> int:
        """The same where the addresses are as `grains` says."""
        host = self._host
        context = self._context()
        try:
            if context.filled != count:
                context.fill(self._fill, count)
            nbytes, *rest = context.sizes
            if self._report:
                pointers = (*pointers, host.reports.place(self._call.op.family))
            block, kept = host.take(nbytes) if nbytes else (0, None)
            temps = [block + offset for offset in rest[: self._temps]]
            words = context.words
            self._put(words, 0, *pointers, *temps)
            stream = host.stream()
            if stream != context.stream:
                for config, _, _ in self._fixed.launches:
                    words[config + _STREAM] = stream
                context.stream = stream
            host.driver.launch_placed(context.launches)
            del kept  # whoever takes it next does so on the same stream
            if self._report:
                host.reports.settle(stream)
        finally:
            self._idle.append(context)
        return 0

    def _beside(self, grains: tuple[int, ...]) -> CudaOperation:
        """The same for operands that begin between multiples of 16 bytes."""
        found = self._others.get(grains)
        if found is None:
            found = self._others[grains] = CudaOperation(
                self._host, self._kernel, self._call, self._launches, report=self._report,
                trace=self._trace, grains=grains,
            )  # fmt: skip
        return found


class _CallCells:
    """The caller's arrays, then temporaries: each has a cell for its address."""

    def __init__(self, call: CudaCall, temps: dict[int, int], grains: Sequence[int]) -> None:
        self._inputs, self._temps = len(call.inputs), temps
        self._operands = self._inputs + len(call.outputs)
        self._grains = (*grains, *[0] * (self._operands - len(grains)))

    def input(self, index: int) -> Ref:
        return Ref(index, self._grains[index], 0)

    def output(self, index: int) -> Ref:
        return self.input(self._inputs + index)

    def packed(self, packing: Packing) -> Ref:
        raise TypeError(f"an operation has no packed constants: {packing}")

    def temp(self, operand: Temp) -> Ref:
        return Ref(self._operands + self._temps[operand.index], 0, 0)

    def scratch(self, before: int, nbytes: int) -> Ref:
        raise TypeError(f"programs of a grid have no scratch: {nbytes} bytes behind {before}")
