"""What the user sees on stderr while something takes over a second; silent without a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from saccade.cli._print import is_quiet
from saccade.errors import printable

if TYPE_CHECKING:
    from saccade.tuning import Progress

__all__ = ["counting", "measuring", "working"]


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show `text` while the block runs; the block may call what it is given with a new text."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console  # noqa: PLC0415 - 50 ms, and a pipe needs none of it
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(Text(printable(text))) as status:
        yield lambda line: status.update(Text(printable(line)))


@contextmanager
def measuring(title: str) -> Iterator[Callable[[Progress], None]]:
    """Show a bar and the time left while the block runs and tells how far it is."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console  # noqa: PLC0415 - 50 ms, and a pipe needs none of it
    from rich.progress import BarColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[left]}  {task.description}", markup=False),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=1.0, title=printable(title), left="")

        def report(progress: Progress) -> None:
            whole = progress.elapsed + progress.remaining
            minutes, seconds = divmod(round(progress.remaining), 60)
            bars.update(
                task,
                completed=progress.elapsed / whole if whole > 0 else 0.0,
                description=printable(progress.text),
                left=f"{minutes}:{seconds:02} left",
            )

        yield report


@contextmanager
def counting(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Show a bar while the block runs and tells how many things are done, and which comes next.

    Args:
        title: What is done.
        total: How many things there are; None if nobody knows.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _done, _text: None
        return
    from rich.console import Console  # noqa: PLC0415 - 50 ms, and a pipe needs none of it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=total, title=printable(title))

        def report(done: int, text: str) -> None:
            bars.update(task, completed=done, description=printable(text))

        yield report
