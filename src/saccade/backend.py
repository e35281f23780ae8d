"""What a device is to the rest of Saccade: the protocols that a backend fulfils.

Whatever knows a device lives behind these; `layout`, `plan`, `engine`, `model`, `tuning` and
`profile` ask through them and never which device it is.

    Backend   its machine, kernels, code, programs, and how to measure
    Fusions   rewrites that pay on it alone
    Kernel    whether and how one algorithm does an operator
    Program   a plan that runs
    Arrays    the caller's arrays, in and out, as `DeviceBuffer`s in between
    Store     what earlier starts left of a model
    Device    all of them by its name (`devices.DEVICES`)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from saccade.bundlefile import BundleFile
    from saccade.caches.audit import Format
    from saccade.ir import Graph, Op
    from saccade.kernels.base import Call, Hardware, Key, Variant, View
    from saccade.kernels.machine import Machine
    from saccade.layout import GraphLayout, Pairs, Preferred, Shapes, Taken
    from saccade.options import Options
    from saccade.passes import Pass
    from saccade.plan import Needs, Plan, Step
    from saccade.processes import Processes
    from saccade.profile.types import Facts, Reading
    from saccade.signature import Signature, TensorInfo
    from saccade.tuning import Algorithms, Outcome, Progress

__all__ = [
    "Arrays",
    "Backend",
    "Device",
    "DeviceBuffer",
    "Fusions",
    "Kernel",
    "Program",
    "Result",
    "Store",
]

Result: TypeAlias = Any
"""An array of the library that the caller uses: NumPy's, PyTorch's. No type here could name it."""


class Kernel(Protocol):
    """One algorithm for some operators, as selection knows it."""

    @property
    def name(self) -> str:
        """`family.algorithm`."""

    @property
    def config(self) -> type:
        """Class of what its code depends on, for reading plans back."""

    @property
    def supports(self) -> Callable[[Call], str | None]:
        """The reason why it cannot take a call, or None."""

    @property
    def variants(self) -> Callable[[Call], Iterable[Variant]]:
        """The variants for a call that it supports, the one that should be fastest first."""

    @property
    def generic_configs(self) -> Callable[[Call], tuple[Hashable, ...]]:
        """Configs that other sizes of a call will want."""

    @property
    def aliases(self) -> Callable[[Call], tuple[tuple[int, int], ...]]:
        """Pairs of an input and an output that may share memory."""


class DeviceBuffer(Protocol):
    """A dense row-major array in a device's memory: NumPy's where that is the host's.

    A device's programs take what its `Arrays` made, and no other.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""


class Program(Protocol):
    """A plan ready to run; may be called from several threads at once."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    def run(self, inputs: Sequence[DeviceBuffer]) -> tuple[DeviceBuffer, ...]:
        """Results, in memory of their own, for inputs that `Arrays.take` gave.

        Raises:
            OutOfMemoryError: If the system does not give what it needs.
        """

    def asked_again(self) -> None:
        """Told whenever the program is taken once more."""

    def profile(self, inputs: Sequence[DeviceBuffer], repeat: int) -> Sequence[Reading]:
        """Clock readings of every phase in `repeat` runs."""

    def speeds(self) -> Machine:
        """Of the machine that it runs on, measured."""

    def facts(self) -> Sequence[Facts]:
        """What is known of each phase's code, by name, in the order of `profile`; or nothing."""


class Arrays(Protocol):
    """How the caller's arrays become a program's, and back."""

    def take(self, info: TensorInfo, value: object) -> DeviceBuffer:
        """What a program reads, without a copy where that can be.

        Args:
            info: The model's input.
            value: Whatever the caller gave.

        Raises:
            InputError: If it is no array, or not of the input's dtype, shape and device.
            OutOfMemoryError: If it has to be copied and there is no memory.
        """

    def give(self, results: Sequence[DeviceBuffer], given: Iterable[object]) -> tuple[Result, ...]:
        """Results as arrays of the library that the inputs `given` came from."""

    @property
    def queued(self) -> int:
        """How many calls to time as one: 1 where a call returns once its results are written."""

    def clock(self, call: Callable[[], object], runs: int) -> float:
        """Milliseconds of a call, the mean of so many, one after the other, by the device's clock.

        Args:
            call: Runs a model on what `take` gave.
            runs: How many times, at least 1.
        """


