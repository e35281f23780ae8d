"""`saccade run`: a model on files."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from saccade.cli._print import say
from saccade.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["run"]

OutputOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="Where outputs go: .npz, .npy, an image, or a folder."),
]


def run(
    model: ModelArgument,
    *,
    input_: InputOption = None,
    output: OutputOption = None,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
) -> None:
    """Run MODEL on files (inputs without one get random data), save or describe its outputs."""
    shapes = parse_shapes(shape)
    path = existing_model(model)
    from saccade.cli._files import write_outputs
    from saccade.cli._model import compile_for
    from saccade.cli._progress import working

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
    with working(f"running {path.name}"):
        outputs = compiled.run(feeds)
    for name, array in outputs.items():
        say(_describe(name, array))
    if output is not None:
        held = [info.name for info in compiled.outputs if not _is_numeric(outputs[info.name])]
        if held:
            raise InputError(f"output {held[0]!r} cannot be written: it is no array of numbers")
        for file in write_outputs(output, outputs):
            say(f"wrote {file}")


def _is_numeric(result: object) -> bool:
    """Not where it is strings, a sequence, or nothing."""
    return getattr(getattr(result, "dtype", None), "kind", "O") in "biufV"


def _describe(name: str, array: NDArray[Any] | object) -> str:
    """One line: name, dtype, shape, and the range of the values; of what is no array its type."""
    import numpy as np

    if not isinstance(array, np.ndarray):
        several = f" of {len(array)}" if isinstance(array, list) else ""
        return f"{name}: {type(array).__name__}{several}"
    shape = "x".join(map(str, array.shape)) or "scalar"
    line = f"{name}: {array.dtype} {shape}"
    if array.size and array.dtype.kind in "fiu":
        mean = float(array.mean(dtype="float64"))
        line += f", min {array.min():.6g}, mean {mean:.6g}, max {array.max():.6g}"
    return line
