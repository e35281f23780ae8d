"""A process that times variants on the GPU, so that what one of them breaks is not the user's.

A variant that reads where nothing is takes the context of its process with it, and all that other
libraries have on the GPU. Here that process is ours alone: it is replaced, and the next variant
goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from saccade.backends.cuda.runtime.context import open_device
from saccade.backends.cuda.runtime.gauge import Contest, Gauge
from saccade.errors import CompileError, DeviceError, SaccadeError
from saccade.ir import Array
from saccade.processes import Processes, Worker

__all__ = ["MeasuringProcess", "Timed", "open_gauge", "time_contest"]

_LONGEST = 120.0  # seconds of a few rounds; kernels that take so long have no end


@dataclass(frozen=True, slots=True)
class Timed:
    """What came of a contest.

    Attributes:
        micros: [variants, rounds], microseconds; None if it could not be run.
        reason: Why not.
        lost: Whether the process can do nothing more on the GPU.
    """

    micros: Array | None
    reason: str = ""
    lost: bool = False


_gauges: list[Gauge] = []  # one, once it was opened


def open_gauge(ordinal: int) -> None:
    """What the process does first.

    Raises:
        DeviceError: If it cannot use the GPU.
    """
    _gauges.append(Gauge(open_device(ordinal)))


def time_contest(contest: Contest) -> Timed:
    """What the process does from then on."""
    (gauge,) = _gauges
    return timed_by(gauge, contest)


def timed_by(gauge: Gauge, contest: Contest) -> Timed:
    """A contest, with whatever goes wrong as its result."""
    try:
        return Timed(gauge.times(contest))
    except SaccadeError as error:
        return Timed(None, str(error), gauge.lost)


class MeasuringProcess:
    """The process, as long as it lives; another one after it.

    Args:
        processes: Where it is started.
        ordinal: Which of this process's GPUs.
    """

    def __init__(self, processes: Processes, ordinal: int = 0) -> None:
        self._processes, self._ordinal = processes, ordinal
        self._worker: Worker | None = None

    def times(self, contest: Contest) -> Timed:
        """Have variants timed.

        Raises:
            DeviceError: If no process of ours can use the GPU.
        """
        worker = self._started()
        try:
            found = worker.call(time_contest, contest, _LONGEST)
        except CompileError as error:  # it died
            found = Timed(None, str(error), lost=True)
        # The next contest gets a process whose context works.
        if found.lost:
            self.close()
        return found

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = self._processes.worker(__name__)
            try:
                self._worker.call(open_gauge, self._ordinal, _LONGEST)
            except CompileError as error:
                self.close()
                raise DeviceError(
                    f"a process for measurements on the GPU cannot be started: {error}"
                ) from error
            # Also where the user interrupts: without its gauge the process must not be asked.
            except BaseException:
                self.close()
                raise
        return self._worker

    def close(self) -> None:
        """Let it end, and with it all that it has on the GPU."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
