"""Launches with as little work as may be: the driver's own functions, without the bindings.

What the bindings make of a launch's configuration and arguments takes longer than the launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from saccade.backends.cuda.runtime.driver import PlacedLaunch

__all__ = ["launch_directly"]


@cache
def _functions() -> tuple[Any, Any, Any, Any]:
    """To push a context, launch, and pop it; where the last writes which one it was."""
    # With the interpreter's lock for what takes no time, without it for what may wait.
    held, free = ctypes.PyDLL("libcuda.so.1"), ctypes.CDLL("libcuda.so.1")
    push, launch, pop = held.cuCtxPushCurrent_v2, free.cuLaunchKernelEx, held.cuCtxPopCurrent_v2
    push.argtypes = pop.argtypes = (ctypes.c_void_p,)
    launch.argtypes = (ctypes.c_void_p,) * 4
    return push, launch, pop, ctypes.c_void_p()


def launch_directly(context: int, launches: Sequence[PlacedLaunch]) -> tuple[str, int] | None:
    """Put launches on their streams, in a context; what failed and how, if anything did."""
    push, launch, pop, popped = _functions()
    status = push(context)
    if status:
        return "cuCtxPushCurrent", status
    for config, function, table in launches:
        status = launch(config, function, table, None)
        if status:
            break
    pop(ctypes.addressof(popped))
    return ("cuLaunchKernelEx", status) if status else None
