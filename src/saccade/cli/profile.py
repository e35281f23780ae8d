"""`saccade profile`: where the time of a model goes, step by step."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    InputOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    RepeatOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    input_paths,
)
from saccade.cli._outputs import check_outputs, give_json, give_text
from saccade.cli._print import say_fitted
from saccade.cli._shape_texts import parse_shapes

__all__ = ["profile"]

TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write one run as a trace for Perfetto or chrome://tracing."),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(metavar="openvino", help="Put this engine's times by layer beside ours."),
]


def profile(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    repeat: RepeatOption = 20,
    json: JsonOption = None,
    trace: TraceOption = None,
    against: AgainstOption = None,
) -> None:
    """Print the time, rates and share of the roofline of every step of MODEL."""
    shapes = parse_shapes(shape)
    path = existing_model(model)
    check_outputs(path, [*input_paths(input_), import_algorithms], json=json, trace=trace)
    from saccade.cli._model import compile_for
    from saccade.cli._peer_layers import owners, peer_layers
    from saccade.cli._progress import working
    from saccade.options import default_threads

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
    with working(f"profiling {path.name}"):
        peer = None
        if against is not None:
            team = threads or default_threads()
            peer = peer_layers(
                against, path, feeds,
                threads=team, precision=precision, device=device, repeat=repeat,
            )  # fmt: skip
        result = compiled.profile(*feeds.values(), repeat=repeat)
    if peer:
        # Peers fuse otherwise: nodes of the file are what both have in common.
        peer = peer.of_steps(owners(path, {step.name for step in result.steps}))
    say_fitted(result.table(peer).splitlines())
    give_json(json, result.to_json(peer))
    if trace is not None:
        give_text(trace, result.to_chrome_trace())
