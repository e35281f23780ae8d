"""Measured speeds of this machine, kept in the cache folder: plans of later starts go by them too.

They are measured in a child process, which may pin threads and use memory as it likes. Choices
depend on them, so they are rounded and kept: what a machine chooses does not change from one start
to the next. A measurement that makes no sense is dropped, and nominal speeds stand.

Neighbours make a machine look slower than it is. So looks are short, come in rounds, and the best
of all counts; and the next starts that have children at work anyway measure again, until three
have. What is faster by a quarter shows that the record is from a loud moment, and takes its place;
less than that may be noise, which no choice should depend on.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from saccade.caches import trusted_folder
from saccade.codegen.target import Target
from saccade.errors import SaccadeError
from saccade.kernels.machine import Machine, nominal
from saccade.locks import Lock
from saccade.options import default_threads
from saccade.processes import Processes

if TYPE_CHECKING:
    from saccade.runtime.cpu.peaks import Peaks

__all__ = ["Record", "Speeds", "keep_speeds", "kept_speeds", "measure_speeds"]

_VERSION = 2  # of the measurement; a new one is taken where this changes
_LAUNCH = 0.7  # microseconds of a phase's arguments, claims and cold code, beside the barrier
_TEAM = 2  # cores that memory is measured with: kernels are chosen for a nominal team
_ROUNDS = 2
_LOOK = 8 << 20  # bytes of a look at memory, a fraction of the scheduler's time slice
_STARTS = 3  # that measure
_LOUD = 1.25  # times as fast as the record: it was taken in a loud moment


class Record(NamedTuple):
    """What is kept: the speeds, and how many starts have measured them."""

    speeds: Machine
    starts: int


def kept_speeds(target: Target) -> Record | None:
    """What earlier starts measured, or None."""
    folder = trusted_folder("machine")
    if folder is None:
        return None
    try:
        record = json.loads((folder / _name(target)).read_text())
        found = Machine(**{f.name: float(record[f.name]) for f in fields(Machine)})
        starts = int(record["starts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Record(found, starts) if found.plausible(nominal(target)) else None


def keep_speeds(target: Target, record: Record) -> None:
    """Leave speeds for later starts; a folder that cannot be used is left alone."""
    folder = trusted_folder("machine")
    if folder is None:
        return
    speeds = {f.name: getattr(record.speeds, f.name) for f in fields(Machine)}
    known = {"cpu": target.cpu, "isa": target.isa, "starts": record.starts}
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(handle, "w") as file:
            json.dump(speeds | known, file)
        Path(name).replace(folder / _name(target))
    except OSError:
        return


def _name(target: Target) -> str:
    cores = min(_TEAM, default_threads())
    return sha256(f"{_VERSION} {cores} {target!r}".encode()).hexdigest()[:32] + ".json"


def measure_speeds(target: Target) -> Machine:
    """Measure for about a tenth of a second; nominal speeds if what comes out makes no sense."""
    from saccade.runtime.cpu.peaks import Peaks  # noqa: PLC0415 - it needs LLVM

    usual, peaks = nominal(target), Peaks(target, 3 * target.l3)
    rounds = (_look_at_all(peaks, target) for _ in range(_ROUNDS))
    speeds = reduce(Machine.improved, rounds)
    return speeds.rounded() if speeds.plausible(usual) else usual


def _look_at_all(peaks: Peaks, target: Target) -> Machine:
    """The best of a few short looks at each speed, one after the other."""
    usual, cores = nominal(target), min(_TEAM, default_threads())
    large, small = 3 * target.l3, max(target.l3 // 8, 2 * target.l2)
    parts = max(1, large // _LOOK)
    flops = peaks.flops(1, looks=8)
    return Machine(
        flops=flops,
        pair_flops=flops * usual.pair_flops / usual.flops,
        bandwidth=max(
            peaks.read(large, cores, looks=parts, parts=parts),
            peaks.copy(large, cores, looks=parts, parts=parts),
        ),
        cache_bandwidth=peaks.copy(small, 1, looks=8),
        step=_LAUNCH + peaks.phase(cores, looks=4, phases=100),
        cache=target.l3,
    )


class Speeds:
    """The speeds of one target: kept ones, or a measurement that runs beside other work.

    Args:
        target: This machine.
        processes: Where to measure; again, if it has children already and few starts have.
    """

    def __init__(self, target: Target, processes: Processes) -> None:
        self._target = target
        self._kept = kept_speeds(target)
        self._pending: Callable[[], Machine] | None = None
        self._lock = Lock()
        if self._kept is None or (processes.started and self._kept.starts < _STARTS):
            with suppress(OSError):
                self._pending = processes.start(measure_speeds, target)

    def get(self) -> Machine | None:
        """The speeds; None if they cannot be measured."""
        with self._lock:
            pending, self._pending = self._pending, None
            if pending is not None:
                with suppress(SaccadeError, OSError):
                    self._kept = _after(self._kept, pending())
                    keep_speeds(self._target, self._kept)
        return self._kept and self._kept.speeds


def _after(kept: Record | None, measured: Machine) -> Record:
    """The record after one more measurement."""
    if kept is None:
        return Record(measured, 1)
    return Record(kept.speeds.improved(measured, _LOUD), kept.starts + 1)
