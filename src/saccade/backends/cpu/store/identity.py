"""What a bundle's validity depends on: the machine, Saccade's code, LLVM; each as a short text.

Nothing here imports LLVM: a warm start has to be able to ask.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from saccade.backends.cpu.processor import cpuinfo, tiles_allowed
from saccade.backends.cpu.target import cache_sizes

__all__ = ["llvm_identity", "machine_identity"]

_SAYS_WHICH = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


@cache
def llvm_identity() -> str | None:
    """The version of llvmlite, and size and time of its library; None if there is none.

    The time in whole seconds: layers of container images keep no more, and a cache that was filled
    while an image was built would be another machine's wherever the image is pulled to.
    """
    found = find_spec("llvmlite")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    try:
        version = (folder / "_version.py").read_bytes()
        libraries = sorted((folder / "binding").glob("*llvmlite*"))
        states = [(path.name, path.stat().st_size, int(path.stat().st_mtime)) for path in libraries]
    except OSError:
        return None
    return f"{hashlib.sha256(version).hexdigest()} {states}"


@cache
def machine_identity() -> str | None:
    """The processor and its caches; None where bundles are not made."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    # Asked at every start, so that no code with tiles runs before it may.
    told = [cpuinfo().get(name) for name in _SAYS_WHICH]
    return repr([*told, cache_sizes(), tiles_allowed()])
