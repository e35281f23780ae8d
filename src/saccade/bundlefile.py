"""A model as one file that runs elsewhere: plans, code and packed constants, for one device.

    magic (16)  header bytes (8)  SHA-256 of the header (32)  header (JSON)  pad  entries

The header says which Saccade wrote it and for which device and machines, the model's signature, and
for each entry its name, place, size and seal: its SHA-256, of large ones that of sums. Entries of a
model's bundle are those of one machine after the other (`BundlePart`); what is the same is there
once. Nothing of it is used before it is checked. It holds machine code: whoever may write it may
run what they like where it is run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.files import open_regular, whole_file
from saccade.signature import Signature

__all__ = ["BundleFile", "BundleHead", "BundlePart", "is_bundle", "open_bundle", "write_bundle"]

_BUNDLE = b"saccade bundle "
_MAGIC = _BUNDLE + b"5"
_PREFIX = struct.Struct("<16sQ32s")
_ALIGN = 4096  # bytes: entries are mapped
_LONGEST_HEADER = 1 << 28
_LARGE = 256 << 10
_POPULATE_READ = 22  # of Linux 5.14, which Python has no name for


@dataclass(frozen=True, slots=True)
class BundleHead:
    """What a bundle says of itself.

    Attributes:
        saccade: Version that wrote it.
        device: Name of the device that it runs on.
        precision: As in `Options.precision`.
        threads: Width of the team.
        machines: For each that it was made for what names it, for people and for the device.
        signature: Inputs and outputs of the model, as far as there are programs for them.
        shapes: Sets of input shapes that there are programs for.
        model: Digest of the model's file.
    """

    saccade: str
    device: str
    precision: str
    threads: int
    machines: tuple[Mapping[str, str], ...]
    signature: Signature
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    model: str


def is_bundle(path: Path) -> bool:
    """Whether a file begins like one, of whatever version of the format."""
    try:
        with open_regular(path) as stream:
            return stream.read(len(_BUNDLE)) == _BUNDLE
    except OSError:
        return False


def write_bundle(path: Path, head: BundleHead, entries: Mapping[str, bytes]) -> int:
    """Write a bundle; gives its size in bytes. Entries with the same content share a place.

    Raises:
        OSError: If it cannot be written; what was there stays.
    """
    # Counted from the first entry on: the header holds them, and its length depends on them.
    places, at = [], 0
    unique: dict[str, tuple[int, bytes]] = {}
    for name, content in entries.items():
        digest = hashlib.sha256(content).hexdigest()
        if digest not in unique:
            unique[digest] = at, content
            at = _up(at + len(content))
        places.append((name, unique[digest][0], len(content), _seal(content)))
    fields = {
        "saccade": head.saccade, "device": head.device, "precision": head.precision,
        "threads": head.threads, "machines": [*map(dict, head.machines)], "shapes": head.shapes,
        "signature": head.signature.to_json(), "model": head.model, "entries": places,
    }  # fmt: skip
    header = json.dumps(fields, separators=(",", ":")).encode()
    start = _up(_PREFIX.size + len(header))
    with whole_file(path) as stream:
        stream.write(_PREFIX.pack(_MAGIC, len(header), hashlib.sha256(header).digest()) + header)
        stream.write(bytes(start - _PREFIX.size - len(header)))
        for _, content in unique.values():
            stream.write(content)
            stream.write(bytes(_up(len(content)) - len(content)))
    return start + at


class BundleFile:
    """An open bundle, mapped; entries are checked when they are read.

    Args:
        path: For messages.
        content: All of it.

    Attributes:
        head: What it says of itself.
    """

    def __init__(self, path: Path, content: mmap.mmap | bytes) -> None:
        self._path = path
        self._content = memoryview(content)
        fields = self._header()
        try:
            self.head = _head(fields)
            self._places = {
                str(name): (int(at), int(size), str(seal))
                for name, at, size, seal in fields["entries"]
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path}: the bundle's header is damaged") from error

    def _header(self) -> dict[str, Any]:
        if len(self._content) < _PREFIX.size:
            raise ModelError(f"{self._path}: the bundle is cut short")
        magic, length, digest = _PREFIX.unpack_from(self._content)
        if magic != _MAGIC:
            raise ModelError(
                f"{self._path}: not a bundle of this version of the format: build it again"
            )
        # A slice ends with the content, whatever length the prefix claims.
        header = bytes(self._content[_PREFIX.size : _PREFIX.size + length])
        if length > _LONGEST_HEADER or len(header) != length:
            raise ModelError(f"{self._path}: the bundle is cut short")
        if not hmac.compare_digest(hashlib.sha256(header).digest(), digest):
            raise ModelError(f"{self._path}: the bundle's header is damaged")
        self._start = _up(_PREFIX.size + length)
        # Anybody can make a digest: what it covers may be no header.
        fields = json.loads(header)
        if not isinstance(fields, dict):
            raise ModelError(f"{self._path}: the bundle's header is damaged")
        return fields

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def names(self) -> tuple[str, ...]:
        """Of the entries."""
        return tuple(self._places)

    def read(self, name: str) -> memoryview:
        """An entry's bytes, as long as they are held.

        Raises:
            ModelError: If there is no such entry, or it is damaged.
        """
        if name not in self._places:
            raise ModelError(f"{self._path}: the bundle has no entry {name}")
        at, size, seal = self._places[name]
        content = self._content[self._start + at : self._start + at + size]
        # A negative place would count from the end.
        if at < 0 or len(content) != size:
            raise ModelError(f"{self._path}: the bundle is cut short")
        self._bring(self._start + at, size)
        if _seal(content) != seal:
            raise ModelError(f"{self._path}: entry {name} of the bundle is damaged")
        return content

    def _bring(self, start: int, size: int) -> None:
        """Have page tables filled at once, where the system can: one by one takes much longer."""
        mapped = self._content.obj
        if isinstance(mapped, mmap.mmap) and size >= _LARGE:
            with suppress(OSError, ValueError):
                mapped.madvise(_POPULATE_READ, start, size)


class BundlePart:
    """What the bundle of a model holds for one of its machines.

    Args:
        file: The bundle.
        number: Of the machine.

    Attributes:
        head: Of the bundle.
        machine: Names the machine.
    """

    def __init__(self, file: BundleFile, number: int) -> None:
        self._file, self._number = file, number
        self.head, self.machine = file.head, file.head.machines[number]

    @staticmethod
    def name(number: int, entry: str) -> str:
        """What an entry of one of the machines is called in the bundle."""
        return f"{number}/{entry}"

    def read(self, entry: str) -> memoryview:
        """An entry's bytes: see `BundleFile.read`."""
        return self._file.read(self.name(self._number, entry))


