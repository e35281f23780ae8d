"""A made-up device, whole but for its speed: one kernel that takes everything, NumPy to run it.

It stands for a second device in tests, and is the one that CONTRIBUTING.md adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from saccade.backends.host_arrays import HostArrays
from saccade.backends.reference.backend import ReferenceProgram
from saccade.errors import OptionError
from saccade.kernels.base import Launch, Out, Variant
from saccade.kernels.machine import Machine
from saccade.layout import NoFusions, Preferred
from saccade.passes import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from saccade.bundlefile import BundleFile
    from saccade.caches.audit import Format
    from saccade.devices import Device
    from saccade.ir import Graph, Op
    from saccade.kernels.base import Call, Key, View
    from saccade.layout import GraphLayout
    from saccade.options import Options
    from saccade.passes import Pass
    from saccade.plan import Needs, Plan, Step
    from saccade.processes import Processes
    from saccade.program import Program, Store
    from saccade.tuning import Outcome, TuneRequest


@dataclass(frozen=True)
class NullHardware:
    """A `saccade.kernels.base.Hardware`."""

    isa: str = "null"


@dataclass(frozen=True)
class NullConfig:
    """What its code would depend on."""

    family: str


@dataclass(frozen=True)
class NullKernel:
    """A `saccade.kernels.base.Kernel`; 1 µs for each million elements that a call touches."""

    name: str = "null.any"
    config: type = NullConfig

    def supports(self, call: Call) -> str | None:
        return None

    def variants(self, call: Call) -> tuple[Variant, ...]:
        micros = 1.0 + sum(view.size for view in (*call.inputs, *call.outputs)) / 1e6
        launch = Launch(
            NullConfig(call.op.family), {"y": Out(0)}, {"count": call.outputs[0].size}, 1
        )
        return (Variant(micros, lambda: (launch,)),)

    def generic_configs(self, call: Call) -> tuple[Hashable, ...]:
        return ()

    def aliases(self, call: Call) -> tuple[tuple[int, int], ...]:
        return ()


KERNEL = NullKernel()


class NullBackend:
    """A `saccade.backend.Backend`; others change what `candidates` gives."""

    device = "null"
    target = NullHardware()
    speeds = Machine(1e6, 1e6, 1e5, 1e5, 1.0, 1e6, "null")

    fusions = NoFusions()
    preferred = Preferred()
    nominal_threads = 1
    alignment = 256
    side_by_side = False
    dense_bodies = False
    reuse_slowdown = 1.5

    def __init__(self) -> None:
        self.built: list[Plan] = []

    @property
    def idle(self) -> bool:
        return not self.built

    def identity(self) -> Mapping[str, str]:
        return MappingProxyType({"null": "device"})

    def candidates(self, op: Op) -> Sequence[NullKernel]:
        return (KERNEL,)

    def least_flops(self, op: Op, inputs: Sequence[View]) -> float | None:
        return None

    def available(self, kernel: str, config: Hashable) -> bool:
        return True

    def generic_configs(self, laid: GraphLayout) -> tuple[Key, ...]:
        return ()

    def adopt(self, plan: Plan) -> None:
        self.built.append(plan)

    def build(
        self,
        plan: Plan,
        graph: Graph,
        identity: str,
        ahead: Callable[[], Sequence[Key]] | None = None,
    ) -> ReferenceProgram:
        self.built.append(plan)
        by_name = {value.name: array for value, array in graph.constants.items()}
        return ReferenceProgram(plan, [by_name[one.sources[0]] for one in plan.constants])

    def expect(
        self,
        needs: Callable[[], Iterable[Needs]],
        graph: Graph,
        identity: str,
        after: Program,
    ) -> None:
        pass  # nothing has to be ready

    def assembly(self, steps: Sequence[Step]) -> list[tuple[str, ...]]:
        raise OptionError("the null device has no code")

    def bundle(
        self, plans: Sequence[Plan], graph: Graph, identity: str
    ) -> tuple[Mapping[str, str], Mapping[str, bytes]]:
        raise OptionError("the null device has no bundles")

    def timings(self) -> None:
        pass  # nothing was ever measured

    def tune(self, request: TuneRequest) -> Outcome:
        raise OptionError("the null device cannot be tuned")


class NullDevice:
    """A `saccade.devices.Device`."""

    plans_for = "null"
    precisions = ("fp32", "bf16")
    arrays = HostArrays()
    operators: Mapping[str, type[Op]] = MappingProxyType({})

    def compiler(self, options: Options) -> str:
        return ""

    def passes(self, options: Options) -> tuple[Pass, ...]:
        return STANDARD

    def kernel(self, name: str) -> NullKernel:
        return {KERNEL.name: KERNEL}[name]

    entry_formats: Mapping[str, Format] = MappingProxyType({})

    def speeds(self, plan: Plan) -> Machine:
        return plan.speeds

    def facts(self) -> Mapping[str, str]:
        return {}

    def team(self, machine: str | None) -> int | None:
        if machine is not None:
            raise OptionError(f"machine={machine!r}: the null device describes none")
        return None

    def store(self, identity: str | None, options: Options) -> None:
        return None

    def bundled(self, file: BundleFile) -> Store:
        raise OptionError("the null device has no bundles")

    def backend(self, options: Options, processes: Processes, store: Store | None) -> NullBackend:
        return NullBackend()


NULL: Device = NullDevice()
