"""`saccade compare`: are the answers the same as another engine's?"""

# ruff: noqa: PLC0415 - NumPy and the engines are imported when the command runs, not for --help

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    InputOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
    parse_shapes,
)
from saccade.cli._print import say_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx

    from saccade.testing.compare import Comparison

__all__ = ["compare"]

AgainstOption = Annotated[
    str, typer.Option(metavar="onnxruntime|reference", help="Whose answers are right.")
]
LayersOption = Annotated[
    bool,
    typer.Option("--layers", help="Compare every value of the file (which keeps layers unfused)."),
]


def compare(
    model: ModelArgument,
    *,
    against: AgainstOption,
    layers: LayersOption = False,
    input_: InputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
) -> None:
    """Compare MODEL's outputs with another engine's; exit status 1 when they differ too much."""
    shapes = parse_shapes(shape)
    path = existing_model(model)
    from saccade.cli._feeds import make_feeds
    from saccade.cli._model import compile_model
    from saccade.cli._progress import working
    from saccade.cli._reference import EXPECTATIONS, every_value
    from saccade.cli._shapes import declared_as, redeclared, sizes_in
    from saccade.cli._signature import is_half, read_inputs
    from saccade.errors import OptionError
    from saccade.testing.compare import (
        BF16_TOLERANCE,
        FP16_TOLERANCE,
        FP32_TOLERANCE,
        compare_outputs,
    )

    if against not in EXPECTATIONS:
        raise OptionError(f"--against {against!r} is not one of {', '.join(EXPECTATIONS)}")
    # TF32 has as many bits of mantissa as float16.
    coarse = {"fp16": FP16_TOLERANCE, "tf32": FP16_TOLERANCE, "bf16": BF16_TOLERANCE}
    tolerance = coarse.get(precision, FP16_TOLERANCE if is_half(path) else FP32_TOLERANCE)
    axes = declared_as(read_inputs(path), [shapes])
    source: Path | onnx.ModelProto = path if axes is None else redeclared(path, axes)
    source = every_value(source) if layers else source
    compiled = compile_model(
        source if layers else path,
        shapes=axes,
        device=device,
        precision=precision,
        threads=threads,
        allow_reference=allow_reference or None,
    )
    feeds = make_feeds(compiled.inputs, input_, *sizes_in([shapes]))
    with working(f"running {against}"):
        expected = EXPECTATIONS[against](source, feeds, allow_reference)
    results = compare_outputs(compiled.run(feeds), expected)
    say_all(_table(results, tolerance))
    if not all(result.within(tolerance) for result in results):
        raise typer.Exit(1)


def _table(results: Sequence[Comparison], tolerance: float) -> Iterator[str]:
    width = max(len(result.name) for result in results)
    yield f"{'output':<{width}}  relative L2  outer ring"
    for result in results:
        ring = "-" if result.ring_l2 is None else f"{result.ring_l2:.2e}"
        verdict = "ok" if result.within(tolerance) else result.problem or f"above {tolerance:.0e}"
        yield f"{result.name:<{width}}  {result.relative_l2:>11.2e}  {ring:>10}  {verdict}"
