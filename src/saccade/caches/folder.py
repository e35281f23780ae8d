"""How every store reads and writes: one folder of the cache, its entries opened by descriptor.

A sealed entry is one line, magic and seal, and then the payload. Stores with formats of their own
(mapped constants, logs) get the descriptor and the seal. Whatever may not be used, cannot be read
or is damaged counts as absent, and the first says so (logger `saccade`), as the first does that
cannot be written. Entries are written under another name and renamed once they are whole, so that
processes can share the cache and none ever sees, or leaves, half of one.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from saccade.caches.entry import Item, OpenEntry
from saccade.caches.key import (
    SEAL_BYTES,
    SHARED_FILE,
    SHARED_FOLDER,
    Key,
    read_key,
    seal_of,
    write_all,
)
from saccade.caches.trust import (
    ReadOnlyError,
    UnusableError,
    enter,
    may_write,
    open_file,
    open_root,
    warn,
)
from saccade.locks import forkless
from saccade.options import cache_bytes

__all__ = ["CacheFolder", "Item", "OpenEntry"]

_MAGIC = b"saccade entry 1 "
_HEAD = len(_MAGIC) + 2 * SEAL_BYTES + 1
_LARGEST = 1 << 30  # bytes of a sealed entry, which is read into memory
_BLOCK = 4096
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """A folder in the cache.

    Attributes:
        root: Absolute path of the cache.
        name: Path of the folder within it.
    """

    root: str
    name: str

    @property
    def path(self) -> Path:
        """Where it lies: for messages and tests."""
        return Path(self.root, self.name)

    @property
    def top(self) -> CacheFolder:
        """The cache as a whole."""
        return CacheFolder(self.root, "")

    def folder(self, name: str) -> CacheFolder:
        """A folder in this one; itself, if it has no name."""
        return CacheFolder(self.root, "/".join(filter(None, (self.name, name))))

    def usable(self) -> bool:
        """Whether entries can be read here; the folder and the key are made if need be."""
        return self._can(lambda _: None)

    def writable(self) -> bool:
        """Whether entries can be added here, as well."""
        return self._can(lambda folder: may_write(folder, _resolved(self.root)))

    def _can(self, check: Callable[[int], None]) -> bool:
        try:
            with self._opened(make=True) as (folder, _):
                check(folder)
                return True
        except UnusableError as error:
            self._warn(error)
        except OSError:  # deleted meanwhile
            pass
        return False

    def check(self) -> None:
        """See whether the folder and the key may be used; the cache itself may have no key yet.

        Raises:
            FileNotFoundError: If there is no such folder.
            UnusableError: If one of them may not or cannot be used; the text says why.
        """
        with self._directory() as (root, _), suppress(*(() if self.name else (_NoKeyError,))):
            self._key(root)

    @contextmanager
    def checked(self, name: str) -> Iterator[OpenEntry]:
        """An entry to read.

        Raises:
            FileNotFoundError: If it is not there.
            UnusableError: If it may not or cannot be used; the text says why.
        """
        with self._opened() as (folder, key):
            file = open_file(folder, str(self.path), name)
            try:
                yield self._entry(file, name, key)
            finally:
                os.close(file)

    @contextmanager
    def opened(self, name: str, *, use: bool = True) -> Iterator[OpenEntry | None]:
        """An entry to read, or None; if `use`, it becomes the last to be forgotten."""
        with ExitStack() as stack:
            entry = None
            try:
                entry = stack.enter_context(self.checked(name))
                if use:
                    with suppress(OSError):  # a read-only disk
                        os.utime(entry.file)
            except UnusableError as error:
                self._warn(error)
            except OSError:
                pass
            # Outside of `try`: whoever reads may raise the same errors.
            yield entry

    def exists(self, name: str) -> bool:
        """Whether there is an entry that may be read."""
        with self.opened(name, use=False) as entry:
            return entry is not None

    def read(self, name: str, *, use: bool = True) -> bytes | None:
        """The payload of a sealed entry; None if it is absent, damaged, or of another place."""
        with self.opened(name, use=use) as entry:
            if entry is None:
                return None
            try:
                if os.fstat(entry.file).st_size > _LARGEST:
                    return None
                with os.fdopen(entry.file, "rb", closefd=False) as stream:
                    content = stream.read()
            except OSError:
                return None
        payload = content[_HEAD:]
        # The seal is for this place, too: an entry that was moved here is not believed.
        if hmac.compare_digest(content[:_HEAD], _head(entry.seal(payload))):
            return payload
        self.tell_damaged(name)
        return None

    def tell_damaged(self, name: str) -> None:
        """Warn of an entry whose contents are not what was written there."""
        reason = f"{self.path / name} is damaged, or sealed with another key"
        remedy = "`saccade cache verify` lists all that is not sound"
        self._warn(UnusableError(str(self.path), reason, remedy, "so it is made anew"))

    def write(self, name: str, payload: bytes, *, quiet: bool = False) -> bool:
        """Replace a sealed entry; whether that was possible. `quiet` as of `add`."""

        def fill(entry: OpenEntry) -> None:
            write_all(entry.file, _head(entry.seal(payload)))
            write_all(entry.file, payload)

        return self.add(name, fill, quiet=quiet)

    def add(self, name: str, fill: Callable[[OpenEntry], None], *, quiet: bool = False) -> bool:
        """Replace an entry by what `fill` writes into an empty file; whether that was possible.

        Args:
            name: Of the entry.
            fill: Writes it.
            quiet: Whether it is worth no warning that this was not possible.

        Raises:
            OptionError: If `SACCADE_CACHE_BYTES` is no size.
        """
        with forkless:
            from saccade.caches.limit import (  # noqa: PLC0415 - a warm start writes nothing
                note,
                too_large,
            )
            from saccade.files import renamed_file  # noqa: PLC0415 - nor is anything renamed

        size = 0
        try:
            with self._opened(make=True) as (folder, key), renamed_file(folder, name) as file:
                if key.shared:
                    os.fchmod(file, SHARED_FILE)
                fill(self._entry(file, name, key))
                size = os.fstat(file).st_size
                # Before it gets its name: an error deletes it.
                if too_large(size):
                    raise _TooLargeError
        except _TooLargeError:
            if not quiet:
                self.tell_too_large(name, size)
            # What is there is held to the limit all the same: that may have become lower.
            note(self, name, 0)
            return False
        except OSError as error:
            if not quiet:
                self._tell_unwritten(error)
            return False
        note(self, name, size)
        return True

    def tell_too_large(self, name: str, size: int) -> None:
        """Warn of an entry that the limit leaves no space for, unless it leaves none for any."""
        most = cache_bytes()
        if most:
            reason = f"{self.path / name} would take {size} bytes, more than all of the cache may"
            remedy = f"set SACCADE_CACHE_BYTES, which is {most}, higher"
            self._warn(UnusableError(str(self.path / name), reason, remedy, "so it is not kept"))

    def _tell_unwritten(self, error: OSError) -> None:
        """Warn of why an entry was not written: of a cache that can only be read once for all."""
        if not isinstance(error, UnusableError):
            error = ReadOnlyError(_resolved(self.root), error.strerror or str(error))
        self._warn(error)

    def _warn(self, error: UnusableError) -> None:
        warn(error, _resolved(self.root))

    @contextmanager
    def appending(self, name: str) -> Iterator[OpenEntry]:
        """A log to add to, made if need be; only one process at a time has it.

        The lock is a file of its own, which is never replaced.

        Raises:
            OSError: If the log cannot be used.
        """
        with ExitStack() as stack:
            try:
                folder, key = stack.enter_context(self._opened(make=True))
                place = str(self.path)
                lock = open_file(folder, place, f"{name}.lock", _APPEND)
                # Closing it lets go of the lock.
                stack.callback(os.close, lock)
                if key.shared:
                    os.fchmod(lock, SHARED_FILE)
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Only now: it may have been replaced while this process waited.
                file = open_file(folder, place, name, _APPEND)
                stack.callback(os.close, file)
                if key.shared:
                    os.fchmod(file, SHARED_FILE)
            except OSError as error:
                self._tell_unwritten(error)
                raise
            yield self._entry(file, name, key)

    def items(self) -> list[Item]:
        """Everything that lies here, the last to have been used first."""
        found = []
        with suppress(OSError), self._directory() as (_, folder), os.scandir(folder) as listing:
            for each in listing:
                with suppress(OSError):  # gone meanwhile
                    found.append(self._item(each.name, each.stat(follow_symlinks=False)))
        return sorted(found, key=lambda item: -item.used)

    def remove(self, name: str) -> None:
        """Forget an entry, or whatever else lies there under this name."""
        with suppress(OSError), self._directory() as (_, folder):
            try:
                os.unlink(name, dir_fd=folder)
            except (IsADirectoryError, PermissionError):
                # Of a directory Linux says the one, POSIX the other.
                import shutil  # noqa: PLC0415 - 2 ms for what hardly ever happens

                shutil.rmtree(name, dir_fd=folder)

    def remove_empty(self, name: str) -> None:
        """Forget a folder in this one if nothing is in there."""
        with suppress(OSError), self._directory() as (_, folder):
            os.rmdir(name, dir_fd=folder)

    def _item(self, name: str, status: os.stat_result) -> Item:
        size = -(-status.st_size // _BLOCK) * _BLOCK
        return Item(self.name, name, size, status.st_mtime, stat.S_IFMT(status.st_mode))

    def _entry(self, file: int, name: str, key: Key) -> OpenEntry:
        return OpenEntry(file, str(self.path / name), seal_of(key.secret, f"{self.name}/{name}"))

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[tuple[int, Key]]:
        """A descriptor of the folder, and the key.

        Raises:
            FileNotFoundError: If one of them is not there and not to be made.
            UnusableError: If one of them may not or cannot be used.
        """
        with self._directory(make=make) as (root, folder):
            yield folder, self._key(root)

    def _key(self, root: int) -> Key:
        place = _resolved(self.root)
        try:
            return read_key(root, place)
        except FileNotFoundError:
            raise _NoKeyError(place) from None

    @contextmanager
    def _directory(self, *, make: bool = False) -> Iterator[tuple[int, int]]:
        """Descriptors of the cache and of the folder; errors as those of `_opened`."""
        with ExitStack() as stack:
            here = _resolved(self.root)
            root = folder = open_root(here, make=make)
            stack.callback(os.close, root)
            # Before any folder: where there is a folder and no key, the key was lost.
            shared = make and read_key(root, here, make=True).shared
            for part in filter(None, self.name.split("/")):
                here = f"{here}/{part}"
                # From descriptor to descriptor: what a name leads to may change.
                folder = self._enter(folder, here, make=make, shared=shared)
                stack.callback(os.close, folder)
            yield root, folder

    def _enter(self, parent: int, place: str, *, make: bool, shared: bool) -> int:
        try:
            return enter(parent, place)
        except FileNotFoundError:
            if not make:
                raise
        may_write(parent, _resolved(self.root))
        made = enter(parent, place, make=True)
        if shared:
            os.fchmod(made, SHARED_FOLDER)
        return made


class _NoKeyError(UnusableError):
    def __init__(self, place: str) -> None:
        reason = f"{place}/key, which seals what is in there, is missing"
        super().__init__(place, reason, "let it be written anew, with another key")


class _TooLargeError(Exception):
    """An entry would not fit even if there were no other."""


def _head(seal: bytes) -> bytes:
    return _MAGIC + seal.hex().encode() + b"\n"


@cache
def _resolved(root: str) -> str:
    """The cache's path without symbolic links, as it was when this process first asked.

    A link above the cache is common (/home elsewhere); one that comes later is never followed.
    """
    return os.path.realpath(root)
