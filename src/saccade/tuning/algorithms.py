"""Chosen algorithms of one model, as a file that people can read.

The same format is kept by `tune`, written by `--export-algorithms` and read by
`--import-algorithms`:

    {"version": 1, "device": "cpu", "machine": {"cpu": ..., "system": ...},
     "entries": [{"step": "conv1", "call": "Conv2d(...): ...", "kernel": "conv2d.winograd",
                  "variant": "0f3c...", "rank": 3, "micros": 81.2, "before": 97.0,
                  "config": [{...}]}]}

A choice is for one call (operator, storage, target, threads) and one variant, named by
`variant`; `step`, `micros` and `config` are for people, `rank` says where to look first. Files that
name no device are from when there was but one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256

from saccade.errors import OptionError

__all__ = ["Algorithms", "TunedCall"]

_VERSION = 1  # of the format; no other is read
_UNNAMED = "cpu"  # device of files that name none
_TEXT = ("step", "call", "kernel", "variant")
_TIMES = ("micros", "before")
_LONGEST = 1e12  # microseconds, more than ten days: no time of a call


@dataclass(frozen=True, slots=True)
class TunedCall:
    """The variant for one call.

    Attributes:
        step: The (first) step that makes the call.
        call: See `call_key`.
        kernel: Name of the kernel.
        variant: See `variant_id`.
        rank: Place among the kernel's variants when it was measured.
        micros: Measured, of one step.
        before: The same of the untuned choice, in turns with it.
        config: What the code of each phase depends on.
    """

    step: str
    call: str
    kernel: str
    variant: str
    rank: int
    micros: float
    before: float
    config: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class Algorithms:
    """Choices, and what they were measured on.

    Attributes:
        device: As in `Options.device`.
        machine: See `Backend.identity`.
        entries: The choices.
    """

    device: str
    machine: Mapping[str, str]
    entries: tuple[TunedCall, ...]

    def replaced(self, calls: Iterable[str], others: Algorithms) -> Algorithms:
        """With the entries of `others` in place of all entries for these calls."""
        gone = set(calls)
        # What was measured elsewhere does not mix with what was measured here.
        alike = (self.device, self.machine) == (others.device, others.machine)
        staying = (entry for entry in self.entries if alike and entry.call not in gone)
        return replace(others, entries=(*staying, *others.entries))

    @property
    def digest(self) -> str:
        """Distinguishes its contents from any others."""
        return sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """One line an entry."""
        lines = ",\n".join(f"  {json.dumps(asdict(entry))}" for entry in self.entries)
        device, machine = json.dumps(self.device), json.dumps(dict(self.machine))
        body = f"[\n{lines}\n ]" if self.entries else "[]"
        measured_on = f'"device": {device}, "machine": {machine}'
        return f'{{"version": {_VERSION}, {measured_on},\n "entries": {body}}}\n'

    @classmethod
    def parse(cls, text: str, name: str) -> Algorithms:
        """Read a file back.

        Args:
            text: Its contents.
            name: What errors call it.

        Raises:
            OptionError: If this is no such file.
        """
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"{name} is not a file of algorithms: {error}") from None
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            raise OptionError(f"{name} is not a file of algorithms of version {_VERSION}")
        device, machine = record.get("device", _UNNAMED), record.get("machine")
        if not isinstance(device, str):
            raise OptionError(f"{name} does not say which device it is for")
        if not isinstance(machine, dict) or not all(isinstance(v, str) for v in machine.values()):
            raise OptionError(f"{name} does not say which machine it is for")
        return cls(device, machine, _entries(record.get("entries"), name))


def _entries(records: object, name: str) -> tuple[TunedCall, ...]:
    if not isinstance(records, list):
        raise OptionError(f"{name} has no list of entries")
    return tuple(_entry(one, f"{name}, entry {i}") for i, one in enumerate(records))


def _entry(record: object, name: str) -> TunedCall:
    known = {f.name for f in fields(TunedCall)}
    if not isinstance(record, dict) or set(record) != known:
        raise OptionError(f"{name} must have exactly {', '.join(sorted(known))}")
    for field in _TEXT:
        if not isinstance(record[field], str):
            raise OptionError(f"{name}: {field} is not a text")
    for field in _TIMES:
        value = record[field]
        # True is an integer to Python, and its JSON has NaN, which fails the comparison.
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < _LONGEST:
            raise OptionError(f"{name}: {field} is not a time in microseconds")
    if type(record["rank"]) is not int or record["rank"] < 0:
        raise OptionError(f"{name}: rank is not a place in a list")
    config = record["config"]
    if not isinstance(config, list) or not all(isinstance(c, dict) for c in config):
        raise OptionError(f"{name}: config is not a list of configs")
    return TunedCall(**{**record, "config": tuple(config)})
