"""Devices: what each says of itself, and which there are by name.

Which one is asked for is known long before anything of it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backend import Backend
    from saccade.bundlefile import BundleFile
    from saccade.caches.audit import Format
    from saccade.ir import Op
    from saccade.kernels.base import Kernel
    from saccade.kernels.machine import Machine
    from saccade.options import Options
    from saccade.passes import Pass
    from saccade.plan import Plan
    from saccade.processes import Processes
    from saccade.program import Arrays, Store

__all__ = ["DEVICES", "Device", "device_named"]

DEVICES = {
    "cpu": "saccade.backends.cpu.device:CPU",
    "cuda": "saccade.backends.cuda.device:CUDA",
    "reference": "saccade.backends.reference.device:REFERENCE",
}
"""Where the `Device` of each name is: its module, and what it is called there."""


class Device(Protocol):
    """What `Options.device` names; making one imports next to nothing."""

    def compiler(self, options: Options) -> str:
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


def device_named(name: str) -> Device:
    """The device of this name.

    Raises:
        KeyError: If there is none.
    """
    return _device(DEVICES[name])


@cache
def _device(where: str) -> Device:
    module, _, value = where.partition(":")
    with forkless:
        found: Device = getattr(import_module(module), value)
    return found
