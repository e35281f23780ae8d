"""Which machine a time was taken on."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

__all__ = ["cpuinfo", "this_machine"]


@lru_cache(maxsize=1)
def cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo, empty where there is none."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def this_machine() -> dict[str, str]:
    """What must be equal for a measured choice to mean anything; calls name their target."""
    name = cpuinfo().get("model name", platform.processor() or platform.machine())
    return {"cpu": name, "system": f"{platform.system()} {platform.machine()}"}
