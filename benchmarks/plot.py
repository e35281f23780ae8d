"""Bars of ratios as an SVG file, without a library: a panel for each machine, a line at 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Panel", "render"]

WIDTH, COLUMNS = 880, 2
ROW, BAR, HEAD, FOOT = 20, 13, 46, 10
CHARACTER, VALUES = 7, 40  # widths: of what stands left of the bars at most, and right of them
GAP = 24
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.peers, .one { fill: #59636e }
.win { fill: #1a7f64 } .loss { fill: #bc4c00 }
line { stroke: #59636e; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .peers, .one { fill: #9198a1 } line { stroke: #9198a1 }
  .win { fill: #3fb98f } .loss { fill: #e0823d }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A row.

    Attributes:
        name: What was measured.
        ratio: How many times as fast as the better peer; below 1 it is a loss.
    """

    name: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Panel:
    """A machine.

    Attributes:
        title: Its name and the precision.
        peers: Beside whom.
        bars: In the order of the records.
    """

    title: str
    peers: str
    bars: tuple[Bar, ...]


def render(panels: Sequence[Panel]) -> str:
    """All panels with one scale, two beside each other."""
    bars = [bar for panel in panels for bar in panel.bars]
    most = math.ceil(2 * max((bar.ratio for bar in bars), default=1.0)) / 2
    names = GAP // 2 + CHARACTER * max((len(bar.name) for bar in bars), default=0)
    lines, top = [], 0
    for at in range(0, len(panels), COLUMNS):
        row = panels[at : at + COLUMNS]
        for column, panel in enumerate(row):
            left = column * (WIDTH + GAP) // COLUMNS
            lines += _panel(panel, left, top, names, most)
        top += HEAD + FOOT + ROW * max(len(panel.bars) for panel in row)
    size = f'width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    title = "<title>Networks: how many times as fast as the better peer</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, title, f"<style>{STYLE}</style>", *lines, "</svg>", ""])


def _panel(panel: Panel, left: int, top: int, names: int, most: float) -> Iterator[str]:
    width = (WIDTH - GAP * (COLUMNS - 1)) // COLUMNS
    start, scale = left + names, (width - names - VALUES) / most
    yield _text(left, top + 15, panel.title, "title")
    yield _text(left, top + 32, f"times as fast as {panel.peers}", "peers")
    bottom = top + HEAD + ROW * len(panel.bars)
    for row, bar in enumerate(panel.bars):
        y = top + HEAD + ROW * row
        kind = "win" if bar.ratio >= 1 else "loss"
        box = f'x="{start}" y="{y}" width="{scale * bar.ratio:.1f}" height="{BAR}"'
        yield _text(start - 6, y + 11, bar.name, "name", end=True)
        yield f'<rect class="{kind}" {box} rx="2"/>'
        yield _text(round(start + scale * bar.ratio) + 5, y + 11, f"{bar.ratio:.2f}x", "value")
    one = f"{start + scale:.1f}"
    yield f'<line x1="{one}" x2="{one}" y1="{top + HEAD - 6}" y2="{bottom}"/>'


def _text(x: float, y: float, text: str, kind: str, *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{kind}" x="{x}" y="{y}"{anchor}>{escape(text)}</text>'
