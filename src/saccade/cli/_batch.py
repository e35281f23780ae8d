"""Many images, one after the other: each gets a run, a line, and a file of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from saccade.cli._feeds import read_feeds
from saccade.cli._given import GivenInputs
from saccade.cli._images import Preparation, channels_of
from saccade.cli._print import say
from saccade.cli._progress import counting
from saccade.cli._runs import ModelRuns, RunResult
from saccade.cli._shapes import check_names
from saccade.cli._targets import ResultFolder
from saccade.cli._types import TensorInfoLike
from saccade.errors import InputError, PlanError, printable

__all__ = ["run_images"]


def run_images(
    runs: ModelRuns,
    given: GivenInputs,
    sizes: Mapping[str, tuple[int, ...]],
    preparation: Preparation,
    folder: ResultFolder | None,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Run all images, in order; what cannot be read, or does not fit the model, is told.

    Args:
        runs: The model.
        given: With several images.
        sizes: What the user asked for with --shape.
        preparation: What is done with images.
        folder: Where results go, if anywhere.

    Returns:
        What is said of each image, and of those that are left out, as data.

    Raises:
        InputError: If the model takes no images.
    """
    assert given.images is not None
    info = _input_of(given, runs.model.inputs)
    channels_of(str(given.images[0]), info, sizes.get(info.name))
    done: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    suffix = "" if folder is None else folder.suffix
    with counting("images", len(given.images)) as report:
        for number, image in enumerate(given.images):
            report(number, image.name)
            texts = [*given.files, f"{info.name}={image}"]
            try:
                feeds, images = read_feeds(runs.model.inputs, texts, sizes, preparation)
                tile = partial(_report_tile, report, number, image.name)
                result = runs.run(feeds, {info.name: images[info.name]}, suffix, tile)
                done.append(_told(image, result, folder))
            except (InputError, PlanError) as error:
                # Of one image; those that come after it may be as they should.
                say(f"saccade: left out: {_reason(image, error)}", sys.stderr)
                left_out.append({"file": str(image), "reason": str(error)})
            except KeyboardInterrupt:
                so_far = f"{number} of {len(given.images)} images are done"
                raise KeyboardInterrupt(so_far) from None
    if left_out:
        text = f"{len(left_out)} of {len(given.images)} images were left out"
        say(f"saccade: {text}", sys.stderr)
    return done, left_out


def _report_tile(report: Callable[[int, str], None], number: int, name: str, text: str) -> None:
    report(number, f"{name}, {text}")


def _input_of(given: GivenInputs, inputs: Sequence[TensorInfoLike]) -> TensorInfoLike:
    """The input that the images go to: the one named, or the first that no file is for."""
    known = {info.name: info for info in inputs}
    if given.name is not None:
        check_names([given.name], inputs)
        return known[given.name]
    taken = {text.partition("=")[0] for text in given.files}
    free = [info for info in inputs if info.name not in taken]
    if not free:
        raise InputError("all inputs of the model are given without the images")
    return free[0]


def _reason(image: Path, error: Exception) -> str:
    """An error's text, which names the file in any case."""
    text = str(error)
    return text if str(image) in text else f"{printable(image)}: {text}"


def _told(image: Path, result: RunResult, folder: ResultFolder | None) -> dict[str, Any]:
    """Write a result, say what came of the image, and the same as data."""
    written: list[str] = []
    if folder is not None:
        target = folder.file(image, folder.suffix or result.suffix)
        folder.folder.mkdir(parents=True, exist_ok=True)
        written = [str(file) for file in result.write(target)]
    figures = "; ".join(one.line(name) for name, one in result.figures.items())
    say(f"{printable(image)}: {f'wrote {written[0]}' if written else figures}")
    result.seen.say()
    outputs = {name: one.data() for name, one in result.figures.items()}
    return {"file": str(image), "outputs": outputs} | result.seen.data() | {"written": written}
