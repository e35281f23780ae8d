"""A team borrowed from the OpenMP runtime that the process has already loaded.

Threads of two pools beside each other wait for cores that the other pool's threads spin on (677
instead of 191 µs for a small operator between PyTorch's own), so operators enter the pool that
their neighbours use. `GOMP_parallel` is the entry of GNU's runtime; Intel's and LLVM's have it too.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np

from saccade.backends.cpu.runtime.driver import TEAM_WORDS, driver
from saccade.backends.cpu.runtime.team import (
    PATIENCE_AT_BARRIER,
    PATIENCE_WORD,
    FutexTeam,
    Inline,
    Job,
    shared_team,
)

__all__ = ["OpenMpTeam", "openmp_library", "run_on_pool"]

_NAMES = ("libgomp", "libiomp5", "libomp")
_ENTRY_WORDS = 8  # of 8 bytes, a line of cache: what a region's threads start with
_ARRIVALS, _EPOCH, _SLEEPERS = 32, 40, 48  # words of a team, see `driver`


@cache
def openmp_library() -> ctypes.CDLL | None:
    """The OpenMP runtime in this process, or None; asked for once it has been loaded.

    A forked child has none: the runtime believes in threads that the parent has.
    """
    if _forked:
        return None
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for path in dict.fromkeys(line.split()[-1] for line in lines if "/" in line):
        if Path(path).name.startswith(_NAMES):
            library = ctypes.CDLL(path)
            if hasattr(library, "GOMP_parallel"):
                return library
    return None


class _Region:
    """What the threads of one parallel region read: the entry, and words to meet at."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._memory = np.zeros(_ENTRY_WORDS + TEAM_WORDS + 8, np.int64)
        start = (-self._memory.ctypes.data % 64) // 8
        self.entry = self._memory[start : start + _ENTRY_WORDS]
        self.team = self._memory[start + _ENTRY_WORDS : start + _ENTRY_WORDS + TEAM_WORDS]
        asked = (library.omp_get_thread_num, library.omp_get_num_threads)
        self.entry[1:3] = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in asked]
        self.team[PATIENCE_WORD : PATIENCE_WORD + 2] = PATIENCE_AT_BARRIER
        self.entry_address, self.team_address = self.entry.ctypes.data, self.team.ctypes.data


class OpenMpTeam:
    """Threads of an OpenMP runtime; any number of callers at once, each with a region of its own.

    Args:
        library: The runtime.
        width: How many threads to ask for. A region may be narrower (inside another one it has a
            single thread); how wide it is, its threads ask when they are in it.
    """

    def __init__(self, library: ctypes.CDLL, width: int) -> None:
        self.width = width
        self._library = library
        void = ctypes.c_void_p
        self._parallel = ctypes.CFUNCTYPE(None, void, void, ctypes.c_uint, ctypes.c_uint)(
            ctypes.cast(library.GOMP_parallel, void).value or 0
        )
        self._idle: list[_Region] = []
        self._inline = Inline()

    def run(self, job: Job) -> None:
        """Walk the job with as many threads as the runtime gives."""
        if self.width == 1:
            self._inline.run(job)
            return
        try:
            region = self._idle.pop()
        except IndexError:
            region = _Region(self._library)
        try:
            # Regions differ in width, so each one counts arrivals from zero.
            region.team[_ARRIVALS] = region.team[_EPOCH] = region.team[_SLEEPERS] = 0
            region.entry[0] = job.address
            job.words[4] = region.team_address
            self._parallel(driver().region, region.entry_address, self.width, 0)
        finally:
            self._idle.append(region)


def run_on_pool(job: Job, width: int) -> None:
    """Walk a job with the pool's threads; with ours where there is none, or a fork lost it."""
    team = _teams.get(width) or _find_team(width)
    if isinstance(team, FutexTeam):
        with team.lock:
            team.run(job)
    else:
        team.run(job)


def _find_team(width: int) -> OpenMpTeam | FutexTeam:
    known = openmp_library()
    team = shared_team(width) if known is None else OpenMpTeam(known, width)
    _teams[width] = team
    return team


_teams: dict[int, OpenMpTeam | FutexTeam] = {}
_forked: list[bool] = []


def _forget_library() -> None:
    _forked.append(True)
    _teams.clear()
    openmp_library.cache_clear()


os.register_at_fork(after_in_child=_forget_library)
