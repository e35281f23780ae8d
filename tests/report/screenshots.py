"""The images of docs/report.md, from a report of one run and one of two:

    .venv/bin/python tests/report/screenshots.py report.html diff.html docs/images

Run on an idle machine: other work shows in the timeline. The first run is one that there is advice
for, such as ResNet-50 with `exact=True`; the second is what came of it, and has the charts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import Browser
from PIL import Image

MOST_BYTES = 300_000
WIDTH = 1280


def taken(browser, target, first, last, height=None):
    """Write what lies from the top of one element to the bottom of another."""
    top, bottom = browser.run(
        f"[document.querySelector('{first}').getBoundingClientRect().top + scrollY,"
        f" document.querySelector('{last}').getBoundingClientRect().bottom + scrollY]"
    )
    top = max(0, top - 16)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.png"
        browser.picture(raw, (0, top, WIDTH, height or bottom - top + 16))
        with Image.open(raw) as image:
            _save(image, target)


def phone(browser, path, target):
    """Write three screens of a phone, side by side."""
    width, height, gap = 390, 844, 20
    whole = Image.new("RGB", (3 * width + 2 * gap, height), "white")
    browser.open(path, width, height)
    memory = "document.getElementById('arena').scrollIntoView()"
    for i, scroll in enumerate(("scrollTo(0, 0)", "openStep(3)", memory)):
        browser.run(scroll)
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder) / "raw.png"
            browser.picture(raw)
            with Image.open(raw) as image:
                whole.paste(image, (i * (width + gap), 0))
    _save(whole, target)


def _save(image, target):
    # Flat colours: a palette takes a quarter of the bytes.
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    assert target.stat().st_size <= MOST_BYTES, target


def main(one, two, folder):
    with Browser() as browser:
        browser.open(Path(one), WIDTH)
        taken(browser, folder / "report-head.png", "header", "#advice", 880)
        phone(browser, Path(one), folder / "report-phone.png")
        browser.open(Path(two), WIDTH)
        taken(browser, folder / "report-charts.png", "#timeline", "#roofline")
        browser.open(Path(two), WIDTH, dark=True)
        taken(browser, folder / "report-diff.png", "#diff", "#diff", 1250)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
