"""The page as text: it is whole, holds its data, and nothing of a model can break out of it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import place, report, step, whole

from saccade.report import Report
from saccade.report.page import LARGEST, data_of
from saccade.report.types import ImportedNode, Refused

ASSETS = Path(__file__).parents[2] / "src" / "saccade" / "report" / "assets"
HOSTILE = "</script><script>alert(1)</script><!-- <script> ]]> {{script}} \u2028 &lt; '\""


def script(page):
    """What the browser would run."""
    (found,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return found


def test_the_data_of_a_page_is_its_report():
    made = whole()
    assert Report.from_json(data_of(made.to_html())) == made
    assert Report.from_json(data_of(made.to_html(report(step())))) == made
    assert data_of("<html></html>") is None


def test_the_page_fetches_nothing():
    page = whole().to_html(whole("other"))
    assert not re.findall(r"""\b(?:src|href)\s*=\s*["'](?!#)""", page)
    assert "http://www.w3.org/2000/svg" in page
    outside = re.findall(r"https?://[^\s\"'`]*", page)
    assert set(outside) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon", page)


def test_one_script_is_allowed_by_its_digest():
    page = whole().to_html()
    digest = base64.b64encode(hashlib.sha256(script(page).encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    )


def test_nothing_of_a_model_breaks_out():
    named = replace(whole(HOSTILE), about=replace(whole().about, model=HOSTILE))
    page = named.to_html()
    assert page.count("<script") == 2 == page.count("</script>")
    assert script(page) == script(whole().to_html())
    assert "alert(1)</" not in page
    assert json.loads(data_of(page))["report"]["steps"][0]["name"] == HOSTILE
    assert Report.from_json(data_of(page)) == named


def test_the_script_writes_text_and_no_markup():
    markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function"
    for path in ASSETS.glob("*.js"):
        assert not re.search(markup, path.read_text()), path.name


def test_parts_are_short_enough_to_read():
    assert all(path.read_text().count("\n") <= 400 for path in ASSETS.iterdir())


def large(steps, longest):
    """A report with so many steps, each with long reasons."""
    refused = tuple(Refused(f"conv2d.k{i}", "r" * longest, None, None) for i in range(8))
    made = [step(f"node{i}", 1.0 + i, refused=refused, inputs=(place(),) * 4) for i in range(steps)]
    nodes = [
        ImportedNode(f"node{i}", "Conv2d", "a" * 200, "float32", "1x1", (), i) for i in range(steps)
    ]
    return report(*made, imported=tuple(nodes))


@pytest.mark.parametrize("steps", [600, 1500])
def test_large_models_keep_below_two_megabytes_and_say_what_is_missing(steps):
    made = large(steps, 400)
    assert len(made.to_json()) > LARGEST
    page = made.to_html(made)
    assert len(page.encode()) <= LARGEST
    left = Report.from_json(data_of(page))
    assert len(left.steps) == steps, "every step stays"
    assert "left out, as the page would be over 2 MB" in left.about.remarks[-1]
    # Those that take longest keep their reasons.
    assert left.steps[-1].refused == made.steps[-1].refused


def test_what_fits_is_whole():
    made = large(60, 100)
    assert Report.from_json(data_of(made.to_html())) == made
