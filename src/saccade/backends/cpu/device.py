"""The CPU as `Options.device` names it: everything behind one small import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saccade.backends.host_arrays import HostArrays
from saccade.locks import forkless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saccade.backends.cpu.backend import CpuBackend
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.bundlefile import BundleFile
    from saccade.caches.audit import Format
    from saccade.devices import Device
    from saccade.ir import Op
    from saccade.kernels.base import Kernel
    from saccade.kernels.machine import Machine
    from saccade.options import Options
    from saccade.passes import Pass
    from saccade.plan import Plan
    from saccade.processes import Processes
    from saccade.program import Store

__all__ = ["CPU", "CpuDevice"]


class CpuDevice:
    """A `saccade.devices.Device`."""

    plans_for = "cpu"
    precisions = ("fp32", "bf16")
    arrays = HostArrays()

    def passes(self, options: Options) -> tuple[Pass, ...]:
        """The device-independent ones between the CPU's rewrites."""
        with forkless:
            from saccade.backends.cpu.passes import passes_of  # noqa: PLC0415 - warm starts need none

        return passes_of(options)

    def compiler(self, options: Options) -> str:
        """LLVM and the usual kernels, unless kernels for the processor came compiled."""
        with forkless:
            from saccade.backends.cpu.runtime.compiler import PRELOAD  # noqa: PLC0415
            from saccade.backends.cpu.runtime.objects import came_compiled  # noqa: PLC0415
            from saccade.backends.cpu.target import target_for  # noqa: PLC0415

        # What they lack is compiled all the same, some tenths of a second later.
        target = target_for(options.machine, options.isa)
        return "" if came_compiled(target, checked=options.checked) else PRELOAD

    @property
    def operators(self) -> Mapping[str, type[Op]]:
        """Those of the CPU's fusions."""
        with forkless:
            from saccade.backends.cpu.fusions import OPERATORS  # noqa: PLC0415 - for plans alone

        return OPERATORS

    def kernel(self, name: str) -> Kernel:
        """The kernel of this name."""
        with forkless:
            from saccade.kernels.cpu import kernel_named  # noqa: PLC0415 - running needs no kernels
            from saccade.kernels.cpu.base import selectable  # noqa: PLC0415

        return selectable((kernel_named(name),))[0]

    def speeds(self, plan: Plan) -> Machine:
        """Measured once for each instruction set, and kept."""
        with forkless:
            from saccade.backends.cpu.runtime.speeds import measured_speeds  # noqa: PLC0415
            from saccade.backends.cpu.target import host_target  # noqa: PLC0415

        return measured_speeds(host_target(plan.isa))

    @property
    def entry_formats(self) -> Mapping[str, Format]:
        """Packed constants, which are mapped."""
        with forkless:
            from saccade.backends.cpu.store.weights import map_weights  # noqa: PLC0415

        return {".weights": map_weights}

    def facts(self) -> Mapping[str, str]:
        """Nothing beside the host."""
        return {}

    def team(self, machine: str | None) -> int | None:
        """The cores of one of `machines.MACHINES`."""
        if machine is None:
            return None
        with forkless:
            from saccade.backends.cpu.machines import description  # noqa: PLC0415 - runs need none

        return description(machine).cores

    def store(self, identity: str | None, options: Options) -> Bundles | None:
        """The folder of a model; None without an identity, or for plans that are not run here."""
        with forkless:
            from saccade.backends.cpu.store.bundle import bundles_of  # noqa: PLC0415

        if identity is None or options.machine is not None:
            return None
        return bundles_of(identity, options)

    def bundled(self, file: BundleFile) -> Store:
        """The programs in a bundle."""
        with forkless:
            from saccade.backends.cpu.store.bundled import CpuBundle  # noqa: PLC0415

        return CpuBundle(file)

    def backend(self, options: Options, processes: Processes, store: Store | None) -> CpuBackend:
        """The backend of a model."""
        with forkless:
            from saccade.backends.cpu.backend import CpuBackend  # noqa: PLC0415 - which imports LLVM
            from saccade.backends.cpu.store.bundle import Bundles  # noqa: PLC0415

        assert store is None or isinstance(store, Bundles)
        return CpuBackend(options, processes, store)


CPU: Device = CpuDevice()
