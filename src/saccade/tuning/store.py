"""Measured times on disk: one line of JSON for each, in a file for each device, machine and code.

A line says how long one variant for a call took inside a running program, and how long the untuned
variant took there, in turns with it: only their ratio outlives the day. Lines are appended under a
lock, so that writers can share the file and a run that was cut off keeps what it measured. Each
begins with its seal; lines that others wrote, or that make no sense, are passed over. A file that
has grown too long forgets its oldest half.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from saccade.caches import CacheFolder, OpenEntry, Seal, cache_folder, write_all
from saccade.errors import CacheError

__all__ = ["Measured", "TimingStore", "check"]

MOST_BYTES = 8 << 20
"""Of a log of measurements; where it grows larger, the older half is forgotten."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement.

    Attributes:
        call: See `call_key`.
        variant: What was timed, see `variant_id`.
        against: The untuned variant that took turns with it.
        kernel: Of the variant, for people.
        micros: Median microseconds of the variant inside the program.
        before: The same of the untuned variant.
        rounds: How many turns.
    """

    call: str
    variant: str
    against: str
    kernel: str
    micros: float
    before: float
    rounds: int

    @property
    def ratio(self) -> float:
        """Time over that of the untuned variant."""
        return self.micros / self.before


_Key = tuple[str, str, str]


class TimingStore:
    """What was measured on one machine.

    Args:
        device: As in `Options.device`.
        identity: Whatever must be equal for times to be comparable: machine, code, versions.
        use: Whether the disk may be used; times of this process are kept either way.
    """

    def __init__(self, device: str, identity: Mapping[str, str], *, use: bool = True) -> None:
        self._header = json.dumps({"device": device, "machine": dict(identity)}, sort_keys=True)
        digest = hashlib.sha256(self._header.encode()).hexdigest()[:16]
        self._folder = cache_folder("timings") if use else None
        self._name = f"{digest}.jsonl"
        self._known: dict[_Key, Measured] = {}
        if self._folder is not None:
            with self._folder.opened(self._name) as log:
                # Of several measurements the last one counts.
                self._known = {_key(m): m for m in _measurements(log)}

    def get(self, call: str, variant: str, against: str) -> Measured | None:
        """What was measured, or None."""
        return self._known.get((call, variant, against))

    def of(self, call: str) -> tuple[Measured, ...]:
        """Everything that was measured of one call."""
        return tuple(measured for key, measured in self._known.items() if key[0] == call)

    def add(self, measured: Iterable[Measured]) -> None:
        """Keep measurements; a full or read-only disk ends the use of the file."""
        fresh = {_key(m): m for m in measured}
        self._known |= fresh
        if self._folder is None or not fresh:
            return
        try:
            with self._folder.appending(self._name) as log:
                _append(self._folder, self._name, log, self._header, fresh.values())
        except OSError:
            self._folder = None


def _append(
    folder: CacheFolder, name: str, log: OpenEntry, header: str, fresh: Iterable[Measured]
) -> None:
    text = "".join(_sealed_line(m, log.seal) for m in fresh)
    size = os.fstat(log.file).st_size
    if size + len(text) > MOST_BYTES:
        # Without those that were measured once more since.
        newest: dict[object, Measured] = {}
        for measured in _measurements(log):
            newest.pop(_key(measured), None)  # a dict keeps the place of the first
            newest[_key(measured)] = measured
        kept = list(newest.values())
        lines = "".join(_sealed_line(m, log.seal) for m in kept[len(kept) // 2 :]) + text
        # Whoever waits for the lock opens the log afterwards, and so finds the new file.
        folder.add(name, lambda new: write_all(new.file, f"{header}\n{lines}".encode()))
        return
    # A line that was cut off must not swallow the next one.
    start = f"{header}\n" if size == 0 else "\n"
    write_all(log.file, (start + text).encode())


def _sealed_line(measured: Measured, seal: Seal) -> str:
    """The line of a log for a measurement."""
    text = json.dumps(asdict(measured))
    return f"{seal(text.encode()).hex()} {text}\n"


def check(log: OpenEntry) -> None:
    """See whether all of a log was written with the user's key; the header means nothing.

    Raises:
        CacheError: If there is a line that was not.
    """
    lines = [line for line in _lines(log) if line and not line.startswith("{")]
    if any(_text(line, log.seal) is None for line in lines):
        raise CacheError(f"{log.where}: damaged, or sealed with another key")


def _key(measured: Measured) -> _Key:
    return measured.call, measured.variant, measured.against


def _measurements(log: OpenEntry | None) -> Iterator[Measured]:
    """Every line that is a measurement, oldest first."""
    if log is None:
        return
    for line in _lines(log):
        text = _text(line, log.seal)
        try:
            found = None if text is None else _measured(json.loads(text))
        except (ValueError, RecursionError):
            continue
        if found is not None:
            yield found


def _lines(log: OpenEntry) -> list[str]:
    try:
        # A log that others made larger is not read whole.
        content = os.pread(log.file, min(os.fstat(log.file).st_size, 2 * MOST_BYTES), 0)
    except OSError:
        return []
    return content.decode(errors="replace").splitlines()


def _text(line: str, seal: Seal) -> str | None:
    """What a line says, if it is sealed."""
    given, _, text = line.partition(" ")
    sealed = seal(text.encode()).hex()
    # As bytes: texts can be compared in ASCII alone, and a damaged line may be anything.
    return text if hmac.compare_digest(given.encode(), sealed.encode()) else None


def _measured(record: object) -> Measured | None:
    kinds = {"micros": float, "before": float, "rounds": int}
    if not isinstance(record, dict) or set(record) != set(Measured.__slots__):
        return None
    # Exactly: True would pass for an integer.
    if any(type(value) is not kinds.get(name, str) for name, value in record.items()):
        return None
    found = Measured(**record)
    sane = all(math.isfinite(t) and t > 0 for t in (found.micros, found.before))
    return found if sane else None
