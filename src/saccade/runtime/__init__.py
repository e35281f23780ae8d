"""Plan to program: what runs."""

from __future__ import annotations

from typing import Any

from saccade.options import Options
from saccade.processes import Processes

__all__ = ["backend"]


def backend(options: Options, processes: Processes) -> Any:  # noqa: ANN401 - backends share a protocol, not a base
    """The backend of `options.device`; it compiles in `processes`."""
    if options.device == "reference":
        from saccade.runtime.reference import ReferenceBackend  # noqa: PLC0415 - only tests use it

        return ReferenceBackend(options, processes)
    from saccade.runtime.cpu.backend import CpuBackend  # noqa: PLC0415 - a GPU process needs no LLVM

    return CpuBackend(options, processes)
