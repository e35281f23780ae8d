"""Measured speeds of this machine: taken once, kept in the cache folder, the same for every plan.

They are measured in a child process, which may pin threads and use memory as it likes. Choices
depend on them, so they are rounded and kept: what a machine chooses does not change from one start
to the next. A measurement that makes no sense is dropped, and nominal speeds stand.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

from saccade.caches import trusted_folder
from saccade.codegen.target import Target
from saccade.errors import SaccadeError
from saccade.kernels.machine import Machine, nominal
from saccade.locks import Lock
from saccade.options import default_threads
from saccade.processes import Processes

__all__ = ["Speeds", "keep_speeds", "kept_speeds", "measure_speeds"]

_VERSION = 1  # of the measurement; a new one is taken where this changes
_LAUNCH = 0.7  # microseconds of a phase's arguments, claims and cold code, beside the barrier
_TEAM = 2  # cores that memory is measured with: kernels are chosen for a nominal team


def kept_speeds(target: Target) -> Machine | None:
    """The speeds that an earlier start measured, or None."""
    folder = trusted_folder("machine")
    try:
        record = json.loads((folder / _name(target)).read_text()) if folder else None
        found = record and Machine(**{f.name: float(record[f.name]) for f in fields(Machine)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found and found.plausible(nominal(target)) else None


def keep_speeds(target: Target, speeds: Machine) -> None:
    """Leave speeds for later starts; a folder that cannot be used is left alone."""
    folder = trusted_folder("machine")
    if folder is None:
        return
    record = {f.name: getattr(speeds, f.name) for f in fields(Machine)}
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(handle, "w") as file:
            json.dump(record | {"cpu": target.cpu, "isa": target.isa}, file)
        Path(name).replace(folder / _name(target))
    except OSError:
        return


def _name(target: Target) -> str:
    cores = min(_TEAM, default_threads())
    return sha256(f"{_VERSION} {cores} {target!r}".encode()).hexdigest()[:32] + ".json"


def measure_speeds(target: Target) -> Machine:
    """Measure for about a tenth of a second; nominal speeds if what comes out makes no sense."""
    from saccade.runtime.cpu.peaks import Peaks, empty_phase  # noqa: PLC0415 - it needs LLVM

    usual = nominal(target)
    cores = min(_TEAM, default_threads())
    large, small = 3 * target.l3, max(target.l3 // 8, 2 * target.l2)
    peaks = Peaks(target, large)
    flops = max(peaks.flops(1, looks=8) for _ in range(4))
    speeds = Machine(
        flops=flops,
        pair_flops=flops * usual.pair_flops / usual.flops,
        bandwidth=max(peaks.read(large, cores, looks=5), peaks.copy(large, cores, looks=5)),
        cache_bandwidth=max(peaks.copy(small, 1, looks=8) for _ in range(3)),
        step=_LAUNCH + empty_phase(target, cores, looks=6, phases=100),
        cache=target.l3,
    )
    return speeds.rounded() if speeds.plausible(usual) else usual


class Speeds:
    """The speeds of one target: kept ones, or a measurement that runs beside other work.

    Args:
        target: This machine.
        processes: Where to measure.
    """

    def __init__(self, target: Target, processes: Processes) -> None:
        self._target = target
        self._found = kept_speeds(target)
        self._pending: Callable[[], Machine] | None = None
        self._lock = Lock()
        if self._found is None:
            with suppress(OSError):
                self._pending = processes.start(measure_speeds, target)

    def get(self) -> Machine | None:
        """The speeds; None if they cannot be measured."""
        with self._lock:
            pending, self._pending = self._pending, None
            if pending is not None:
                with suppress(SaccadeError, OSError):
                    self._found = pending()
                    keep_speeds(self._target, self._found)
        return self._found
