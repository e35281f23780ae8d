"""The native driver in this process: its code, and the functions that it has."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from saccade.backends.cpu.runtime.driver_text import driver_text
from saccade.backends.cpu.target import Target, host_target
from saccade.locks import forkless

if TYPE_CHECKING:
    from saccade.backends.cpu.runtime.image import Linked

__all__ = [
    "JOB_WORDS",
    "PHASE_WORDS",
    "TEAM_WORDS",
    "Driver",
    "compile_driver",
    "driver",
    "driver_code",
    "nanoseconds_per_tick",
    "provide",
    "provide_code",
]

JOB_WORDS = 8  # of 8 bytes: phases, their number, bases, counters, team, width, fault, clock
PHASE_WORDS = 3  # of 8 bytes: code, arguments, whether there is a barrier before it
TEAM_WORDS = 64  # of 8 bytes: what threads wait on has lines of cache of its own
_SYMBOLS = ("saccade_run", "saccade_walk", "saccade_worker", "saccade_region", "saccade_clock")


class Driver:
    """The driver's entry points in this process."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self.worker = linked.addresses["saccade_worker"]
        """Address to start a thread at; its argument is the worker's `self`."""
        self.region = linked.addresses["saccade_region"]
        """Address of what each thread of a borrowed pool is to call; its argument is an entry."""
        void2 = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        self.run = void2(linked.addresses["saccade_run"])
        """`run(team, job)`; lets go of the GIL."""
        self.walk = void2(linked.addresses["saccade_walk"])
        """`walk(job, thread)`; lets go of the GIL."""
        self.clock = ctypes.CFUNCTYPE(ctypes.c_int64)(linked.addresses["saccade_clock"])
        """Reads the counter that profiles are measured with."""


def compile_driver(target: Target) -> bytes:
    """The driver's object code."""
    with forkless:
        from saccade.backends.cpu.codegen.compile import object_code  # noqa: PLC0415 - a warm start has it linked

    with forkless:
        return object_code(driver_text(target), target)


def driver_code(target: Target, make: Callable[[Target], bytes], *, disk: bool) -> bytes:
    """The driver's object code, from the folder on disk if it may be used and has it."""
    known = _codes.get(target)
    if known is not None:
        return known
    with forkless:
        from saccade.backends.cpu.runtime.objects import keep_text, kept_text  # noqa: PLC0415 - see above

    text = driver_text(target)
    found = kept_text(text, target) if disk else None
    if found is None:
        found = make(target)
        if disk:
            keep_text(text, target, found)
    return _codes.setdefault(target, found)


_codes: dict[Target, bytes] = {}
"""Object code of drivers, once it was asked for: every program is linked with it."""
_current: list[Driver] = []
"""The process's driver, once there is one: teams outlive the programs whose code it came with."""


def provide(linked: Linked) -> None:
    """Take the driver from linked code, unless the process has one already."""
    if not _current:
        _current.append(Driver(linked))


def provide_code(code: Callable[[], bytes]) -> None:
    """The same from its object code, which is only asked for if there is none."""
    if not _current:
        with forkless:
            from saccade.backends.cpu.runtime.linker import link  # noqa: PLC0415 - see `compile_driver`

        provide(link([code()], _SYMBOLS))


def driver() -> Driver:
    """The driver, one for the whole process."""
    provide_code(lambda: driver_code(host_target(), compile_driver, disk=True))
    return _current[0]


@lru_cache(maxsize=1)
def nanoseconds_per_tick() -> float:
    """Period of the profile clock, measured over 20 ms."""
    clock = driver().clock
    began, first = time.perf_counter_ns(), clock()
    while time.perf_counter_ns() - began < 20_000_000:
        pass
    return float((time.perf_counter_ns() - began) / (clock() - first))