def open_bundle(path: Path) -> BundleFile:
    """The bundle in a file.

    Raises:
        ModelError: If it is none, cut short or damaged.
    """
    try:
        with open_regular(path) as stream:
            size = stream.seek(0, 2)
            if size == 0:  # which cannot be mapped
                raise ModelError(f"{path}: the bundle is cut short")
            # The mapping outlives the stream.
            return BundleFile(path, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error


def _head(fields: Mapping[str, Any]) -> BundleHead:
    shapes = tuple(
        tuple(tuple(int(size) for size in shape) for shape in inputs) for inputs in fields["shapes"]
    )
    return BundleHead(
        str(fields["saccade"]),
        str(fields["device"]),
        str(fields["precision"]),
        int(fields["threads"]),
        tuple({str(k): str(v) for k, v in one.items()} for one in fields["machines"]),
        Signature.from_json(fields["signature"].encode()),
        shapes,
        str(fields["model"]),
    )


def _seal(content: bytes | memoryview) -> str:
    """What a change of the content changes; of a large one at the speed of memory.

    Its pages are summed, as 64-bit words, so that every flipped bit counts, and the sums digested.
    """
    if len(content) < _LARGE:
        return hashlib.sha256(content).hexdigest()
    import numpy as np  # noqa: PLC0415 - who reads constants has it

    whole = len(content) // _ALIGN * _ALIGN
    words = np.frombuffer(content, np.uint64, whole // 8).reshape(-1, _ALIGN // 8)
    sums = np.add.reduce(words, axis=1)
    return hashlib.sha256(sums.tobytes() + bytes(content[whole:])).hexdigest()


def _up(value: int) -> int:
    return -(-value // _ALIGN) * _ALIGN
