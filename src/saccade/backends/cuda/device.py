"""NVIDIA's GPUs as `Options.device` names them: everything behind one small import."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from saccade.locks import forkless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saccade.backends.cuda.backend import CudaBackend
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
    from saccade.program import Arrays, Store

__all__ = ["CUDA", "CudaDevice"]


class CudaDevice:
    """A `saccade.devices.Device`."""

    plans_for = "cuda"
    precisions = ("fp32", "tf32", "fp16", "bf16")

    def compiler(self, options: Options) -> str:
        """Nothing: most starts find their code, and Triton takes half a second to import."""
        return ""

    @property
    def operators(self) -> Mapping[str, type[Op]]:
        """Those of the fusions of GPUs."""
        with forkless:
            from saccade.backends.cuda.fusions import OPERATORS  # noqa: PLC0415 - for plans alone

        return OPERATORS

    @property
    def arrays(self) -> Arrays:
        """Arrays on GPUs, and those of the host, which are copied."""
        with forkless:
            from saccade.backends.cuda.arrays import CudaArrays  # noqa: PLC0415
            from saccade.backends.cuda.runtime.context import open_device  # noqa: PLC0415

        return CudaArrays(open_device)

    def passes(self, options: Options) -> tuple[Pass, ...]:
        """The device-independent ones, and the lowering of precision that was asked for."""
        with forkless:
            from saccade.backends.cuda.passes import passes_of  # noqa: PLC0415

        return passes_of(options)

    def speeds(self, plan: Plan) -> Machine:
        """As described: measuring takes a context."""
        return plan.speeds

    entry_formats: Mapping[str, Format] = MappingProxyType({})
    """All are sealed as a whole."""

    def facts(self) -> Mapping[str, str]:
        """Of the first GPU; makes no context."""
        with forkless:
            from saccade.backends.cuda.runtime.bindings import devices  # noqa: PLC0415 - where one is
            from saccade.backends.cuda.runtime.facts import device_facts  # noqa: PLC0415

        return device_facts(devices()[0])

    def team(self, machine: str | None) -> int | None:
        """One: programs of a grid are no threads of a team."""
        with forkless:
            from saccade.backends.cuda.gpus import gpu  # noqa: PLC0415 - runs of bundles need none

        if machine is not None:
            # Refuses a name that is none.
            gpu(machine)
        return 1

    def kernel(self, name: str) -> Kernel:
        """The kernel of this name."""
        with forkless:
            from saccade.kernels.cuda import kernel_named  # noqa: PLC0415
            from saccade.kernels.cuda.base import selectable  # noqa: PLC0415

        return selectable((kernel_named(name),))[0]

    def store(self, identity: str | None, options: Options) -> None:
        """Nothing but code is kept of models that are not in a bundle."""
        del identity, options

    def bundled(self, file: BundleFile) -> Store:
        """The programs in a bundle."""
        with forkless:
            from saccade.backends.cuda.bundle import CudaBundle  # noqa: PLC0415

        return CudaBundle(file)

    def backend(self, options: Options, processes: Processes, store: Store | None) -> CudaBackend:
        """The backend of a model.

        Raises:
            OptionError: For checked mode, which models on GPUs do not have.
        """
        with forkless:
            from saccade.backends.cuda.backend import CudaBackend  # noqa: PLC0415
            from saccade.errors import OptionError  # noqa: PLC0415

        del store
        if options.checked:
            raise OptionError(
                "checked=True is for CPUs: GPUs' kernels are checked by their tests, pytest -m gpu"
            )
        return CudaBackend(options, processes)


CUDA: Device = CudaDevice()
