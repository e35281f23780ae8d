"""Two runs side by side: what changed as a whole, and step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import sqrt

import numpy as np

from saccade.report.types import About, Report, ReportStep, TensorPlace

__all__ = ["Diff", "StepDiff", "diff"]

_DEVIATION = 1.4826  # standard deviation of a normal distribution over its median deviation
_MEDIAN = 1.2533  # standard error of a median over that of a mean
_SURE = 3.0  # standard errors that a difference of medians is beyond the noise with
_LEAST = 0.01  # share of the median below which a difference is none, however sure


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of either run, or of both.

    Attributes:
        name, op: Of it.
        before, after: Its number in either run; None where it is not there.
        before_us, after_us: Microseconds; 0 where it is not there.
        change: Microseconds that it became longer by.
        what: What else is different: kernel, config, storage, type.
    """

    name: str
    op: str
    before: int | None
    after: int | None
    before_us: float
    after_us: float
    change: float
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """What became of a run.

    Attributes:
        settings: What was asked for differently, or ran elsewhere; empty if nothing.
        comparable: Whether machine, device and shapes are the same, so that times compare.
        change: Milliseconds that the median run became longer by.
        noise: Milliseconds that it may be off by.
        real: Whether the change is beyond the noise.
        steps: Those that changed most first.
    """

    settings: tuple[str, ...]
    comparable: bool
    change: float
    noise: float
    real: bool
    steps: tuple[StepDiff, ...]


def diff(before: Report, after: Report) -> Diff:
    """What changed from one run to another."""
    change = after.percentiles.p50 - before.percentiles.p50
    noise = _SURE * sqrt(_error(before.times) ** 2 + _error(after.times) ** 2)
    least = _LEAST * before.percentiles.p50
    same = ("device", "inputs", "machine")
    return Diff(
        tuple(_settings(before, after)),
        all(getattr(before.about, name) == getattr(after.about, name) for name in same),
        change,
        noise,
        abs(change) > max(noise, least),
        tuple(sorted(_steps(before, after), key=lambda step: -abs(step.change))),
    )


def _error(times: Sequence[float]) -> float:
    """Standard error of a median; medians throughout, as what disturbs a run is far off."""
    middle = float(np.median(times))
    deviation = float(np.median([abs(time - middle) for time in times]))
    return _MEDIAN * _DEVIATION * deviation / sqrt(len(times))


def _settings(before: Report, after: Report) -> Iterator[str]:
    told = {
        "model": "model", "saccade": "Saccade", "commit": "commit", "code": "sources",
        "device": "device", "precision": "precision", "threads": "threads", "exact": "exact",
        "isa": "instruction set", "planned_for": "planned for", "inputs": "inputs",
    }  # fmt: skip
    for name, title in told.items():
        yield from _changed(title, _value(before.about, name), _value(after.about, name))
    for field in ("machine", "versions"):
        yield from _mapping(getattr(before.about, field), getattr(after.about, field))


def _value(about: About, name: str) -> str:
    value = getattr(about, name)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _mapping(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        yield from _changed(name, before.get(name, ""), after.get(name, ""))


def _changed(title: str, before: str, after: str) -> Iterator[str]:
    if before != after:
        yield f"{title}: {before or 'none'} → {after or 'none'}"


def _steps(before: Report, after: Report) -> Iterator[StepDiff]:
    """Steps by name; those that share a name (the parts of a Concat) by their order."""
    old, new = _numbered(before.steps), _numbered(after.steps)
    for key in dict.fromkeys((*new, *old)):
        a, b = old.get(key), new.get(key)
        first = None if a is None else before.steps[a]
        second = None if b is None else after.steps[b]
        either = second or first
        assert either is not None
        old_time, new_time = (0.0 if step is None else step.time for step in (first, second))
        what = tuple(_what(first, second))
        change = new_time - old_time
        yield StepDiff(either.name, either.op, a, b, old_time, new_time, change, what)


def _numbered(steps: Sequence[ReportStep]) -> dict[tuple[str, bool, int], int]:
    """The number of each step by its name, whether it is a copy, and which one of these it is."""
    seen: Counter[tuple[str, bool]] = Counter()
    found = {}
    for i, step in enumerate(steps):
        key = (step.name, step.reorder)
        found[*key, seen[key]] = i
        seen[key] += 1
    return found


def _what(before: ReportStep | None, after: ReportStep | None) -> Iterator[str]:
    if before is None or after is None:
        yield "only before" if after is None else "only after"
        return
    yield from _changed("operator", before.op, after.op)
    yield from _changed("kernel", before.kernel, after.kernel)
    if before.kernel == after.kernel and before.config != after.config:
        yield f"config: {_words(before.config, after.config)}"
    for title, a, b in (
        ("operands", before.inputs, after.inputs),
        ("results", before.outputs, after.outputs),
    ):
        yield from _changed(f"{title} stored as", _layouts(a), _layouts(b))
        yield from _changed(f"types of {title}", _types(a), _types(b))
    if before.tuned != after.tuned:
        yield "chosen by measurement" if after.tuned else "no longer chosen by measurement"


def _layouts(places: Sequence[TensorPlace]) -> str:
    return ", ".join(dict.fromkeys(place.layout for place in places))


def _types(places: Sequence[TensorPlace]) -> str:
    return ", ".join(dict.fromkeys(place.dtype for place in places))


def _words(before: str, after: str) -> str:
    """The words that differ between two configs, each with the one before it; no expressions."""
    old, new = ([word for word in text.split() if "$" not in word] for text in (before, after))
    found = []
    for same, *places in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        a, b, c, d = map(int, places)
        if same != "equal":
            named = " ".join(old[a - 1 : a])
            found.append(
                f"{named} {' '.join(old[a:b]) or '–'} → {' '.join(new[c:d]) or '–'}".strip()
            )
    return "; ".join(found) or "another expression"
