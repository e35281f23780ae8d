"""NVIDIA's GPUs as a backend: kernels in Triton, compiled anywhere, run as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from saccade.backends.cuda.batches import keys_of, whole_keys
from saccade.backends.cuda.beside import bodies_of
from saccade.backends.cuda.bundle import bundle_entries
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.codegen.disassemble import disassembled
from saccade.backends.cuda.cubins import CodeKey, Cubins
from saccade.backends.cuda.fusions.decide import CudaFusions
from saccade.backends.cuda.gpus import Gpu, gpu, nearest_gpu
from saccade.backends.cuda.runtime.context import open_device
from saccade.backends.cuda.runtime.program import CudaProgram
from saccade.backends.cuda.target import GpuTarget
from saccade.errors import OptionError
from saccade.ir import Array, DType, Graph, Op
from saccade.kernels.base import Key, View
from saccade.kernels.cuda import kernels_for
from saccade.kernels.cuda.base import selectable
from saccade.kernels.cuda.conv2d.window_config import fills_pixels
from saccade.kernels.cuda.machine import LAUNCH
from saccade.kernels.cuda.packing import FUNCTIONS
from saccade.kernels.machine import Machine
from saccade.layout import GraphLayout, Preferred
from saccade.locks import forkless, preload
from saccade.opdefs import Pointwise
from saccade.options import Options, Precision
from saccade.plan import Needs, Plan, Step
from saccade.processes import Processes
from saccade.tuning import Outcome, TimingStore, TuneRequest

if TYPE_CHECKING:
    from saccade.kernels.base import Kernel
    from saccade.program import Program

__all__ = ["CudaBackend"]

_ALIGNMENT = 256
"""Bytes: more than any copy engine or vector access asks for."""
_REUSE_SLOWDOWN = 1.5
"""Compiling takes a second a kernel: what a step loses in 10 000 runs that take 300 µs for 200."""


class CudaBackend:
    """Kernels compiled by Triton for one GPU.

    Attributes:
        target: The GPU.
        fusions, preferred, nominal_threads, alignment: See `saccade.backend.Backend`.
        side_by_side, dense_bodies, reuse_slowdown: The same.
        cubins: Compiled code.
    """

    device = "cuda"
    fusions = CudaFusions()
    preferred = Preferred(fills=fills_pixels, apart=(Pointwise,))
    nominal_threads = 1
    alignment = _ALIGNMENT
    side_by_side = True
    dense_bodies = True
    reuse_slowdown = _REUSE_SLOWDOWN

    def __init__(self, options: Options, processes: Processes) -> None:
        self._options = options
        self._processes = processes
        self._gpu = _chosen(options)
        self.target = GpuTarget(
            self._gpu.arch,
            self._gpu.multiprocessors,
            self._gpu.shared,
            options.precision is Precision.TF32,
            self._gpu.name,
        )
        self.cubins = Cubins(self._gpu.arch, disk=options.cache)

    def candidates(self, op: Op) -> Sequence[Kernel]:
        """Kernels for the operator's family."""
        return selectable(kernels_for(op.family))

    def available(self, kernel: str, config: Hashable) -> bool:
        """Whether the code exists; for the first plan, everything counts as available."""
        return self.cubins.empty or self.cubins.has(kernel, config)

    def generic_configs(self, laid: GraphLayout) -> tuple[Key, ...]:
        """Code that other sizes will want."""
        del laid
        return ()

    @property
    def idle(self) -> bool:
        """Whether nothing was built yet."""
        return self.cubins.empty

    def adopt(self, plan: Plan) -> None:
        """Nothing: code of other processes is found when it is asked for."""

    @property
    def speeds(self) -> Machine:
        """Of the GPU that it plans for, as it is described."""
        known = self._gpu
        return Machine(
            known.flops, known.matrix_flops, known.bandwidth, 2 * known.bandwidth, LAUNCH,
            float(known.cache), known.name,
        )  # fmt: skip

    def identity(self) -> Mapping[str, str]:
        """The GPU."""
        return {"gpu": self._gpu.product, "arch": f"sm_{self._gpu.arch}"}

    def least_flops(self, op: Op, inputs: Sequence[View]) -> float | None:
        """There is no algorithm yet that needs fewer operations."""
        del op, inputs
        return None

    def build(
        self,
        plan: Plan,
        graph: Graph,
        identity: str,
        ahead: Callable[[], Sequence[Key]] | None = None,
    ) -> CudaProgram:
        """Compile what is missing, pack and upload constants, load the code.

        Args:
            plan: What to build.
            graph: Holds the constants.
            identity: Of the graph's constants.
            ahead: Not used: code does not depend on sizes.

        Raises:
            OptionError: If the plan is for a GPU that is not here, or has a step without a kernel.
            CompileError: If a kernel cannot be compiled.
        """
        del ahead
        _expect_kernels(plan)
        codes = self._codes(whole_keys(plan))
        return CudaProgram(
            open_device(), plan, codes, partial(packed_constant, graph, plan), identity, bodies_of
        )

    def expect(
        self,
        needs: Callable[[], Iterable[Needs]],
        graph: Graph,
        identity: str,
        after: Program,
    ) -> None:
        """Nothing is prepared: most sizes take the same kernels and constants."""

    def bundle(
        self, plans: Sequence[Plan], graph: Graph, identity: str
    ) -> tuple[Mapping[str, str], Mapping[str, bytes]]:
        """Plans, cubins and packed weights: see `saccade.backends.cuda.bundle`."""
        del identity
        for plan in plans:
            _expect_kernels(plan)
        return self.identity(), bundle_entries(
            (plan, self._codes(whole_keys(plan)), partial(packed_constant, graph, plan))
            for plan in plans
        )

    def assembly(self, steps: Sequence[Step]) -> list[tuple[str, ...]]:
        """What Triton makes of each phase for the GPU that is planned for, disassembled."""
        codes = self._codes(keys_of(steps))
        # Many steps share code, and each look at it takes two processes.
        unlike = {code.code: code for code in codes}
        texts = {content: disassembled(code) for content, code in unlike.items()}
        each = iter(codes)
        own = (step.phases if step.kernel is not None else () for step in steps)
        return [tuple(texts[next(each).code] for _ in phases) for phases in own]

    def _codes(self, keys: Sequence[CodeKey]) -> list[Cubin]:
        """The code of each key; compiles what is missing."""
        with closing(self._processes):
            return self.cubins.each(keys, self._processes)

    def timings(self) -> TimingStore:
        """What `tune` measured of the code as it is now."""
        machine = {**self.identity(), "code": self.cubins.code}
        return TimingStore(self.device, machine, use=self._options.cache)

    def tune(self, request: TuneRequest) -> Outcome:
        """Measure other variants for each step on the GPU, apart from the program.

        Raises:
            OptionError: If plans are for a GPU that is not here.
            DeviceError: If there is no GPU, or it was lost.
        """
        with forkless:
            from saccade.backends.cuda.apart import tune  # noqa: PLC0415 - running needs none of it
        preload("numpy.ma")  # which medians import

        facts = open_device().driver.facts
        if nearest_gpu(facts.name, facts.arch, facts.multiprocessors) is not self._gpu:
            raise OptionError(
                f"plans for machine={self._gpu.name!r} cannot be tuned on this {facts.name}"
            )
        return tune(request, self, self._options)


