"""How much memory a process may still have, for messages."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["free_bytes", "size_text"]

_UNLIMITED = 1 << 60
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
"""Of this process's cgroup: version 2, then 1."""


def free_bytes() -> int | None:
    """What the system, the cgroup and the process's own limit leave; None where nobody says."""
    left = [
        found
        for found in (_system(), *map(_cgroup, _LIMITS), _address_space())
        if found is not None
    ]
    return max(0, min(left)) if left else None


def _system() -> int | None:
    return _kilobytes("/proc/meminfo", "MemAvailable")


def _cgroup(files: tuple[str, str]) -> int | None:
    try:
        most, used = (Path(file).read_text().strip() for file in files)
        return None if most == "max" or int(most) >= _UNLIMITED else int(most) - int(used)
    except (OSError, ValueError):
        return None


def _address_space() -> int | None:
    """Of `ulimit -v`."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ModuleNotFoundError:
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _kilobytes("/proc/self/status", "VmSize")
    return None if most == resource.RLIM_INFINITY or used is None else most - used


def _kilobytes(file: str, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(file).read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) << 10


def size_text(nbytes: int) -> str:
    """Bytes for people: `512 B`, `1.5 GiB`."""
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
