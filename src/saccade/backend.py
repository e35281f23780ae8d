"""What a device is to planning and to the engine: the protocol that a backend fulfils.

Whatever knows a device lives behind it; `layout`, `engine` and `tuning` ask through it and never
which device it is. Beside it stand

    kernels.base.Kernel     whether and how one algorithm does an operator
    layout.types.Fusions    rewrites that pay on one device alone
    program                 what runs: programs, the caller's arrays, what earlier starts left
    devices.Device          all of them by its name
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saccade.ir import Graph, Op
    from saccade.kernels.base import Hardware, Kernel, Key, View
    from saccade.kernels.machine import Machine
    from saccade.layout import Fusions, GraphLayout, Preferred
    from saccade.plan import Needs, Plan, Step
    from saccade.program import Program
    from saccade.tuning import Outcome, TimingStore, TuneRequest

__all__ = ["Backend"]


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
    def side_by_side(self) -> bool:
        """Whether steps that do not wait for each other run at the same time."""

    @property
    def dense_bodies(self) -> bool:
        """Whether loops and branches take and give values without gaps, row by row."""

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

    def timings(self) -> TimingStore | None:
        """What was measured of variants on this machine; None if nothing is measured."""

    def tune(self, request: TuneRequest) -> Outcome:
        """Measure other variants for each step; see `Model.tune`.

        Raises:
            OptionError: If the device cannot be tuned.
        """
