"""Plan to program: what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.store.bundle import Bundles
    from saccade.options import Options
    from saccade.passes import Pass
    from saccade.processes import Processes

__all__ = ["backend", "bundles", "compiler", "passes_of", "planned_for"]


def backend(options: Options, processes: Processes) -> Any:  # noqa: ANN401 - backends share a protocol, not a base
    """The backend of `options.device`; it compiles in `processes`."""
    if options.device == "reference":
        with forkless:
            from saccade.backends.reference import ReferenceBackend  # noqa: PLC0415 - for tests

        return ReferenceBackend(options, processes)
    with forkless:
        from saccade.backends.cpu.backend import CpuBackend  # noqa: PLC0415 - a GPU process needs no LLVM

    return CpuBackend(options, processes)


def compiler(options: Options) -> str:
    """What gets child processes ready for the backend's calls (see `Processes.warm`), if any."""
    return (
        "" if options.device == "reference" else "saccade.backends.cpu.runtime.compiler:get_ready"
    )


def bundles(identity: str | None, options: Options) -> Bundles | None:
    """What earlier starts left of a model, and where to leave more; None if it has no identity."""
    with forkless:
        from saccade.backends.cpu.store.bundle import bundles_of  # noqa: PLC0415 - only the CPU's are kept

    if identity is None or options.machine is not None:
        return None
    return bundles_of(identity, options)


def planned_for(options: Options) -> str:
    """The device whose graphs, plans and tuned choices these are: the reference plays the CPU's."""
    return "cpu" if options.device == "reference" else options.device


def passes_of(options: Options) -> tuple[Pass, ...]:
    """What the device's graphs go through: its own rewrites and the device-independent ones.

    Called where a graph is lowered, which is in a child process: it imports no compiler.
    """
    with forkless:
        from saccade.backends.cpu.passes import passes_of as cpu  # noqa: PLC0415 - warm starts need none

    return {"cpu": cpu}[planned_for(options)](options)
