"""The CPU as a backend: its kernels, its code, its programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from saccade.codegen.target import Target, host_target
from saccade.ir import Graph, Op
from saccade.kernels import CPU_KERNELS
from saccade.kernels.base import CpuKernel
from saccade.options import Options
from saccade.plan import Plan
from saccade.processes import Processes
from saccade.runtime.constants import constants_of
from saccade.runtime.cpu.compiler import sources_digest
from saccade.runtime.cpu.driver import compile_driver, driver
from saccade.runtime.cpu.linker import link
from saccade.runtime.cpu.objects import Key, Objects, llvm_version
from saccade.runtime.cpu.program import Code, CpuProgram

__all__ = ["CpuBackend"]


class CpuBackend:
    """Kernels emitted as LLVM code for this machine, run by a team of threads."""

    def __init__(self, options: Options, processes: Processes) -> None:
        self.target: Target = host_target(options.isa)
        self.objects = Objects(self.target, checked=options.checked, disk=options.cache)
        self._processes = processes
        by_op: dict[type[Op], list[CpuKernel]] = defaultdict(list)
        for kernel in CPU_KERNELS:
            for op in kernel.ops:
                by_op[op].append(kernel)
        self._by_op: Mapping[type[Op], Sequence[CpuKernel]] = by_op

    def candidates(self, op: Op) -> Sequence[CpuKernel]:
        """Kernels for the operator's family."""
        return self._by_op.get(type(op), ())

    def available(self, kernel: str, config: object) -> bool:
        """Whether the code exists; for the first plan, everything counts as available."""
        return self.objects.empty or self.objects.has(kernel, config)

    @property
    def code(self) -> str:
        """Names everything that the speed of the code depends on, besides the machine."""
        return f"{sources_digest()[:16]} LLVM {llvm_version()}"

    def prepare(self, keys: Iterable[Key], processes: Processes) -> int:
        """Compile what there is no code for, and count it; `processes` are the caller's."""
        before = self.objects.compiled
        self.objects.get(keys, processes)
        return self.objects.compiled - before

    def build(self, plan: Plan, graph: Graph, identity: str) -> CpuProgram:
        """Compile what is missing, link, pack."""
        keys: list[Key] = [
            (step.kernel, phase.config)
            for step in plan.steps
            if step.kernel is not None
            for phase in step.phases
        ]
        try:
            files = self.objects.get(keys, self._processes)
            if self.objects.compiled and not driver.cache_info().currsize:
                # Where kernels had to be compiled, so has the driver: not in the user's memory.
                self._processes.map(compile_driver, [host_target()])
        finally:
            self._processes.close()
        unique = {f.symbol: f for f in files.values()}
        linked = link([f.code for f in unique.values()], unique)

        def code(kernel: str, config: object) -> Code:
            file = files[kernel, config]
            return Code(linked.addresses[file.symbol], file.accesses)

        constants = constants_of(graph, identity, plan.constants, plan.constants_read)
        return CpuProgram(plan, constants, code, linked)
