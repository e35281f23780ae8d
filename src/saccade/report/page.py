"""The page: one HTML file that holds its style, its script and its data, and fetches nothing.

The data is JSON within a script element of another type, in which no `<` stands: nothing that comes
from a model can end it. The page's policy allows one script, by its digest, and no connection.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from typing import TypeAlias

from saccade.report.types import Report, document

__all__ = ["LARGEST", "data_of", "page"]

LARGEST = 2_000_000
"""Bytes of a page."""
_SCRIPTS = (
    "core", "summary", "timeline", "roofline", "steps", "arena", "graph", "latency", "diff", "main",
)  # fmt: skip
"""In order: each uses those before it."""
_DATA = re.compile(r'<script type="application/json" id="saccade-report">(.*?)</script>', re.DOTALL)
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_LONG, _MANY = 200, 500  # steps that keep their details when others lose them; samples
_ESCAPED = {sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What would end the script, or a line within it."""

Thinner: TypeAlias = Callable[[Report], Report]


def page(report: Report, against: Report | None = None) -> str:
    """The page of a report, beside that of an earlier run if one is given.

    Of models so large that it would be over 2 MB, details are left out, the least useful first;
    its remarks say which.
    """
    left_out: list[str] = []
    for name, thinner, other in _thinners():
        text = _assembled(_remarked(report, left_out), against)
        if len(text.encode()) <= LARGEST:
            return text
        if not other:
            report = thinner(report)
        elif against is not None:
            against = thinner(against)
        else:
            continue
        left_out.append(name)
    return _assembled(_remarked(report, left_out), against)


def data_of(text: str) -> str | None:
    """The data within a page; None if it is no page of a report."""
    found = _DATA.search(text)
    return None if found is None else found[1]


def _assembled(report: Report, against: Report | None) -> str:
    script = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "title": html.escape(f"{report.about.model.rpartition('/')[2]}: a report by Saccade"),
        "style": _asset("page.css"),
        "hash": digest,
        "script": script,
        "data": _embedded(document(report, against)),
    }
    # All at once: what is put in is not looked at again.
    return _PLACE.sub(lambda found: parts[found[1]], _asset("page.html"))


def _embedded(data: object) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return text


def _asset(name: str) -> str:
    return files("saccade.report").joinpath("assets", name).read_text(encoding="utf-8").strip()


def _remarked(report: Report, left_out: list[str]) -> Report:
    if not left_out:
        return report
    remark = f"left out, as the page would be over 2 MB: {'; '.join(left_out)}"
    about = replace(report.about, remarks=(*report.about.remarks, remark))
    return replace(report, about=about)


def _thinners() -> Iterator[tuple[str, Thinner, bool]]:
    """What to leave out, in turn, how, and whether of the other run."""
    yield "the other run's graph and refused kernels", _without_reasons, True
    yield "attributes of nodes before fusion", _without_attributes, False
    yield f"refused kernels of all but the {_LONG} longest steps", _long_steps_reasons, False
    yield f"all but {_MANY} samples", _fewer_times, False
    yield "the graph before fusion", lambda report: replace(report, imported=()), False
    yield f"details of all but the {_LONG} longest steps", _long_steps_details, False
    yield "the other run's steps and memory", lambda r: replace(r, steps=(), blocks=()), True


def _without_reasons(report: Report) -> Report:
    steps = tuple(replace(step, refused=(), attributes="", facts=()) for step in report.steps)
    return replace(report, imported=(), steps=steps)


def _without_attributes(report: Report) -> Report:
    return replace(report, imported=tuple(replace(n, attributes="") for n in report.imported))


def _fewer_times(report: Report) -> Report:
    return replace(report, times=report.times[:_MANY])


def _long_steps_reasons(report: Report) -> Report:
    long = _longest(report)
    steps = (s if i in long else replace(s, refused=()) for i, s in enumerate(report.steps))
    return replace(report, steps=tuple(steps))


def _long_steps_details(report: Report) -> Report:
    long = _longest(report)
    steps = (
        s if i in long else replace(s, attributes="", config="", facts=(), spans=(), inputs=())
        for i, s in enumerate(report.steps)
    )
    return replace(report, steps=tuple(steps))


def _longest(report: Report) -> set[int]:
    ranked = sorted(range(len(report.steps)), key=lambda i: -report.steps[i].time)
    return set(ranked[:_LONG])
