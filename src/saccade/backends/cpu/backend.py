"""The CPU as a backend: its kernels, its code, its programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from threading import Thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import ReferenceType, ref

from saccade.backends.cpu.floor import products_of_transforms
from saccade.backends.cpu.fusions import Excite, ExpandDepthwise, RowSums
from saccade.backends.cpu.fusions.decide import CpuFusions
from saccade.backends.cpu.processor import this_machine
from saccade.backends.cpu.runtime.compiler import Task, assembly_of, code_digest
from saccade.backends.cpu.runtime.driver import compile_driver, driver_code, provide_code
from saccade.backends.cpu.runtime.linker import SharedCode, image_of
from saccade.backends.cpu.runtime.objects import Key, ObjectFile, Objects, llvm_version
from saccade.backends.cpu.runtime.program import CpuProgram, expect_runs, wait_for_run
from saccade.backends.cpu.runtime.tables import tables_of
from saccade.backends.cpu.store.bundle import Bundles
from saccade.backends.cpu.store.constants import (
    RecentConstants,
    constants_of,
    pack_ahead,
    unknown_constants,
)
from saccade.backends.cpu.store.keep import keep_program, share_of
from saccade.backends.cpu.store.keeping import KeptConstants
from saccade.backends.cpu.store.packers import Packers
from saccade.backends.cpu.store.packing import unpacked
from saccade.backends.cpu.store.saved import save_beside
from saccade.backends.cpu.target import ALIGNMENT, NOMINAL_THREADS, Target, target_for
from saccade.errors import OptionError, SaccadeError
from saccade.ir import Graph, Op
from saccade.kernels.base import View
from saccade.kernels.cpu import bring_usual, kernels_for
from saccade.kernels.cpu.base import all_generic_configs, selectable
from saccade.kernels.cpu.machine import machine
from saccade.kernels.machine import Machine
from saccade.layout import SPATIAL, GraphLayout, Preferred
from saccade.locks import forkless, preload
from saccade.opdefs import Conv2d
from saccade.options import Options
from saccade.plan import Constant, Needs, Plan, Step
from saccade.processes import Processes
from saccade.tuning import Outcome, TimingStore, TuneRequest

if TYPE_CHECKING:
    from saccade.backends.cpu.store.bundled import Unlinked
    from saccade.kernels.base import Kernel
    from saccade.program import Program

__all__ = ["CpuBackend"]

T = TypeVar("T")

_RECENT, _RECENT_BYTES = 5.0, 256 << 20
"""Bytes of constants that are held whether or not programs read them: over those of the weights,
and at most."""
_REUSE_SLOWDOWN = 1.5
"""Compiling takes some 100 ms a kernel (two cores of a Zen 4 server): what a step loses in 1000
runs that take 300 µs instead of 200."""
_PREFERRED = Preferred(channels_last=(*SPATIAL, Excite, ExpandDepthwise, RowSums))
_EFFORT_HERE = 4.0
"""Of compiling in the user's process, in tenths of a second or so (`CpuKernel.effort`), once there
is a program."""


class CpuBackend:
    """Kernels emitted as LLVM code for this machine, run by a team of threads.

    Attributes:
        target: The machine.
        fusions, preferred, nominal_threads, alignment, side_by_side, reuse_slowdown: As of
            `Backend`.
        objects: Compiled code.
    """

    device = "cpu"
    preferred = _PREFERRED
    nominal_threads = NOMINAL_THREADS
    alignment = ALIGNMENT
    side_by_side = False
    dense_bodies = False
    reuse_slowdown = _REUSE_SLOWDOWN

    def __init__(
        self, options: Options, processes: Processes, bundles: Bundles | None = None
    ) -> None:
        self._options = options
        self._bundles = bundles
        self._elsewhere = options.machine
        self.target = target_for(options.machine, options.isa)
        self.fusions = CpuFusions(self.target)
        self.objects = Objects(self.target, checked=options.checked, disk=options.cache)
        self._packers = Packers(self.objects)
        self._linked = SharedCode()
        self._recent: RecentConstants | None = None
        self._processes = processes
        self._disk = options.cache
        bring_usual()  # the graph may still be in the making

    def candidates(self, op: Op) -> Sequence[Kernel]:
        """Kernels for the operator's family."""
        return selectable(kernels_for(op.family))

    def available(self, kernel: str, config: object) -> bool:
        """Whether the code exists; for the first plan, everything counts as available."""
        return self.objects.empty or self.objects.exists((kernel, config))

    def generic_configs(self, laid: GraphLayout) -> tuple[Key, ...]:
        """Code that other sizes will want."""
        taken = [(s.choice.kernel, s.call) for s in laid.all_steps()]
        return all_generic_configs((kernel, call) for kernel, call in taken if kernel is not None)

    @property
    def idle(self) -> bool:
        """Whether nothing was built yet."""
        return self.objects.empty

    def adopt(self, plan: Plan) -> None:
        """Count the code of a plan that another process built as available."""
        self.objects.recall(_whole_keys(plan))

    @property
    def speeds(self) -> Machine:
        """Of the machine that it plans for, as it is described."""
        return machine(self.target)

    def identity(self) -> Mapping[str, str]:
        """Processor and system of this machine."""
        return this_machine()

    def least_flops(self, op: Op, inputs: Sequence[View]) -> float | None:
        """Of Winograd's algorithm and of short lattices, where these may take a convolution."""
        return products_of_transforms(op, *inputs[:2]) if isinstance(op, Conv2d) else None

    def assembly(self, steps: Sequence[Step]) -> list[tuple[str, ...]]:
        """What LLVM makes of each phase for the machine that is planned for."""
        keys = [_keys(step) for step in steps]
        wanted = list(dict.fromkeys(key for one in keys for key in one))
        tasks = [
            Task(
                kernel.replace(".", "_"), kernel, config, self.target, self._options.checked,
                code_digest(),
            )
            for kernel, config in wanted
        ]  # fmt: skip
        with closing(self._processes):
            texts = dict(zip(wanted, self._processes.map(assembly_of, tasks), strict=True))
        return [tuple(texts[key] for key in one) for one in keys]

    def bundle(
        self, plans: Sequence[Plan], graph: Graph, identity: str
    ) -> tuple[Mapping[str, str], Mapping[str, bytes]]:
        """Programs with their code and constants, see `store.bundled`."""
        with forkless:
            from saccade.backends.cpu.store import bundled  # noqa: PLC0415 - few models are saved

        programs = (self._unlinked(plan, graph, identity) for plan in plans)
        made = bundled.machine_of(self.target, self._elsewhere)
        return made, bundled.bundle_entries(programs)

    def _unlinked(self, plan: Plan, graph: Graph, identity: str) -> Unlinked:
        """What `build` makes, for a machine that need not be this one."""
        program = self.build(plan, graph, identity) if self._elsewhere is None else None
        files, driver_code = self._code(_whole_keys(plan))
        objects = [driver_code, *{file.symbol: file.code for file in files.values()}.values()]
        if program is not None:
            return plan, program.tables, program.all_constants, image_of(objects)
        # Without packers, whose code is the other machine's as well: NumPy gives the same bits.
        constants = constants_of(graph, identity, plan.whole_constants, plan.whole_constants_read)
        return plan, tables_of(plan, files), constants, image_of(objects)

    def timings(self) -> TimingStore:
        """What `tune` measured of the code as it is now."""
        machine = this_machine() | {"code": self.code}
        return TimingStore(self.device, machine, use=self._disk)

    def tune(self, request: TuneRequest) -> Outcome:
        """Measure other variants for each step inside running programs."""
        with forkless:
            from saccade.backends.cpu.insitu import tune  # noqa: PLC0415 - running needs none of it
        preload("saccade.kernels.cpu.packing", "numpy.ma")  # which medians import

        self._bundles = None  # which is named by the choices of before
        return tune(request, self, self._options)

    @property
    def code(self) -> str:
        """Names everything that the speed of the code depends on, besides the machine."""
        return f"{code_digest()[:16]} LLVM {llvm_version()}"

    def prepare(self, keys: Iterable[Key], processes: Processes) -> int:
        """Compile what there is no code for, and count it; `processes` are the caller's."""
        before = self.objects.compiled
        self.objects.get(keys, processes)
        return self.objects.compiled - before

    def build(
        self,
        plan: Plan,
        graph: Graph,
        identity: str,
        ahead: Callable[[], Sequence[Key]] | None = None,
    ) -> CpuProgram:
        """Compile what is missing, pack meanwhile, link; leave it all for later starts.

        The first program is kept at once, others when they are asked for again: sizes that come but
        once are not worth the disk.

        Args:
            plan: What to build.
            graph: Holds the constants.
            identity: Of the graph's constants.
            ahead: What else to compile if anything has to be, as other sizes will want it; asked
                while compilers work.

        Raises:
            OptionError: If plans are for another machine.
            CompileError: If a kernel cannot be compiled.
        """
        if self._elsewhere is not None:
            raise OptionError(f"plans for machine={self._elsewhere!r} are not run here")
        preload("saccade.kernels.cpu.packing")
        first, bundles = self.idle, self._bundles
        share = share_of(bundles, graph, plan) if first and bundles is not None else None
        packers = self._prepared(graph, unknown_constants(identity, plan.needs.constants), share)
        rest: Future[Any] | None = None
        keys = _whole_keys(plan)
        whole = all(self.objects.exists(key) for key in keys)
        with closing(self._processes), _AtOnce() if whole else ThreadPoolExecutor(1) as beside:
            code = beside.submit(self._code, [*keys, *packers])
            if ahead is not None and not whole:
                rest = beside.submit(self.objects.get, ahead(), self._processes)
            if packers:  # packing by NumPy meanwhile would take longer than this wait
                self._packers.take(code.result()[0])
            constants = constants_of(
                graph,
                identity,
                plan.whole_constants,
                plan.whole_constants_read,
                bundles,
                self._packers,
                share,
            )
            self._held(graph).keep(constants)
            everything, driver_code = code.result()
            if rest is not None:
                rest.result()
        files = {key: everything[key] for key in dict.fromkeys(keys)}
        unique = {file.symbol: file.code for file in files.values()}
        provide_code(lambda: driver_code)
        linked = self._linked.link(unique)
        program = CpuProgram(tables_of(plan, files), constants, linked, lambda: plan)
        if bundles is not None:
            objects = (driver_code, *unique.values())
            keep = partial(keep_program, bundles, graph, objects, self._packers, self._processes)
            if first:  # which is worth a wait: it is what the next start looks for
                keep(program)
            else:
                name = partial(bundles.program_name, [port.shape for port in plan.inputs])
                program.once_asked_again(lambda again: save_beside(name(), partial(keep, again)))
        return program

    def wanted(self, plan: Plan, graph: Graph, identity: str) -> list[Key]:
        """The code of a plan, and of what packs the constants that it reads."""
        constants = unpacked(graph, unknown_constants(identity, plan.needs.constants))
        packers = Packers.keys(p for one in constants.values() for p in one.panels)
        return [*_whole_keys(plan), *packers]

    def expect(
        self,
        needs: Callable[[], Iterable[Needs]],
        graph: Graph,
        identity: str,
        after: Program,
    ) -> None:
        """Pack what other sizes will read, and have the pages there that they will touch.

        Args:
            needs: Of some of them.
            graph: Holds the constants.
            identity: Of the graph's constants.
            after: Whose first run to wait for.
        """
        program = ref(cast("CpuProgram", after))
        work = partial(self._prepare_sizes, needs, graph, identity, program)
        with suppress(RuntimeError):  # no thread is to be had, or the process is about to end
            Thread(target=work, name="saccade-expect").start()

    def _prepare_sizes(
        self,
        needs: Callable[[], Iterable[Needs]],
        graph: Graph,
        identity: str,
        after: ReferenceType[CpuProgram],
    ) -> None:
        """A thread's work; what goes wrong is left to whoever comes to need it."""
        wait_for_run(after)
        told = []
        with suppress(SaccadeError, MemoryError, OSError):
            for one in needs():
                told.append(one)
                self._pack_ahead(one.constants, graph, identity)
                if not main_thread().is_alive():
                    return
            expect_runs(told)

    def _pack_ahead(self, used: Iterable[Constant], graph: Graph, identity: str) -> None:
        """Pack what runs read, if it can be held without letting go of others.

        What is first worth compiling a packer for is left to whoever needs it.
        """
        held = self._held(graph)
        # What sizes alone make is not what the next one needs.
        missing = unknown_constants(identity, [one for one in used if not one.of_sizes])
        large = sum(constant.nbytes for constant in missing.values()) > held.room
        if not large and not self._prepared(graph, missing, None):
            held.keep(pack_ahead(graph, identity, missing, self._packers))

    def _held(self, graph: Graph) -> RecentConstants:
        """What sizes to come may read, whether or not a program that read it is still there."""
        if self._recent is None:
            weights = sum(array.nbytes for array in graph.constants.values())
            self._recent = RecentConstants(min(int(_RECENT * weights), _RECENT_BYTES))
        return self._recent

    def _prepared(
        self, graph: Graph, missing: Mapping[str, Constant], share: KeptConstants | None
    ) -> list[Key]:
        """Make the packers ready that there are; what to compile for those that there are not."""
        work = [p for one in unpacked(graph, missing).values() for p in one.panels]
        needed = () if share is None else share.configs
        return self._packers.prepare(work, self._processes, needed)

    def _code(self, keys: Sequence[Key]) -> tuple[dict[Key, ObjectFile], bytes]:
        """The objects of a plan and of packers, and the driver's."""
        before = self.objects.compiled
        # A new size may lack a kernel or two: starting compilers takes longer than these.
        here = 0.0 if self.idle else _EFFORT_HERE
        files = self.objects.get(keys, self._processes, here=here)
        make = compile_driver
        if self.objects.compiled > before:  # and so the driver's may be: not in our memory
            make = self._compiled_there
        return files, driver_code(self.target, make, disk=self._disk)

    def _compiled_there(self, target: Target) -> bytes:
        """The driver, compiled in a child."""
        return self._processes.map(compile_driver, [target])[0]


class _AtOnce(Executor):
    """In place of another thread, for what is there already."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401 - as the base class
        """Do it."""
        done = Future[T]()
        done.set_result(fn(*args, **kwargs))
        return done


def _whole_keys(plan: Plan) -> list[Key]:
    """The code of a plan and of its bodies."""
    return [key for part in plan.whole() for key in _keys(*part.steps)]


def _keys(*steps: Step) -> list[Key]:
    return [
        (step.kernel, phase.config)
        for step in steps
        if step.kernel is not None
        for phase in step.phases
    ]