class Store(Protocol):
    """What earlier starts of a model left, and where to leave more."""

    def signature(self) -> Signature | None:
        """What the model takes and gives, if that is known."""

    def keep_signature(self, signature: Signature) -> None:
        """Write it."""

    def program(self, shapes: Sequence[Sequence[int]]) -> Program | None:
        """The program for these input shapes, if it is there and sound."""

    def graph_is_at(self, entry: str | None) -> None:
        """Told the name of the entry that holds the model's graph, if one does."""


class Fusions(Protocol):
    """Fusions that pay on one device, by its own operators; `layout.NoFusions` for none."""

    def fuse(self, graph: Graph, shapes: Shapes, taken: Taken) -> Graph:
        """The graph with those fusions that sizes decide, before storage is chosen.

        Values keep their shapes, and new nodes fit wherever those do whose place they take. Equal
        choices give the same graph and nodes, so that what is derived from them is kept.

        Args:
            graph: The model; never changed. The result itself where there is nothing to fuse.
            shapes: Of every value of it.
            taken: To be asked about new nodes, with the shapes of new values added.
        """

    def pairs(self, graph: Graph, shapes: Shapes, *, tuned: bool) -> Pairs:
        """Fusions that the times of kernels decide, storage being chosen.

        Args:
            graph: What `fuse` gave.
            shapes: Of every value of it.
            tuned: Whether there are measured times. They may name any pair, so none is left out
                because estimates are known to be idle at its size.
        """


class Backend(Protocol):
    """A device: its machine, its kernels, its code and its programs."""

    @property
    def device(self) -> str:
        """Its name, as in `Options.device` and in plans."""

    @property
    def target(self) -> Hardware:
        """The machine that kernels are for; handed on to them in calls."""

    @property
    def speeds(self) -> Machine:
        """Of that machine as it is described: what estimates divide by."""

    @property
    def alignment(self) -> int:
        """Bytes that whatever lies in the arena begins at a multiple of."""

    @property
    def idle(self) -> bool:
        """Whether nothing was built yet."""

    @property
    def fusions(self) -> Fusions:
        """Rewrites that pay on this device alone."""

    @property
    def preferred(self) -> Preferred:
        """Storage that its kernels like."""

    @property
    def nominal_threads(self) -> int:
        """Width of the team that algorithms are chosen for, whatever the width of the real one."""

    @property
    def reuse_slowdown(self) -> float:
        """Times the best estimate that code may take which exists; beyond, the best is compiled."""

    def identity(self) -> Mapping[str, str]:
        """Names the machine that measurements are taken on, for files of tuned choices."""

    def candidates(self, op: Op) -> Sequence[Kernel]:
        """Kernels that may be asked about an operator, in order of preference among equals."""

    def least_flops(self, op: Op, inputs: Sequence[View]) -> float | None:
        """Operations of the cheapest algorithm that rounds more; None if there is none such.

        Args:
            op: Bound.
            inputs: Storage of its operands.
        """

    def available(self, kernel: str, config: Hashable) -> bool:
        """Whether the code exists; for the first plan, everything counts as available."""

    def generic_configs(self, laid: GraphLayout) -> tuple[Key, ...]:
        """Code that other sizes will want."""

    def adopt(self, plan: Plan) -> None:
        """Count the code of a plan that another process built as available."""

    def build(
        self,
        plan: Plan,
        graph: Graph,
        identity: str,
        ahead: Callable[[], Sequence[Key]] | None = None,
    ) -> Program:
        """A program for a plan: compile what is missing, pack constants, link, and keep it.

        Args:
            plan: What to build.
            graph: Holds the constants.
            identity: Of the graph's constants.
            ahead: What else to compile if anything has to be, as other sizes will want it.

        Raises:
            OptionError: If plans are for another machine.
            CompileError: If a kernel cannot be compiled.
        """

    def expect(
        self,
        needs: Callable[[], Iterable[Needs]],
        graph: Graph,
        identity: str,
        after: Program,
    ) -> None:
        """Prepare for sizes to come, beside whatever runs: sizes vary.

        Args:
            needs: Tells of some of them, one after the other; asked by another thread.
            graph: Holds the constants.
            identity: Of the graph's constants.
            after: Whose first run, which comes next, is not to be slowed down by it.
        """

    def assembly(self, steps: Sequence[Step]) -> list[tuple[str, ...]]:
        """The machine code of each step as text, a text a phase; it need not run here.

        Raises:
            OptionError: If the device has no code.
            CompileError: If a kernel cannot be compiled, or no disassembler is there.
        """

    def bundle(
        self, plans: Sequence[Plan], graph: Graph, identity: str
    ) -> tuple[Mapping[str, str], Mapping[str, bytes]]:
        """What a file holds from which another machine runs these plans (`Device.bundled`).

        Args:
            plans: What to build.
            graph: Holds the constants.
            identity: Of the graph's constants.

        Returns:
            What the file says of the machine that it is for, and its entries.

        Raises:
            OptionError: If the device has no bundles.
            CompileError: If a kernel cannot be compiled.
        """

    def tune(
        self,
        graph: Graph,
        identity: str,
        sizes: Mapping[str, int],
        inputs: Sequence[DeviceBuffer],
        hints: Algorithms,
        *,
        seconds: float | None,
        report: Callable[[Progress], None],
    ) -> Outcome:
        """Measure other variants for each step; see `Model.tune`.

        Raises:
            OptionError: If the device cannot be tuned.
        """


