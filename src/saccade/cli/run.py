"""`saccade run`: a model on files."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    parse_shapes,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say, say_fitted
from saccade.errors import InputError, OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from saccade.cli._types import Arrays

__all__ = ["run"]


class Preprocessing(StrEnum):
    """Names of `saccade.vision.prepare`, which is not imported for --help."""

    NONE = "none"
    IMAGENET = "imagenet"
    LETTERBOX = "letterbox"


PreprocessOption = Annotated[
    Preprocessing,
    typer.Option(
        help="What is done with images: imagenet (resized, the middle cut out, mean and std), "
        "letterbox (whole, on a grey ground), or none but values from 0 to 1."
    ),
]
MeanOption = Annotated[
    str | None, typer.Option(metavar="R,G,B", help="Subtracted from images of 0 to 1.")
]
StdOption = Annotated[str | None, typer.Option(metavar="R,G,B", help="What is divided by then.")]
TopOption = Annotated[
    int | None, typer.Option(min=1, help="Print so many of the most probable classes.")
]
LabelsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Names of the classes, a line each (--top).")
]
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
    preprocess: PreprocessOption = Preprocessing.NONE,
    mean: MeanOption = None,
    std: StdOption = None,
    top: TopOption = None,
    labels: LabelsOption = None,
    json: JsonOption = None,
) -> None:
    """Run MODEL on files (inputs without one get random data), save or describe its outputs."""
    shapes = parse_shapes(shape)
    path = existing_model(model)
    check_outputs(json=json)
    if labels is not None and top is None:
        raise OptionError("--labels names the classes of --top, which is not given")
    from saccade.cli._images import Preparation
    from saccade.vision import read_labels

    numbers = {"mean": _numbers("mean", mean), "std": _numbers("std", std)}
    names = [] if labels is None else read_labels(labels)
    from saccade.cli._files import write_outputs
    from saccade.cli._model import compile_for
    from saccade.cli._progress import working

    compiled, feeds = compile_for(
        path,
        input_,
        shapes,
        algorithms=import_algorithms,
        preparation=Preparation(preprocess.value, **numbers),
        device=device,
        precision=precision,
        threads=threads,
        allow_reference=allow_reference or None,
    )
    with working(f"running {path.name}"):
        outputs = compiled.run(feeds)
    for name, array in outputs.items():
        say(_describe(name, array))
    best = [] if top is None else _best(outputs, top, names)
    document = {name: _figures(array) for name, array in outputs.items()}
    give_json(json, {"outputs": document} | ({"top": best} if top is not None else {}))
    if output is not None:
        held = [info.name for info in compiled.outputs if not _is_numeric(outputs[info.name])]
        if held:
            raise InputError(f"output {held[0]!r} cannot be written: it is no array of numbers")
        for file in write_outputs(output, outputs):
            say(f"wrote {file}")


def _numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """The numbers of an option, one or one for each channel."""
    if text is None:
        return None
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        found = ()
    if not found or not all(map(isfinite, found)):
        raise OptionError(f"--{option} {text!r} is not of the form 0.485,0.456,0.406")
    return found


def _best(outputs: Arrays, count: int, labels: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Print the most probable classes of the first output, for each image; the same as data."""
    from saccade.vision import top

    found = top(next(iter(outputs.values())), count, labels)
    for number, best in enumerate(found):
        if len(found) > 1:
            say(f"image {number}:")
        say_fitted(f"  {one.probability:7.2%}  {one.label}" for one in best)
    return [[one._asdict() for one in best] for best in found]


def _figures(array: NDArray[Any] | object) -> dict[str, Any]:
    """What is said of an output, as data."""
    import numpy as np

    if not isinstance(array, np.ndarray):
        return {"type": type(array).__name__}
    found: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "fiu":
        ends = {"min": array.min(), "mean": array.mean(dtype="float64"), "max": array.max()}
        # JSON has no word for what is not finite.
        found |= {n: float(v) if isfinite(v) else str(v) for n, v in ends.items()}
    return found


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
