"""A made-up device, whole but for its speed: one kernel that takes everything, NumPy to run it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from saccade.backend import Backend, Device
from saccade.backends.cpu.arrays import HostArrays
from saccade.backends.reference.backend import ReferenceProgram
from saccade.errors import OptionError
from saccade.kernels.base import Launch, Out, Variant
from saccade.kernels.machine import Machine
from saccade.layout import NoFusions, Preferred
from saccade.passes import STANDARD


@dataclass(frozen=True)
class NullHardware:
    isa: str = "null"


@dataclass(frozen=True)
class NullConfig:
    family: str


@dataclass(frozen=True)
class NullKernel:
    """Takes any call at 1 µs for each million elements that it touches."""

    name: str = "null.any"
    config: type = NullConfig

    def supports(self, call):
        return None

    def variants(self, call):
        micros = 1.0 + sum(view.size for view in (*call.inputs, *call.outputs)) / 1e6
        launch = Launch(
            NullConfig(call.op.family), {"y": Out(0)}, {"count": call.outputs[0].size}, 1
        )
        return (Variant(micros, lambda: (launch,)),)

    def spares(self, call):
        return ()

    def aliases(self, call):
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
    reuse_slowdown = 1.5

    def __init__(self):
        self.built = []

    @property
    def idle(self):
        return not self.built

    def identity(self):
        return MappingProxyType({"null": "device"})

    def candidates(self, op):
        return (KERNEL,)

    def least_flops(self, op, inputs):
        return None

    def available(self, kernel, config):
        return True

    def spares(self, laid):
        return ()

    def adopt(self, plan):
        self.built.append(plan)

    def build(self, plan, graph, identity, ahead=None):
        self.built.append(plan)
        by_name = {value.name: array for value, array in graph.constants.items()}
        return ReferenceProgram(plan, [by_name[one.sources[0]] for one in plan.constants])

    def tune(self, graph, identity, sizes, inputs, hints, *, seconds, report):
        raise OptionError("the null device cannot be tuned")


class NullDevice:
    """A `saccade.backend.Device`."""

    plans_for = "null"
    compiler = ""
    arrays = HostArrays()

    operators = MappingProxyType({})

    def passes(self, options):
        return STANDARD

    def kernel(self, name):
        return {KERNEL.name: KERNEL}[name]

    def store(self, identity, options):
        return None

    def backend(self, options, processes, store):
        return NullBackend()


NULL = NullDevice()


def is_typed(device: Device = NULL, backend: Backend = NullBackend()) -> None:  # noqa: B008
    """For mypy: both are what the protocols ask for."""
