"""`saccade tune`: measure other variants to run a model, and keep those that are faster."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    InputOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    input_paths,
)
from saccade.cli._outputs import check_outputs, give_json, give_text
from saccade.cli._print import say, say_fitted
from saccade.cli._shape_texts import parse_shapes

if TYPE_CHECKING:
    from saccade.tuning import Change, Outcome, Progress

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
    json: JsonOption = None,
) -> None:
    """Measure other variants of MODEL's steps, and keep those that are faster.

    On a CPU they are measured inside the running program, on a GPU in CUDA graphs of their own.
    What was measured is kept: a run that was cut off, or had no time left, goes on where it was.
    Imported choices are tried first.
    """
    shapes = parse_shapes(shape)
    path = existing_model(model)
    check_outputs(path, input_paths(input_), export_algorithms=export_algorithms, json=json)
    # Choices may take the place of those that they improve on, figures not.
    check_outputs(path, [import_algorithms], json=json)
    from saccade.cli._model import compile_for
    from saccade.cli._progress import measuring

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
    last: list[Progress] = []
    with measuring(f"tuning {path.name}") as report:

        def tell(progress: Progress) -> None:
            last[:] = [progress]
            report(progress)

        try:
            outcome = compiled.tune(*feeds.values(), seconds=seconds, report=tell)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_cut_off(last)) from None
    say_fitted(_summary(outcome))
    if export_algorithms is not None:
        give_text(export_algorithms, compiled.algorithms.to_json())
        say(f"wrote {export_algorithms}: the tuned choices of all sizes of this model")
    give_json(json, _document(path, outcome))


def _cut_off(last: Sequence[Progress]) -> str:
    """What to say where a search was ended by Ctrl-C."""
    so_far = "".join(
        f"after {round(one.elapsed)} s, with about {round(one.remaining)} s to go ({one.text}); "
        for one in last
    )
    return f"{so_far}choices are as before, measurements are kept: the same command goes on there"


def _summary(outcome: Outcome) -> Iterator[str]:
    """What was done, what came of it, and what is left."""
    yield (
        f"{len(outcome.calls)} different steps, {outcome.measured} variants measured, "
        f"{outcome.remembered} known from before"
    )
    for change in outcome.changes:
        yield _line(change)
    yield from outcome.failures[:_MOST_FAILURES]
    if len(outcome.failures) > _MOST_FAILURES:
        yield f"and {len(outcome.failures) - _MOST_FAILURES} more could not be run"
    yield _result(outcome)
    if outcome.skipped:
        yield (
            f"left: no time was left for {outcome.skipped} more variants; the same command goes on "
            "where this one stopped"
        )
    else:
        yield "left: nothing, every variant that is worth a measurement has one"


def _result(outcome: Outcome) -> str:
    whole = outcome.whole
    if whole is None:
        if not outcome.measured + outcome.remembered:
            none = "nothing was measured" if outcome.skipped else "no step has another variant"
            return f"result: {none}, the default choices stay"
        so_far = "so far " if outcome.skipped else ""
        return f"result: the default choices stay: {so_far}no step is faster with another variant"
    if not whole.faster:
        return (
            f"result: the default choices stay: {whole.after / 1000:.3f} ms is not beyond the "
            f"noise of {whole.before / 1000:.3f} ms"
        )
    return (
        f"result: {whole.before / 1000:.3f} ms before, {whole.after / 1000:.3f} ms after: "
        f"{100 * whole.gain:.1f}% less; later starts at these sizes take these choices"
    )


def _document(path: Path, outcome: Outcome) -> dict[str, object]:
    """What --json writes; times in microseconds."""
    whole = outcome.whole
    return {
        "model": str(path),
        "steps": len(outcome.calls),
        "measured": outcome.measured,
        "remembered": outcome.remembered,
        "left": outcome.skipped,
        "faster": whole is not None and whole.faster,
        "before_us": None if whole is None else whole.before,
        "after_us": None if whole is None else whole.after,
        "changes": [
            {
                "steps": list(change.steps),
                "before": change.before,
                "after": change.after,
                "before_us": change.verdict.before,
                "after_us": change.verdict.after,
            }
            for change in outcome.changes
        ],
        "failures": list(outcome.failures),
    }


def _line(change: Change) -> str:
    kernel = change.after if change.after == change.before else f"{change.before} → {change.after}"
    more = f" and {len(change.steps) - 1} like it" if len(change.steps) > 1 else ""
    saved = f"{change.verdict.before:.1f} → {change.verdict.after:.1f} µs"
    return f"{change.steps[0]}{more}: {saved} ({100 * change.verdict.gain:.1f}% less), {kernel}"
