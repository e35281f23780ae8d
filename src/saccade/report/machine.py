"""The machine that a measurement was taken on."""

from __future__ import annotations

import os
import platform
from typing import Any

from saccade.backends.cpu.processor import cpuinfo
from saccade.devices import device_named

__all__ = ["describe_machine"]

_CAPABILITIES = ("avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "i8mm", "fphp")


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """Processor, its vector instruction sets, allowed processors, memory in bytes, system.

    And what a device says of itself, beside that.

    Raises:
        DeviceError: If there is no such device here.
    """
    info = cpuinfo()
    # On Arm the list is called `Features`.
    flags = info.get("flags", info.get("Features", "")).split()
    return {
        "cpu": info.get("model name", platform.processor() or platform.machine()),
        "family": info.get("cpu family", ""),
        "model": info.get("model", ""),
        "flags": sorted(flag for flag in flags if flag.startswith(_CAPABILITIES)),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **device_named(device).facts(),
    }
