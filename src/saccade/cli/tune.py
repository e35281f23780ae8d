"""`saccade tune`: measure other variants to run a model, and keep those that are faster."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    InputOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    parse_shapes,
)
from saccade.cli._print import say_all
from saccade.errors import OptionError

if TYPE_CHECKING:
    from saccade.tuning import Change, Outcome

__all__ = ["tune"]

_MOST_FAILURES = 5

SecondsOption = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="S", help="How long it may take; default: until it is done."),
]
ExportOption = Annotated[
    Path | None,
    typer.Option("--export-algorithms", metavar="FILE", help="Write the choices as JSON."),
]


def tune(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    seconds: SecondsOption = None,
    allow_reference: AllowOption = False,
    export_algorithms: ExportOption = None,
    import_algorithms: ImportOption = None,
) -> None:
    """Measure other variants of MODEL's steps, and keep those that are faster.

    On a CPU they are measured inside the running program, on a GPU in CUDA graphs of their own.
    What was measured is kept: a run that was cut off, or had no time left, goes on where it was.
    Imported choices are tried first.
    """
    shapes = parse_shapes(shape)
    path = existing_model(model)
    # Now, not after the whole search.
    if export_algorithms is not None and not export_algorithms.parent.is_dir():
        raise OptionError(f"--export-algorithms {export_algorithms}: there is no such folder")
    from saccade.cli._model import compile_for
    from saccade.cli._progress import measuring
    from saccade.files import write_text

    compiled, feeds = compile_for(
        path,
        input_,
        shapes,
        algorithms=import_algorithms,
        device=device,
        precision=precision,
        threads=threads,
        allow_reference=allow_reference or None,
    )
    with measuring(f"tuning {path.name}") as report:
        outcome = compiled.tune(*feeds.values(), seconds=seconds, report=report)
    say_all(_summary(outcome))
    if export_algorithms is not None:
        write_text(export_algorithms, compiled.algorithms.to_json())


def _summary(outcome: Outcome) -> Iterator[str]:
    for change in outcome.changes:
        yield _line(change)
    yield (
        f"{len(outcome.calls)} different steps, {outcome.measured} variants measured, "
        f"{outcome.remembered} known from before"
    )
    if outcome.skipped:
        yield f"no time was left for {outcome.skipped}; tune again to go on"
    yield from outcome.failures[:_MOST_FAILURES]
    if len(outcome.failures) > _MOST_FAILURES:
        yield f"and {len(outcome.failures) - _MOST_FAILURES} more could not be run"
    whole = outcome.whole
    if whole is None:
        yield "the default choices stay: no step is faster with another variant"
    elif not whole.faster:
        yield (
            f"the default choices stay: {whole.after / 1000:.3f} ms is not beyond the noise of "
            f"{whole.before / 1000:.3f} ms"
        )
    else:
        yield (
            f"{whole.before / 1000:.3f} ms before, {whole.after / 1000:.3f} ms after: "
            f"{100 * whole.gain:.1f}% less"
        )


def _line(change: Change) -> str:
    kernel = change.after if change.after == change.before else f"{change.before} → {change.after}"
    more = f" and {len(change.steps) - 1} like it" if len(change.steps) > 1 else ""
    saved = f"{change.verdict.before:.1f} → {change.verdict.after:.1f} µs"
    return f"{change.steps[0]}{more}: {saved} ({100 * change.verdict.gain:.1f}% less), {kernel}"
