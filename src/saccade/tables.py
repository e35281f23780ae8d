"""Tables for people that fit the terminal: what has no room goes to a line below its row.

Names that are too long lose their beginning, as those of nodes are often paths whose ends tell
more. Details (a kernel and its config, for one) are broken into lines, never cut.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from saccade.errors import printable

__all__ = ["Column", "columns", "fitted", "paragraph"]

_LEAST = 40
_ROOM = 24
"""Characters that names should have, before columns move below them."""
_INDENT, _GAP = "    ", "  "
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: Its head.
        left: Whether its cells begin alike, as texts do; numbers end alike.
        spare: Whether it may move below the row.
    """

    name: str
    left: bool = False
    spare: bool = False


def columns() -> int:
    """Characters of a line: `COLUMNS`, or what the terminal has; 80 where there is none."""
    return max(_LEAST, shutil.get_terminal_size().columns)


def fitted(
    head: Sequence[Column],
    rows: Iterable[Sequence[str]],
    details: Iterable[str] = (),
    *,
    named: str,
    width: int | None = None,
) -> list[str]:
    """The lines of a table.

    Args:
        head: The columns.
        rows: A cell for each of them; what does not print is escaped.
        details: Of each row, what stands behind it, or below it where there is no room.
        named: The column whose cells may lose their beginnings.
        width: Characters of a line; `columns()` if None.
    """
    width = width or columns()
    cells = [tuple(map(printable, row)) for row in rows]
    told = [printable(one, _LONGEST) for one in details] or [""] * len(cells)
    widths = _widths(head, cells)
    whole = sum(widths) + len(_GAP) * len(widths)
    if whole + max(map(len, told), default=0) <= width:
        lines = [_line(head, row, widths, one) for row, one in zip(cells, told, strict=True)]
        return [_line(head, [column.name for column in head], widths), *lines]
    kept = _kept(head, widths, named, width)
    place = [head[i].name for i in kept].index(named)
    head_kept = [head[i] for i in kept]
    widths = [widths[i] for i in kept]
    widths[place] = min(widths[place], _room(widths, place, width))
    lines = [_line(head_kept, [column.name for column in head_kept], widths)]
    for row, one in zip(cells, told, strict=True):
        short = [row[i] for i in kept]
        short[place] = _cut(short[place], widths[place])
        moved = [
            f"{column.name} {row[i]}" for i, column in enumerate(head) if i not in kept and row[i]
        ]
        lines.append(_line(head_kept, short, widths))
        lines += _below("; ".join([*filter(None, [one]), *moved]), width)
    return lines


def paragraph(line: str, width: int | None = None, indent: str = "  ") -> list[str]:
    """A line of words in as many as it takes; those behind the first are indented.

    A longer word than a line, a path for one, stays whole.
    """
    width = width or columns()
    if len(line) <= width:
        return [line]
    # Of a line that is indented itself the spaces stay.
    own = line[: len(line) - len(line.lstrip())]
    wrapped = textwrap.wrap(
        line.strip(), width, initial_indent=own, subsequent_indent=own + indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return wrapped or [line]


def _widths(head: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max([len(one.name), *(len(row[i]) for row in rows)]) for i, one in enumerate(head)]


def _kept(head: Sequence[Column], widths: Sequence[int], named: str, width: int) -> list[int]:
    """The columns that there is room for beside names; those that may move go from the last on."""
    kept = list(range(len(head)))
    place = [one.name for one in head].index(named)
    for i in reversed([i for i in kept if head[i].spare]):
        here = [widths[j] for j in kept]
        if _room(here, kept.index(place), width) >= min(_ROOM, widths[place]):
            break
        kept.remove(i)
    return kept


def _room(widths: Sequence[int], place: int, width: int) -> int:
    """Characters that a column may have beside the others."""
    rest = sum(widths) - widths[place] + len(_GAP) * (len(widths) - 1)
    return max(8, width - rest)


def _line(head: Sequence[Column], row: Sequence[str], widths: Sequence[int], last: str = "") -> str:
    cells = (
        cell.ljust(width) if column.left else cell.rjust(width)
        for column, cell, width in zip(head, row, widths, strict=True)
    )
    return _GAP.join([*cells, last]).rstrip()


def _below(text: str, width: int) -> list[str]:
    if not text:
        return []
    return textwrap.wrap(
        text, width, initial_indent=_INDENT, subsequent_indent=_INDENT + _GAP,
        break_on_hyphens=False,
    )  # fmt: skip


def _cut(text: str, room: int) -> str:
    """A name without its beginning; the word before it, the operator's name, stays."""
    if len(text) <= room:
        return text
    word, space, name = text.rpartition(" ")
    if not space or len(word) + 6 > room:
        word, name = "", text
    left = room - len(word) - len(space if word else "") - 1
    return f"{word}{' ' if word else ''}…{name[-left:]}"
