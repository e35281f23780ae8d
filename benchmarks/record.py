"""The records that every table is made from: what was measured, on what, how, how far it spread.

`load` refuses a file that does not match the schema exactly, so that a table cannot be made from
half a measurement.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.cli._rounds import quantile

__all__ = [
    "SUITES",
    "Figure",
    "Record",
    "RecordError",
    "ResultFile",
    "by_key",
    "load",
    "load_all",
    "merge",
    "save",
]

SCHEMA = 1
SUITES = ("latency", "detectors", "startup", "threads", "concurrency", "memory", "sizes", "cuda")
UNITS = ("ms", "s", "1/s", "MiB", "relative L2")


class RecordError(ValueError):
    """A record breaks the schema."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One engine's figure in one record.

    Attributes:
        engine, version: Who.
        unit: One of `UNITS`.
        median, p90, min, q1, q3: Over all runs.
        runs: How many.
        rounds: Median of each round; engines took turns, so equal positions compare.
    """

    engine: str
    version: str
    unit: str
    median: float
    p90: float
    min: float
    q1: float
    q3: float
    runs: int
    rounds: tuple[float, ...]

    @staticmethod
    def of(engine: str, version: str, unit: str, rounds: Sequence[Sequence[float]]) -> Figure:
        """From the values of every run, by round."""
        values = sorted(value for one in rounds for value in one)
        return Figure(
            engine=engine,
            version=version,
            unit=unit,
            median=statistics.median(values),
            p90=quantile(values, 0.9),
            min=values[0],
            q1=quantile(values, 0.25),
            q3=quantile(values, 0.75),
            runs=len(values),
            rounds=tuple(statistics.median(one) for one in rounds),
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One measure of one case, by all engines in the same rounds.

    Attributes:
        suite: One of `SUITES`.
        measure: What of it, such as `cold` or `callers=8`.
        case: A name from `CASES`.
        shape: Of the input.
        threads: Width of the engines' pools.
        precision: Arithmetic of all engines.
        commit: What was measured; with a `+` when the tree had changes.
        taken: UTC date and time.
        load: One-minute load average before the measurement.
        figures: By engine, ours first.
        work: Flops and bytes of one run, arena bytes; empty when Saccade was not measured.
    """

    suite: str
    measure: str
    case: str
    shape: tuple[int, ...]
    threads: int
    precision: str
    commit: str
    taken: str
    load: float
    figures: tuple[Figure, ...]
    work: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What a later record replaces."""
        return (self.case, self.measure)

    def figure(self, engine: str) -> Figure | None:
        """The figure of one engine, if it took part."""
        return next((figure for figure in self.figures if figure.engine == engine), None)


@dataclass(frozen=True, slots=True)
class ResultFile:
    """All records of a suite on one machine; `peaks` as `peaks.measure` returns them, of a CPU."""

    schema: int
    suite: str
    machine: dict[str, Any]
    peaks: dict[str, float]
    records: tuple[Record, ...]


_MEMORY = 0.01
"""Share by which the memory of one machine may differ from start to start."""


def _same_machine(one: dict[str, Any], other: dict[str, Any]) -> bool:
    (a, first), (b, second) = (
        (machine.get("memory_bytes", 0), {k: v for k, v in machine.items() if k != "memory_bytes"})
        for machine in (one, other)
    )
    return first == second and abs(a - b) <= _MEMORY * max(a, b)


def merge(old: ResultFile | None, new: ResultFile) -> ResultFile:
    """The new records, and those of the old that they do not replace.

    Raises:
        RecordError: The two come from different machines, whose figures share no table.
    """
    if old is None:
        return new
    if not _same_machine(old.machine, new.machine) or old.suite != new.suite:
        raise RecordError(f"the {old.suite} records are another machine's: remove them first")
    records = {record.key: record for record in (*old.records, *new.records)}
    return dataclasses.replace(new, records=tuple(records.values()))


def save(path: Path, results: ResultFile) -> None:
    """Write, after the same checks that reading makes."""
    text = json.dumps(dataclasses.asdict(results), indent=1)
    _parse(json.loads(text))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def load(path: Path) -> ResultFile:
    """Read and check a file of records.

    Raises:
        RecordError: It breaks the schema; the message says where.
    """
    try:
        return _parse(json.loads(path.read_text()))
    except (RecordError, json.JSONDecodeError) as error:
        raise RecordError(f"{path}: {error}") from None


def load_all(folder: Path, suite: str) -> list[ResultFile]:
    """What was measured of a suite on each machine: in the folder and in those in it, by machine.

    Raises:
        RecordError: A file breaks the schema, or two are of one machine.
    """
    name = f"{suite}.json"
    paths = [path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.exists()]
    found = [(_order(results.machine), path, results) for path in paths for results in [load(path)]]
    for at, (machine, path, _) in enumerate(found):
        for other, earlier, _ in found[:at]:
            if machine == other:
                raise RecordError(f"{path} and {earlier} are records of one machine")
    return [results for _, _, results in sorted(found, key=lambda one: one[:2])]


def _order(machine: Mapping[str, Any]) -> str:
    return json.dumps([machine.get("cpu"), machine.get("family"), machine.get("model"), machine])


def _parse(data: object) -> ResultFile:
    results: ResultFile = _build(ResultFile, data, "file")
    if results.schema != SCHEMA:
        raise RecordError(f"schema {results.schema}, expected {SCHEMA}")
    if results.suite not in SUITES:
        raise RecordError(f"unknown suite {results.suite!r}")
    keys = [record.key for record in results.records]
    if len(set(keys)) != len(keys):
        raise RecordError("a case and measure is there twice")
    for record in results.records:
        _check(record, results.suite)
    return results


def _check(record: Record, suite: str) -> None:
    where = f"{record.case}, {record.measure}"
    if record.suite != suite:
        raise RecordError(f"{where}: suite {record.suite!r} in a file of {suite!r}")
    if not record.figures:
        raise RecordError(f"{where}: no figures")
    if len({figure.engine for figure in record.figures}) != len(record.figures):
        raise RecordError(f"{where}: an engine is there twice")
    for figure in record.figures:
        ordered = [figure.min, figure.q1, figure.median, figure.q3]
        values = [*ordered, figure.p90, *figure.rounds]
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise RecordError(f"{where}: {figure.engine} has a figure that is no positive number")
        if ordered != sorted(ordered) or figure.p90 < figure.median:
            raise RecordError(f"{where}: {figure.engine}'s quantiles are out of order")
        if figure.unit not in UNITS or figure.runs < 1 or not figure.rounds:
            raise RecordError(f"{where}: {figure.engine} has no unit, no runs or no rounds")


def _build(kind: Any, data: object, where: str) -> Any:  # noqa: ANN401 - any annotation
    """A value of a type annotation out of JSON, or an error that says where it does not fit."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(data, dict) or set(data) != set(hints):
            found = sorted(data) if isinstance(data, dict) else data
            raise RecordError(f"{where}: expected {sorted(hints)}, found {found}")
        assert isinstance(kind, type)
        fields = {n: _build(hint, data[n], f"{where}.{n}") for n, hint in hints.items()}
        return kind(**fields)
    if origin is tuple and isinstance(data, list):
        return tuple(_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is dict and isinstance(data, dict):
        return {key: _build(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if kind is Any:
        return data
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if origin is None and type(data) is kind:
        return data
    raise RecordError(f"{where}: {data!r} is no {getattr(kind, '__name__', kind)}")


def by_key(results: ResultFile) -> Mapping[tuple[str, str], Record]:
    """Records by case and measure."""
    return {record.key: record for record in results.records}
