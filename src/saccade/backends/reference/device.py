"""The reference as `Options.device` names it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from saccade.devices import device_named
from saccade.errors import OptionError
from saccade.locks import forkless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saccade.backends.reference.backend import ReferenceBackend
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

__all__ = ["REFERENCE", "ReferenceDevice"]

_PLANS_AS = "cpu"
"""The device whose plans it plays."""


class ReferenceDevice:
    """A `saccade.devices.Device`."""

    plans_for = _PLANS_AS

    @property
    def arrays(self) -> Arrays:
        """Those of the device whose plans it plays."""
        return device_named(_PLANS_AS).arrays

    def compiler(self, options: Options) -> str:
        """Nothing: it compiles nothing."""
        return ""

    def passes(self, options: Options) -> tuple[Pass, ...]:
        """Of the device whose plans it plays."""
        return device_named(_PLANS_AS).passes(options)

    @property
    def operators(self) -> Mapping[str, type[Op]]:
        """Of the device whose plans it plays."""
        return device_named(_PLANS_AS).operators

    def kernel(self, name: str) -> Kernel:
        """Of the device whose plans it plays."""
        return device_named(_PLANS_AS).kernel(name)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Of the device whose plans it plays."""
        return device_named(_PLANS_AS).precisions

    def speeds(self, plan: Plan) -> Machine:
        """Of the device whose plans it plays, as described."""
        return plan.speeds

    entry_formats: Mapping[str, Format] = MappingProxyType({})
    """Nothing is kept."""

    def facts(self) -> Mapping[str, str]:
        """Nothing beside the host."""
        return {}

    def team(self, machine: str | None) -> int | None:
        """Of a machine of the device whose plans it plays."""
        return device_named(_PLANS_AS).team(machine)

    def store(self, identity: str | None, options: Options) -> None:
        """Nothing is kept."""
        del identity, options

    def bundled(self, file: BundleFile) -> Store:
        """None are run."""
        del file
        raise OptionError("the reference runs no bundles")

    def backend(
        self, options: Options, processes: Processes, store: Store | None
    ) -> ReferenceBackend:
        """A backend over that of the device whose plans it plays."""
        with forkless:
            from saccade.backends.reference.backend import ReferenceBackend  # noqa: PLC0415

        del store
        return ReferenceBackend(device_named(_PLANS_AS).backend(options, processes, None))


REFERENCE: Device = ReferenceDevice()
