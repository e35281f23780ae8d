"""The options that several commands share, spelled once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from saccade.errors import ModelError, OptionError
from saccade.options import MOST_THREADS

__all__ = [
    "AllowOption",
    "DeviceOption",
    "ImportOption",
    "InputOption",
    "JsonOption",
    "ModelArgument",
    "PrecisionOption",
    "ProgramShapesOption",
    "RepeatOption",
    "ShapeOption",
    "ThreadsOption",
    "existing_model",
    "existing_onnx",
    "input_paths",
]

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file, or one that `build` wrote.")
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="The shape of an input, whatever the file declares; names and ? leave an axis free. "
        "NAME:1x3x224x224 and NAME[1,3,224,224] as well; several are separated by commas.",
    ),
]
ProgramShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="Shapes of a program's inputs, several separated by commas; one option a program.",
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]FILE",
        help="An input: .npy, .npz or an image (else random).",
    ),
]
_DEVICES, _PRECISIONS = "cpu|cuda|reference", "fp32|bf16|fp16|tf32"
DeviceOption = Annotated[
    str,
    typer.Option(
        metavar=_DEVICES, help="Where to run.", autocompletion=lambda: _DEVICES.split("|")
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        metavar=_PRECISIONS,
        help="Arithmetic; CPUs have the first two.",
        autocompletion=lambda: _PRECISIONS.split("|"),
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_THREADS, metavar="N", help="Threads; default: all allowed."),
]
AllowOption = Annotated[
    bool,
    typer.Option(
        "--allow-reference",
        help="Run what has no kernel and no reference here through ONNX's own; slow.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE|-", help="Write the figures as JSON; -: print them, and no more."
    ),
]
RepeatOption = Annotated[int, typer.Option(min=1, metavar="N", help="Runs per step.")]
ImportOption = Annotated[
    Path | None,
    typer.Option(
        "--import-algorithms", metavar="FILE", help="Take tuned choices from this file alone."
    ),
]


def existing_model(path: Path) -> Path:
    """`path`, when there is a file.

    Raises:
        ModelError: There is none.
    """
    if path.is_dir():
        raise ModelError(f"{path}: this is a folder, not a model")
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    return path


def existing_onnx(path: Path) -> Path:
    """`path`, when it is a file and no bundle.

    Raises:
        ModelError: There is no such file.
        OptionError: It is a bundle.
    """
    from saccade.bundlefile import is_bundle  # noqa: PLC0415 - `saccade --help` does without

    if is_bundle(existing_model(path)):
        raise OptionError(f"{path} is a bundle: this takes the ONNX file that it was built from")
    return path


def input_paths(texts: Sequence[str] | None) -> list[Path]:
    """What `--input` may read; an equals sign can be part of a file's name."""
    named = (text.partition("=")[2] for text in texts or ())
    return [Path(text) for text in (*(texts or ()), *named) if text]
