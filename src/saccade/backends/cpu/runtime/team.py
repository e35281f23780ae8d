"""Teams: how many threads walk a program, and whose they are.

A `Team` takes a job (the native description of one run) and returns when every thread has walked
it. The futex team owns native threads that spin briefly between runs and then sleep; the inline
team is the calling thread alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Protocol

import numpy as np

from saccade.backends.cpu.runtime.driver import TEAM_WORDS, driver

__all__ = ["FutexTeam", "Inline", "Job", "Team", "shared_team"]

_current_core = ctypes.CDLL(None).sched_getcpu

# Pauses, then pauses and yields together, before a thread sleeps. A pause takes about 20 ns, a
# yield 300 ns or more.
PATIENCE_AT_BARRIER = (600, 5_000)
PATIENCE_BETWEEN_RUNS = (5_000, 8_000)
PATIENCE_WORD = 56
"""First of the four words of a team that hold its patience: at barriers, then between runs."""


class Words(Protocol):
    """Integers of 64 bits in memory."""

    def __getitem__(self, at: int, /) -> Any: ...  # noqa: ANN401 - an integer, of NumPy or Python

    def __setitem__(self, at: int, value: int, /) -> None: ...


class Job(Protocol):
    """One run of a program, described natively."""

    address: int
    """Of the job's words (see `driver`)."""

    @property
    def words(self) -> Words:
        """The driver's, and perhaps more."""

    count: int
    """Number of phases."""


class Team(Protocol):
    """Runs jobs."""

    width: int

    def run(self, job: Job) -> None:
        """Walk the job with every thread of the team."""


class Inline:
    """The calling thread alone."""

    width = 1

    def run(self, job: Job) -> None:
        """Walk the job."""
        job.words[5] = 1
        driver().walk(job.address, 0)


class FutexTeam:
    """Native threads of our own; one run at a time.

    Args:
        width: How many threads walk a job, the caller included.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.lock = threading.Lock()
        """Held by whoever runs a job on the team."""
        self._memory = np.zeros(TEAM_WORDS + 16, np.int64)
        start = (-self._memory.ctypes.data % 64) // 8
        self._words = self._memory[start : start + TEAM_WORDS]
        patience = (*PATIENCE_AT_BARRIER, *PATIENCE_BETWEEN_RUNS)
        self._words[PATIENCE_WORD : PATIENCE_WORD + 4] = patience
        self._address = self._words.ctypes.data
        self._selves = np.zeros((max(width - 1, 1), 8), np.int64)
        self._started = False
        self._avoided = -1

    def _start(self) -> None:
        """Start the workers: native threads, so that Python does not wait for them at exit."""
        # They are joined by nobody and may still spin when the team or the interpreter goes: what
        # they read is never freed.
        for read in (self._memory, self._selves):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(read))
        create = ctypes.CDLL(None).pthread_create
        for i in range(self.width - 1):
            self._selves[i, :3] = self._address, i + 1, 0
            handle = ctypes.c_uint64()
            code = create(
                ctypes.byref(handle),
                None,
                ctypes.c_void_p(driver().worker),
                ctypes.c_void_p(self._selves[i].ctypes.data),
            )
            if code:
                raise OSError(code, f"cannot start a thread: {os.strerror(code)}")
        self._started = True

    def _spread(self) -> None:
        """Keep workers off the caller's core: Linux wakes them there, and moves them late."""
        core = _current_core()
        if core == self._avoided:
            return
        others = os.sched_getaffinity(0) - {core}
        workers = self._selves[: self.width - 1, 3].tolist()
        if others and all(workers):  # a worker that has just been started has not said its id yet
            for thread in workers:
                os.sched_setaffinity(thread, others)
            self._avoided = core

    def run(self, job: Job) -> None:
        """Walk the job with the whole team; the caller holds `lock`."""
        if not self._started:
            self._start()
        self._spread()
        job.words[4], job.words[5] = self._address, self.width
        driver().run(self._address, job.address)


_teams: dict[int, FutexTeam] = {}
_teams_lock = threading.Lock()


def shared_team(width: int) -> FutexTeam:
    """The process's team of this width."""
    with _teams_lock:
        if width not in _teams:
            _teams[width] = FutexTeam(width)
        return _teams[width]


def _forget_teams() -> None:
    """A forked child has no workers, and a lock may be held by a thread that it does not have."""
    global _teams_lock  # noqa: PLW0603 - replaced, not shared, in the child
    _teams_lock = threading.Lock()
    _teams.clear()


os.register_at_fork(after_in_child=_forget_teams)
