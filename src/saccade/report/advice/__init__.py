"""What could be better: rules that look at a report, and say what is lost, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from saccade.errors import printable
from saccade.report.advice import arithmetic, choices, movement, sizes, team
from saccade.report.advice.found import Found, median_micros
from saccade.report.types import Advice, Report

__all__ = ["LINTS", "Lint", "advice_of", "in_page"]

Look: TypeAlias = Callable[[Report], Found | None]

_WORTH = 0.005
"""Share of a run that advice saves at least: less is within the noise of measuring it."""


class Lint(NamedTuple):
    """A rule.

    Attributes:
        name: Of the rule.
        look: Finds what it is about; None where all is well.
    """

    name: str
    look: Look


LINTS: tuple[Lint, ...] = (
    Lint("another-kernel", choices.another_kernel),
    Lint("host-step", choices.host_steps),
    Lint("exact-arithmetic", choices.exact_arithmetic),
    Lint("layout-copy", movement.layout_copies),
    Lint("data-movement", movement.moves),
    Lint("lone-elementwise", movement.lone_elementwise),
    Lint("type-conversion", movement.type_conversions),
    Lint("float32-products", arithmetic.float32_products),
    Lint("double-precision", arithmetic.double_precision),
    Lint("ragged-channels", arithmetic.ragged_channels),
    Lint("idle-cores", team.idle_cores),
    Lint("wide-team", team.wide_team),
    Lint("few-pieces", team.few_pieces),
    Lint("noisy-runs", team.noisy_runs),
    Lint("small-steps", sizes.small_steps),
    Lint("weights-bound", sizes.weights_bound),
    Lint("out-of-cache", sizes.out_of_cache),
)


def in_page(report: Report, page: str) -> Report:
    """A report in a file of this name, with which its advice compares what it proposes."""
    named = replace(report, about=replace(report.about, page=printable(page)))
    return replace(named, advice=advice_of(named))


def advice_of(report: Report) -> tuple[Advice, ...]:
    """Everything that the rules find worth saying, the largest gain first."""
    whole = median_micros(report)
    found = [
        Advice(
            lint.name, one.title, one.hazard, one.micros / 1e3, one.micros / whole, one.remedy,
            one.steps,
        )
        for lint, one in ((lint, lint.look(report)) for lint in LINTS)
        if one is not None and one.micros >= _WORTH * whole > 0
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda advice: -advice.gain))