def packed_constant(graph: Graph, plan: Plan, index: int) -> Array:
    """A plan's constant as its kernels read it; those of bodies follow its own."""
    one = plan.whole_constants[index]
    by_name = {value.name: array for value, array in graph.constants.items()}
    sources = [by_name[name] for name in one.sources]
    if one.packing is None:
        return sources[0]
    return FUNCTIONS[one.packing.function](*sources, *one.packing.parameters)


def _chosen(options: Options) -> Gpu:
    """The described GPU that was asked for, else the one that is here."""
    # Plans and code can be made where there is no GPU.
    if options.machine is not None:
        return gpu(options.machine)
    facts = open_device().driver.facts
    return nearest_gpu(facts.name, facts.arch, facts.multiprocessors)


def _expect_kernels(plan: Plan) -> None:
    """Nothing is copied to the host and back in silence, and types that GPUs lack stay out."""
    for port in (*plan.inputs, *plan.outputs):
        if DType(port.dtype).is_narrow:
            raise OptionError(f"{port.name!r} is of type {port.dtype}, which is for the CPU alone")
    lacking = [
        step
        for part in plan.whole()
        for step in part.steps
        if step.kernel is None and not step.bodies
    ]
    if lacking:
        first = lacking[0]
        why = "; ".join(first.reasons) or "there is none"
        raise OptionError(
            f"{len(lacking)} steps have no kernel for GPUs, the first is {first.name} "
            f"({first.op.family}): {why}"
        )
