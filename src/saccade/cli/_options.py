"""The options that several commands share, spelled once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from saccade.errors import ModelError, OptionError
from saccade.options import MOST_THREADS
from saccade.shapes import Axis

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
    "input_paths",
    "parse_programs",
    "parse_shapes",
]

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="The shape of an input, whatever the file declares; names and ? leave an axis free.",
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
        "--input", metavar="[NAME=]FILE", help="An input: .npy, .npz or an image (else random)."
    ),
]
DeviceOption = Annotated[str, typer.Option(metavar="cpu|cuda|reference", help="Where to run.")]
PrecisionOption = Annotated[
    str, typer.Option(metavar="fp32|bf16|fp16|tf32", help="Arithmetic; CPUs have the first two.")
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
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    return path


def input_paths(texts: Sequence[str] | None) -> list[Path]:
    """What `--input` may read; an equals sign can be part of a file's name."""
    named = (text.partition("=")[2] for text in texts or ())
    return [Path(text) for text in (*(texts or ()), *named) if text]


def parse_shapes(texts: list[str] | None) -> dict[str, tuple[Axis, ...]]:
    """Shapes by input name from `NAME=1x3xHx?`; a text without a name goes under "".

    Axes are numbers, names without an x, or `?` or -1 for any size.

    Raises:
        OptionError: A text is no shape, or names an input twice.
    """
    shapes: dict[str, tuple[Axis, ...]] = {}
    for text in texts or ():
        # Names of inputs may hold equals signs, sizes do not.
        name, _, sizes = text.rpartition("=")
        axes = [_axis(part) for part in sizes.split("x")]
        if "" in axes:
            raise OptionError(f"--shape {text!r} is not of the form NAME=1x3x224x224")
        if name in shapes:
            raise OptionError(f"--shape names {name or 'the input'} twice")
        shapes[name] = tuple(axes)
    return shapes


def _axis(part: str) -> Axis:
    """A size, a name, or None for any size; "" for what is none of them."""
    # `isdigit` alone takes superscripts, which `int` does not.
    if part.isascii() and part.isdigit():
        return int(part)
    if part in ("?", "-1"):
        return None
    return part if part.isidentifier() else ""


def parse_programs(texts: list[str] | None) -> list[dict[str, tuple[Axis, ...]]]:
    """Shapes for each `--shape` of a command that makes several programs; one, of none, without."""
    return [parse_shapes(text.split(",")) for text in texts or () if text] or [{}]
