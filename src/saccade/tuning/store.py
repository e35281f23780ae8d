"""Measured times on disk: one line of JSON for each, in a file for each machine and code.

A line says how long one way to do a call took inside a running program, and how long the untuned
way took there, in turns with it: only their ratio outlives the day. Lines are appended under a
lock, so that writers can share the file and a run that was cut off keeps what it measured. Lines
that make no sense are passed over. A file that has grown too long forgets its oldest half.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saccade.caches import trusted_folder

__all__ = ["Measured", "Store"]

MOST_BYTES = 8 << 20


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


class Store:
    """What was measured on one machine.

    Args:
        identity: Whatever must be equal for times to be comparable: machine, code, versions.
        use: Whether the disk may be used; times of this process are kept either way.
    """

    def __init__(self, identity: Mapping[str, str], *, use: bool = True) -> None:
        self._header = json.dumps({"machine": dict(identity)}, sort_keys=True)
        digest = hashlib.sha256(self._header.encode()).hexdigest()[:16]
        folder = trusted_folder("timings") if use else None
        self._path = None if folder is None else folder / f"{digest}.jsonl"
        self._known: dict[_Key, Measured] = {}
        if self._path is not None:
            self._known = {_key(m): m for m in _read(self._path)}

    def get(self, call: str, variant: str, against: str) -> Measured | None:
        """What was measured, or None."""
        return self._known.get((call, variant, against))

    def add(self, measured: Iterable[Measured]) -> None:
        """Keep measurements; a full or read-only disk ends the use of the file."""
        fresh = {_key(m): m for m in measured}
        self._known |= fresh
        if self._path is None or not fresh:
            return
        lines = "".join(json.dumps(asdict(m)) + "\n" for m in fresh.values())
        try:
            with _locked(self._path):
                self._append(lines)
        except OSError:
            self._path = None

    def _append(self, lines: str) -> None:
        assert self._path is not None
        size = self._path.stat().st_size if self._path.exists() else 0
        if size + len(lines) > MOST_BYTES:
            kept = list({_key(m): m for m in _read(self._path)}.values())
            lines = "".join(json.dumps(asdict(m)) + "\n" for m in kept[len(kept) // 2 :]) + lines
            _replace(self._path, f"{self._header}\n{lines}")
            return
        # A line that was cut off must not swallow the next one.
        start = f"{self._header}\n" if size == 0 else "\n"
        with self._path.open("a") as file:
            file.write(start + lines)


def _key(measured: Measured) -> _Key:
    return measured.call, measured.variant, measured.against


def _read(path: Path) -> Iterator[Measured]:
    """Every line that is a measurement, oldest first."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            found = _measured(json.loads(line))
        except (ValueError, RecursionError):
            continue
        if found is not None:
            yield found


def _measured(record: Any) -> Measured | None:  # noqa: ANN401 - whatever stands in the file
    kinds = {"micros": float, "before": float, "rounds": int}
    if not isinstance(record, dict) or set(record) != set(Measured.__slots__):
        return None
    if any(type(value) is not kinds.get(name, str) for name, value in record.items()):
        return None
    found = Measured(**record)
    sane = all(math.isfinite(t) and t > 0 for t in (found.micros, found.before))
    return found if sane else None


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process writes at a time; the lock is a file of its own, which is never replaced."""
    with path.with_suffix(".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
