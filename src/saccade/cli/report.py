"""`saccade report`: one page to look at, of one run or of two."""

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
    JsonOption,
    PrecisionOption,
    RepeatOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    input_paths,
)
from saccade.cli._outputs import STANDARD_OUTPUT, check_outputs, give_json, give_text
from saccade.cli._print import say, say_fitted
from saccade.cli._shape_texts import parse_shapes
from saccade.errors import InputError, OptionError

if TYPE_CHECKING:
    from saccade.report import Report

__all__ = ["report"]

_PAGES = (".html", ".htm", ".json")
"""How names of reports end."""
_MOST_BYTES = 64 << 20  # of a file that is read as a report

SubjectArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file, a bundle, or an earlier report.")
]
PageOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="The page to write: .html.")
]
SecondsOption = Annotated[
    float, typer.Option(min=0.0, metavar="S", help="How long whole runs are timed for.")
]
EarlierOption = Annotated[
    Path | None,
    typer.Option(metavar="REPORT", help="Put this earlier report (.html or .json) beside it."),
]


def report(
    model: SubjectArgument,
    *,
    output: PageOption = None,
    against: EarlierOption = None,
    input_: InputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    repeat: RepeatOption = 20,
    seconds: SecondsOption = 2.0,
    json: JsonOption = None,
) -> None:
    """Time MODEL, and write all that explains its times as one page that opens anywhere.

    With --against the page shows two runs and what changed from the earlier one; two reports that
    are there already are compared by giving one of them as MODEL.
    """
    shapes = parse_shapes(shape)
    path = existing_model(model)
    if output is None and json is None:
        raise OptionError("say where the page goes: --output report.html")
    if output == STANDARD_OUTPUT:
        raise OptionError("--output -: a page goes to a file; --json - prints its data")
    is_report = path.suffix.lower() in _PAGES
    reads = [*input_paths(input_), import_algorithms, against, path if is_report else None]
    check_outputs(None if is_report else path, reads, output=output, json=json)
    earlier = None if against is None else _read(against, "--against ")
    if is_report:
        given = {
            "--input": input_, "--shape": shape, "--threads": threads,
            "--allow-reference": allow_reference, "--import-algorithms": import_algorithms,
        }  # fmt: skip
        _check_alone(path, [name for name, value in given.items() if value], earlier)
        made = _read(path)
    else:
        from saccade.cli._model import compile_for
        from saccade.cli._progress import working
        from saccade.report.advice import in_page

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
        with working(f"timing {path.name}"):
            made = compiled.report(*feeds.values(), title=str(path), repeat=repeat, seconds=seconds)
        # What --against reads, which is either file.
        written = json if output is None else output
        if written is not None and written != STANDARD_OUTPUT:
            made = in_page(made, str(written))
    page = "" if output is None else made.to_html(earlier)
    # Before anything is printed: whoever reads that may go away.
    if output is not None:
        give_text(output, page)
    give_json(json, made.to_json(earlier))
    say_fitted(_lines(made, earlier))
    if output is not None:
        say(f"wrote {output}: {len(page.encode()) / 1e3:.0f} kB")


def _check_alone(path: Path, given: list[str], earlier: Report | None) -> None:
    """A report is there: nothing is run, and there must be another one to compare it with."""
    if given:
        raise OptionError(f"{path} is a report, which nothing is run for: {given[0]} is for models")
    if earlier is None:
        raise OptionError(f"{path} is a report: --against says which earlier one to put beside it")


def _read(path: Path, option: str = "") -> Report:
    """The report in a page, or in what `--json` wrote.

    Raises:
        InputError: If there is none, or of another format.
    """
    from saccade.files import open_regular
    from saccade.report import Report
    from saccade.report.page import data_of

    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{option}{path}: {error.strerror or error}") from None
    try:
        if len(content) > _MOST_BYTES:
            raise ValueError("it is far too large")
        text = content.decode()
        # Of a page the data, of anything else whatever it is.
        return Report.from_json(data_of(text) or text)
    except ValueError as error:
        raise InputError(f"{option}{path} is no report that can be read: {error}") from None


def _lines(made: Report, earlier: Report | None) -> Iterator[str]:
    """The most important of it."""
    times, floor = made.percentiles, made.totals.floor / 1e3
    yield (
        f"{made.about.model}: median {times.p50:.3f} ms, p95 {times.p95:.3f}, "
        f"p99 {times.p99:.3f} ({len(made.times)} samples); "
        f"floor {floor:.3f} ms, {100 * floor / times.p50:.0f}% of the median"
    )
    if earlier is not None:
        from saccade.report.diff import diff

        found = diff(earlier, made)
        beyond = "beyond the noise" if found.real else "within the noise"
        yield (
            f"before: median {earlier.percentiles.p50:.3f} ms; change {found.change:+.3f} ms, "
            f"{beyond}" + ("" if found.comparable else "; the two ran on other machines or inputs")
        )
    for one in made.advice:
        yield f"  {one.gain:.3f} ms ({100 * one.share:.0f}%), {one.rule}: {one.title}"
