"""An entry of the cache that was opened, and one that was listed."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.caches.key import Seal

__all__ = ["Item", "OpenEntry"]


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """An opened entry.

    Attributes:
        file: Descriptor, which whoever opened the entry closes.
        where: Its path, for messages.
        seal: Seals contents for this entry.
    """

    file: int
    where: str
    seal: Seal


@dataclass(frozen=True, slots=True)
class Item:
    """A file as it is listed; nothing is checked yet.

    Attributes:
        folder: The folder within the cache.
        name: Within the folder.
        size: Bytes on disk: whole blocks of 4096.
        used: When it was last used, in seconds since the epoch.
        kind: What it is, as `stat.S_IFMT` gives it.
    """

    folder: str
    name: str
    size: int
    used: float
    kind: int

    @property
    def fresh(self) -> bool:
        """Whether it is still being written, or was when its writer died."""
        # As `files.fresh_file` names it.
        return self.name.startswith(".new-")
