"""What entries of caches are valid for: digests of Saccade's own sources."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__all__ = ["sources_digest"]

_APART = ("cli", "report", "testing")
"""Rooms that no answer depends on."""


@cache
def sources_digest(*rooms: str) -> str:
    """Digest of all sources in these folders of the package; of all that answers depend on if none.

    Args:
        *rooms: Folders, `backends/cpu/codegen` for one.
    """
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for folder in rooms or ("",):
        # File systems list in different orders.
        for path in sorted((package / folder).rglob("*.py")):
            name = path.relative_to(package)
            if rooms or name.parts[0] not in _APART:
                digest.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
