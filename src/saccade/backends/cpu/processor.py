"""Which machine this is, as the system tells; nothing of LLVM is asked."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

__all__ = ["cpuinfo", "this_machine"]


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


def this_machine() -> dict[str, str]:
    """What must be equal for a measured choice to mean anything; calls name their target."""
    # The platform module would start a process to find out.
    name = cpuinfo().get("model name") or platform.processor() or platform.machine()
    return {"cpu": name, "system": f"{platform.system()} {platform.machine()}"}
