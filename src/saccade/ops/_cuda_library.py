"""Operators on NVIDIA GPUs: chooses the kernel, compiles it once, launches it on PyTorch's stream.

Each GPU has one library. Memory for temporaries is PyTorch's, so that its allocator knows of all;
compiled code is the engine's, on disk as well. Nothing here waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import torch

from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import CodeKey, Cubins
from saccade.backends.cuda.gpus import Gpu, nearest_gpu
from saccade.backends.cuda.operation import CudaOperation, bound
from saccade.backends.cuda.runtime.context import DeviceContext, open_device
from saccade.backends.cuda.runtime.driver import CudaDriver
from saccade.backends.cuda.target import GpuTarget
from saccade.backends.trace import SymbolicTrace
from saccade.errors import OperandError, OptionError
from saccade.ir import Op
from saccade.kernels.base import Launch, View
from saccade.kernels.cuda import kernels_for
from saccade.kernels.cuda.base import CudaCall, selectable
from saccade.kernels.select import Candidate, Candidates
from saccade.ops._cuda_reports import CudaReports
from saccade.processes import Processes

__all__ = ["Compiler", "CudaLibrary", "OfflineLibrary", "cubins_of", "cuda_library"]


class Compiler:
    """Chooses kernels for one kind of GPU, and compiles them; the GPU need not be here.

    Args:
        known: Its description.
        cubins: Where code is and goes.
        tf32: Whether products of float32 may round their operands to TF32.
    """

    def __init__(self, known: Gpu, cubins: Cubins, *, tf32: bool = False) -> None:
        self._target = GpuTarget(known.arch, known.multiprocessors, known.shared, tf32, known.name)
        self._cubins, self._processes = cubins, Processes()

    def launches(
        self, op: Op, inputs: tuple[View, ...], outputs: tuple[View, ...]
    ) -> tuple[CudaCall, str, tuple[Launch, ...]]:
        """The call, the cheapest kernel for it whose code can be had, and its phases.

        Raises:
            OptionError: If no kernel takes the call.
        """
        # Weights may change from call to call: nothing can be packed beforehand.
        call = CudaCall(op, inputs, outputs, (False,) * len(inputs), self._target)
        found = Candidates.of(call, selectable(kernels_for(op.family)), 1)
        if not found.able:
            reasons = "; ".join(map(str, found.refused))
            raise OptionError(f"no kernel takes {op.family} ({reasons})")
        ranked = sorted(found.able, key=lambda one: one.best.micros)
        chosen = next((one for one in ranked if self._reachable(call, one)), ranked[0])
        return call, chosen.kernel.name, tuple(chosen.best.launches)

    def _reachable(self, call: CudaCall, candidate: Candidate) -> bool:
        """Whether its code is there or can be compiled: PyTorch may bring an older Triton."""
        launches = tuple(candidate.best.launches)
        return self._cubins.reachable(bound(candidate.kernel.name, call, launches)[2])

    def codes(self, keys: Iterable[CodeKey]) -> list[Cubin]:
        """Code; what is missing is compiled side by side.

        Raises:
            CompileError: If there is no Triton, or if it cannot compile a kernel.
        """
        wanted = list(keys)
        try:
            found = self._cubins.get(wanted, self._processes)
        finally:
            # Or the fork server would live on beside the caller, for kernels that may never come.
            self._processes.close()
        return [found[key] for key in wanted]


class CudaLibrary:
    """A GPU's kernels, and what runs of them use.

    Args:
        device: The GPU.
        compiler: For it.
        place: What PyTorch calls it.
    """

    def __init__(self, device: DeviceContext, compiler: Compiler, place: torch.device) -> None:
        self._device, self._compiler, self._place = device, compiler, place
        self.driver: CudaDriver = device.driver
        self.reports = CudaReports(self.driver)

    def make(
        self,
        op: Op,
        inputs: tuple[View, ...],
        outputs: tuple[View, ...],
        threads: int,
        *,
        report: bool = False,
        trace: SymbolicTrace | None = None,
    ) -> CudaOperation:
        """The operation of a new call: see `_library.Library.make`."""
        del threads
        call, kernel, launches = self._compiler.launches(op, inputs, outputs)
        return CudaOperation(self, kernel, call, launches, report=report, trace=trace)

    def codes(self, keys: Iterable[CodeKey]) -> list[tuple[Cubin, int]]:
        """Code and loaded functions."""
        cubins = self._compiler.codes(keys)
        with self.driver.current():
            return [(cubin, self._device.load(cubin)) for cubin in cubins]

    def stream(self) -> int:
        """PyTorch's current one on this GPU, in this thread."""
        stream: int = torch._C._cuda_getCurrentRawStream(self._place.index)
        return stream

    def take(self, nbytes: int) -> tuple[int, object]:
        """Memory of PyTorch's allocator, for work on the current stream."""
        block = torch.empty(nbytes, dtype=torch.uint8, device=self._place)
        return block.data_ptr(), block


class _Compiled:
    """An operation that nobody runs."""

    def fits(self, count: int) -> bool:
        """For any count."""
        return count >= 0

    def run(self, count: int, pointers: Sequence[int]) -> int:
        """Refused: there is no memory on `meta`."""
        raise OperandError(f"{len(pointers)} tensors on meta have no contents, {count} boxes")


class OfflineLibrary:
    """Compiles what calls would run on a GPU that need not be here.

    Args:
        compiler: For it.

    Attributes:
        found: All code that was asked for.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self.found: dict[CodeKey, Cubin] = {}

    def make(
        self,
        op: Op,
        inputs: tuple[View, ...],
        outputs: tuple[View, ...],
        threads: int,
        *,
        report: bool = False,
        trace: SymbolicTrace | None = None,
    ) -> _Compiled:
        """Compile a new call: see `_library.Library.make`."""
        del threads, report, trace
        call, kernel, launches = self._compiler.launches(op, inputs, outputs)
        _, _, keys = bound(kernel, call, launches)
        self.found |= dict(zip(keys, self._compiler.codes(keys), strict=True))
        return _Compiled()


@cache
def cuda_library(ordinal: int, tf32: bool) -> CudaLibrary:
    """The library of one of this process's GPUs.

    Args:
        ordinal: PyTorch's number of it, which is the driver's.
        tf32: Whether products of float32 may round their operands to TF32.

    Raises:
        DeviceError: If the GPU cannot be used.
        OptionError: If it is older than all that are known.
    """
    device = open_device(ordinal)
    facts = device.driver.facts
    known = nearest_gpu(facts.name, facts.arch, facts.multiprocessors)
    compiler = Compiler(known, cubins_of(known.arch), tf32=tf32)
    return CudaLibrary(device, compiler, torch.device("cuda", ordinal))


@cache
def cubins_of(arch: int) -> Cubins:
    """The process's code of operators for an architecture."""
    return Cubins(arch)
