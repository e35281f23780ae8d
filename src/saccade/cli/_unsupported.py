"""What a model uses that Saccade cannot run, as a table that fits the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from saccade.errors import Unsupported, UnsupportedModelError, printable
from saccade.tables import Column, fitted

__all__ = ["unsupported_lines"]

_MOST_ROWS = 200  # a file may have one for each of its nodes
_HEAD = (Column("operator", left=True), Column("dtype", left=True), Column("count"))


def unsupported_lines(error: UnsupportedModelError) -> Iterator[str]:
    """The lines: how many nodes, then operators, and below each why, and what could be done."""
    shown = error.rows[:_MOST_ROWS]
    yield f"{sum(row.count for row in error.rows)} node(s) of this model are not supported:"
    cells = [(row.operator, row.dtype, str(row.count)) for row in shown]
    yield from fitted(_HEAD, cells, map(_detail, shown), named="operator")
    if len(error.rows) > len(shown):
        yield f"and {len(error.rows) - len(shown)} more rows"


def _detail(row: Unsupported) -> str:
    parts = [row.reason]
    if row.remedy:
        parts.append(f"what could be done: {row.remedy}")
    if row.nodes:
        parts.append(f"first nodes: {', '.join(map(printable, row.nodes))}")
    return "; ".join(parts)