class Device(Protocol):
    """What `Options.device` names; making one imports next to nothing."""

    @property
    def compiler(self) -> str:
        """What child processes preload for the backend (`Processes.preload`); empty for nothing."""

    @property
    def plans_for(self) -> str:
        """The device whose graphs and plans it has: itself, or the one that it only plays."""

    @property
    def arrays(self) -> Arrays:
        """The caller's arrays."""

    def passes(self, options: Options) -> tuple[Pass, ...]:
        """What graphs go through, in order: the device-independent passes and its own.

        Its own are in `backends/<device>/passes`. Asked in a child process; imports no compiler.
        """

    @property
    def operators(self) -> Mapping[str, type[Op]]:
        """Operators that it adds to `opdefs`, by class name, for reading plans back."""

    def kernel(self, name: str) -> Kernel:
        """The kernel of this name, for reading plans back.

        Raises:
            KeyError: If there is none.
        """

    @property
    def precisions(self) -> tuple[str, ...]:
        """Values of `Precision` that it computes in."""

    def speeds(self, plan: Plan) -> Machine:
        """Of the machine that a plan would run on here; measured, if that takes no program."""

    @property
    def entry_formats(self) -> Mapping[str, Format]:
        """How to check the entries in the cache that it does not seal as a whole, by suffix."""

    def facts(self) -> Mapping[str, str]:
        """What measurements name of it beside the host: product, memory, driver.

        Raises:
            DeviceError: If there is none here.
        """

    def team(self, machine: str | None) -> int | None:
        """Width of the team that is planned for unless the user says one.

        Args:
            machine: As in `Options.machine`; of any type, as the user gave it.

        Returns:
            None for as many threads as this process may use.

        Raises:
            OptionError: If the device describes no such machine.
        """

    def store(self, identity: str | None, options: Options) -> Store | None:
        """What earlier starts left of a model; None if nothing is kept of it.

        Args:
            identity: Of the model; None where it has none.
            options: The user's.
        """

    def bundled(self, file: BundleFile) -> Store:
        """The programs of a bundle that `Backend.bundle` gave.

        Raises:
            OptionError: If the device runs none.
        """

    def backend(self, options: Options, processes: Processes, store: Store | None) -> Backend:
        """The backend of a model.

        Args:
            options: The user's.
            processes: Where it compiles.
            store: This device's, where programs are left for later starts.
        """
