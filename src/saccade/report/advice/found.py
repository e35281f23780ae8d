"""What rules give, and what they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from shlex import quote
from typing import NamedTuple

from saccade.report.types import Report, ReportStep

__all__ = ["Found", "command", "command_beside", "found_in", "listed", "median_micros"]

_NAMED = 3  # steps that a text names


class Found(NamedTuple):
    """What a rule found; see `Advice`.

    Attributes:
        title, hazard: What is the matter, and what is lost by it.
        micros: Microseconds of a run that could be saved.
        remedy: What to do.
        steps: Numbers of the steps.
    """

    title: str
    hazard: str
    micros: float
    remedy: str
    steps: tuple[int, ...] = ()


def found_in(
    report: Report, lost: Mapping[int, float], title: str, hazard: str, remedy: str
) -> Found | None:
    """A finding about steps that lose so many microseconds each; None where there are none.

    Args:
        report: Where they are.
        lost: By number of the step.
        title: Text with `{count}` for how many there are, `{names}` for the first of them.
        hazard: The same.
        remedy: The same.
    """
    if not lost:
        return None
    steps = tuple(sorted(lost, key=lambda i: -lost[i]))
    names = listed(report.steps[i] for i in steps)
    count = f"{len(steps)} step" + ("s" if len(steps) > 1 else "")

    def filled(text: str) -> str:
        # Not `format`: names of nodes may hold braces.
        return text.replace("{count}", count).replace("{names}", names)

    micros = _share_of_run(report) * sum(lost.values())
    return Found(filled(title), filled(hazard), micros, filled(remedy), steps)


def _share_of_run(report: Report) -> float:
    """What a microsecond of a step's time is of a run's.

    Steps that are clocked one by one may take longer in all than a run does, a GPU's twice as long.
    """
    clocked = sum(step.time for step in report.steps)
    return min(1.0, median_micros(report) / clocked) if clocked else 1.0


def listed(steps: Iterable[ReportStep]) -> str:
    """The names of the first few steps."""
    names = [step.name for step in steps]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def command(report: Report, name: str, *more: str) -> str:
    """A command line for this model and these inputs.

    Args:
        report: Of the run.
        name: Of the command.
        *more: Further options; one that is there already takes its place.
    """
    given = {option.split()[0] for option in more}
    kept = [one for one in report.about.command if one.split()[0] not in given]
    return " ".join(["saccade", name, quote(report.about.model), *kept, *more])


def command_beside(report: Report, word: str, *more: str) -> str:
    """A command line for another report in a page beside this one's, which it is compared with.

    Args:
        report: Of the run.
        word: What the name of the other page ends with.
        *more: Options that differ.
    """
    page = PurePath(report.about.page)
    other = str(page.with_name(f"{page.stem}-{word}.html"))
    return command(report, "report", *more, f"--against {quote(str(page))}", f"-o {quote(other)}")


def median_micros(report: Report) -> float:
    """Microseconds of a whole run."""
    return 1e3 * report.percentiles.p50
