"""Which machine this is, as the system tells; nothing of LLVM is asked."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

__all__ = ["TILES", "cpuinfo", "this_machine", "tiles_allowed"]

TILES = frozenset(("amx_tile", "amx_bf16"))
"""What Linux calls registers of tiles of matrices, and their products of bfloat16."""
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # numbers of Linux on x86-64


@lru_cache(maxsize=1)
def cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo, empty where there is none."""
    fields: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                name, colon, value = line.partition(":")
                if not colon:  # an empty line ends the first one; writing all of many takes long
                    break
                fields[name.strip()] = value.strip()
    return fields


@lru_cache(maxsize=1)
def tiles_allowed() -> bool:
    """Whether this process may use tiles of matrices: there are any, and Linux was asked.

    Threads' states are larger with them, so that Linux wants to know beforehand; forks inherit the
    permission. It is refused where a thread has a stack for signals that is too small for that.
    """
    if not set(cpuinfo().get("flags", "").split()) >= TILES:
        return False
    import ctypes  # noqa: PLC0415

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype, call.argtypes = ctypes.c_long, (ctypes.c_long,) * 3
    return bool(call(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)


def this_machine() -> dict[str, str]:
    """What must be equal for a measured choice to mean anything; calls name their target."""
    # The platform module would start a process to find out.
    name = cpuinfo().get("model name") or platform.processor() or platform.machine()
    return {"cpu": name, "system": f"{platform.system()} {platform.machine()}"}
