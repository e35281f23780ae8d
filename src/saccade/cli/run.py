"""`saccade run`: a model on files."""

# ruff: noqa: PLC0415 - NumPy and the engine are imported when the command runs, not for --help

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say
from saccade.cli._shape_texts import parse_shapes, usual_shapes
from saccade.errors import OptionError

if TYPE_CHECKING:
    from saccade.cli._given import GivenInputs
    from saccade.cli._images import Preparation
    from saccade.cli._runs import ModelRuns
    from saccade.cli._shapes import Sizes
    from saccade.cli._targets import ResultFolder

__all__ = ["run"]

_LARGEST_TILE = 1 << 20  # pixels along an edge


class Preprocessing(StrEnum):
    """Names of `saccade.vision.prepare`, which is not imported for --help."""

    NONE = "none"
    IMAGENET = "imagenet"
    LETTERBOX = "letterbox"


PreprocessOption = Annotated[
    Preprocessing,
    typer.Option(
        metavar="KIND",
        help="What is done with images: imagenet (resized, the middle cut out, mean and std), "
        "letterbox (whole, on a grey ground), or none but values from 0 to 1.",
    ),
]
MeanOption = Annotated[
    str | None, typer.Option(metavar="R,G,B", help="Subtracted from images of 0 to 1.")
]
StdOption = Annotated[str | None, typer.Option(metavar="R,G,B", help="What is divided by then.")]
TopOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Print so many of the most probable classes."),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Names of the classes, a line each (--top, detections)."),
]
ThresholdOption = Annotated[
    float,
    typer.Option(
        min=0.0, max=1.0, metavar="S", help="Least score of detections that are told and drawn."
    ),
]
TileOption = Annotated[
    str,
    typer.Option(
        metavar="N|auto|off",
        help="Run images in tiles of N pixels, with the result of the whole; auto: where the whole "
        "would need much memory.",
    ),
]
RunInputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]FILE|DIR",
        help="An input: .npy, .npz or an image (else random); several images ('*.jpg'), a folder "
        "of them, or a video are run one by one.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE|DIR",
        help="Where outputs go: .npz, .npy, an image, a video, or a folder (DIR/*.npz: as these).",
    ),
]


def run(
    model: ModelArgument,
    *,
    input_: RunInputOption = None,
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
    threshold: ThresholdOption = 0.5,
    tile: TileOption = "auto",
    json: JsonOption = None,
) -> None:
    """Run MODEL on files (inputs without one get random data), save or describe its outputs."""
    shapes = parse_shapes(shape)
    path = existing_model(model)
    if labels is not None and top is None and input_ is None:
        raise OptionError("--labels names the classes of --top, which is not given")
    edge = _edge(tile)
    from saccade.cli._given import given_inputs, one_for_each
    from saccade.cli._images import Preparation
    from saccade.cli._shown import TopQuery
    from saccade.cli._targets import check_target, file_of
    from saccade.vision import read_labels

    preparation = Preparation(preprocess.value, _numbers("mean", mean), _numbers("std", std))
    query = TopQuery(top, [] if labels is None else read_labels(labels), threshold)
    given = given_inputs(input_ or ())
    if output is not None and output.name.startswith("*."):
        given = one_for_each(given)
    check_target(output, given)
    check_outputs(
        path, [*given.paths, labels, import_algorithms], output=file_of(output, given), json=json
    )
    if given.video is not None:
        from saccade.vision.video import check_video

        check_video(given.video)
    from saccade.cli._model import compile_shaped
    from saccade.cli._runs import ModelRuns

    compiled, (sizes,), _ = compile_shaped(
        path,
        [usual_shapes(path, shapes, input_)],
        algorithms=import_algorithms,
        device=device,
        precision=precision,
        threads=threads,
        allow_reference=allow_reference or None,
    )
    runs = ModelRuns(compiled, query, edge, import_algorithms is not None)
    work = _Work(path, runs, preparation, sizes)
    work.run(given, output, json)


@dataclass(frozen=True, slots=True)
class _Work:
    """A run of the command, once everything is known to be there."""

    path: Path
    runs: ModelRuns
    preparation: Preparation
    sizes: Sizes

    def run(self, given: GivenInputs, output: Path | None, json: Path | None) -> None:
        """One input, several images, or a video."""
        from saccade.cli._given import several_images
        from saccade.cli._targets import check_results, file_of, result_folder

        outputs, query = self.runs.model.outputs, self.runs.query
        given = several_images(given, [info.name for info in self.runs.model.inputs])
        if given.video is not None:
            check_results(outputs, query, "" if file_of(output, given) is None else ".png")
            self._video(given, output, json)
        elif given.images is not None:
            folder = None if output is None else result_folder(output, given)
            check_results(outputs, query, None if folder is None else folder.suffix)
            self._images(given, folder, json)
        else:
            into = output if file_of(output, given) is None else None
            check_results(outputs, query, "" if into else _suffix_of(output), into, given.paths)
            self._once(given, output, json)

    def _once(self, given: GivenInputs, output: Path | None, json: Path | None) -> None:
        from saccade.cli._feeds import read_feeds
        from saccade.cli._progress import working

        model = self.runs.model
        feeds, images = read_feeds(model.inputs, given.files, self.sizes, self.preparation)
        with working(f"running {self.path.name}") as report:
            result = self.runs.run(feeds, images, _suffix_of(output), report)
        for name, figures in result.figures.items():
            say(figures.line(name))
        result.seen.say()
        outputs = {name: figures.data() for name, figures in result.figures.items()}
        give_json(json, {"outputs": outputs} | result.seen.data())
        if output is not None:
            for file in result.write(output):
                say(f"wrote {file}")

    def _images(self, given: GivenInputs, folder: ResultFolder | None, json: Path | None) -> None:
        from saccade.cli._batch import run_images

        files, left_out = run_images(self.runs, given, self.sizes, self.preparation, folder)
        give_json(json, {"files": files, "left_out": left_out})
        if left_out:
            raise typer.Exit(1)

    def _video(self, given: GivenInputs, output: Path | None, json: Path | None) -> None:
        from saccade.cli._videos import run_video

        frames, whole = run_video(self.runs, given, self.sizes, self.preparation, output)
        give_json(json, frames)
        if not whole:
            raise typer.Exit(1)


def _suffix_of(output: Path | None) -> str:
    """Of what is written; a folder gets arrays."""
    if output is None:
        return ""
    return ".npy" if output.is_dir() or not output.suffix else output.suffix.lower()


def _edge(text: str) -> int | None:
    """Pixels of a tile; 0 to choose, None for no tiles."""
    if text in ("auto", "off"):
        return 0 if text == "auto" else None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _LARGEST_TILE:
        raise OptionError(f"--tile {text!r} is none of a number of pixels, auto and off")
    return int(text)


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
