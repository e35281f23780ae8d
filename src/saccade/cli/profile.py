"""`saccade profile`: where the time of a model goes, step by step."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli._options import (
    DeviceOption,
    InputOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    parse_shapes,
)

__all__ = ["profile"]

RepeatOption = Annotated[int, typer.Option(min=1, metavar="N", help="Runs per step.")]
TraceOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a trace for chrome://tracing.")
]


def profile(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    repeat: RepeatOption = 20,
    json: JsonOption = None,
    trace: TraceOption = None,
) -> None:
    """Print the time, rates and share of the roofline of every step of MODEL."""
    shapes = parse_shapes(shape)
    path = existing_model(model)
    from saccade.cli._feeds import make_feeds
    from saccade.cli._model import compile_model, json_text
    from saccade.cli._progress import working

    compiled = compile_model(path, device=device, precision=precision, threads=threads)
    feeds = make_feeds(compiled.inputs, input_, shapes)
    with working(f"profiling {path.name}"):
        result = compiled.profile(*feeds.values(), repeat=repeat)
    print(result)
    if json is not None:
        json.write_text(json_text(result.to_json()))
    if trace is not None:
        trace.write_text(json_text(result.to_chrome_trace()))
