"""The machine that a measurement was taken on, and what was measured there."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from saccade.backends.cpu.processor import cpuinfo
from saccade.devices import device_named

__all__ = ["commit", "describe_machine", "package_versions"]

_CAPABILITIES = ("avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "i8mm", "fphp")
_PACKAGES = ("numpy", "onnx", "llvmlite", "triton", "cuda-bindings")
"""What speeds and answers may depend on."""
_CHECKOUT = Path(__file__).parents[3]
"""Of Saccade, if it is one."""


def describe_machine(device: str = "cpu") -> dict[str, object]:
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


def package_versions() -> dict[str, str]:
    """Versions of Python, and of the packages that are installed here."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit of Saccade's checkout, with a `+` where files differ; empty if it is none."""
    # An installed package may lie within a checkout of something else.
    if not (_CHECKOUT / "src" / "saccade").is_dir() or not (_CHECKOUT / ".git").exists():
        return ""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", "src")
    except (OSError, subprocess.SubprocessError):  # no git, or it does not trust the folder
        return ""
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_CHECKOUT), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()
