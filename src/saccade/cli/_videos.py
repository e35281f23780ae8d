"""A video through a model, frame by frame: into a video, or a folder of frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from saccade.cli._given import GivenInputs
from saccade.cli._images import VIDEO_SUFFIXES, Preparation, as_input, channels_of
from saccade.cli._print import note, say
from saccade.cli._progress import counting
from saccade.cli._runs import ModelRuns, RunResult
from saccade.cli._signature import IMAGE_WAYS, check_fits
from saccade.errors import InputError, PlanError
from saccade.files import whole_file
from saccade.vision.video import VideoFrame, VideoReader, VideoWriter

__all__ = ["run_video"]

_MOSTLY = 0.9  # of a video's length; sound may be a little longer


def run_video(
    runs: ModelRuns,
    given: GivenInputs,
    sizes: Mapping[str, tuple[int, ...]],
    preparation: Preparation,
    output: Path | None,
) -> tuple[dict[str, Any], bool]:
    """Run all frames: a video is there whole or not at all, in a folder are all that are done.

    Args:
        runs: The model.
        given: With a video.
        sizes: What the user asked for with --shape.
        preparation: What is done with images.
        output: A video, or a folder; None to say what is seen.

    Returns:
        What is said of each frame, as data; and whether the video was there to its end.

    Raises:
        InputError: If the video is damaged, or the model does not take its frames, or gives no
            images.
    """
    assert given.video is not None
    if len(runs.model.inputs) != 1:
        raise InputError(f"a video is for a model of one input; it has {len(runs.model.inputs)}")
    told: list[dict[str, Any]] = []
    with ExitStack() as stack:
        reader = stack.enter_context(VideoReader(given.video))
        report = stack.enter_context(counting("frames", reader.count))
        target = _target(stack, reader, output)
        try:
            for number, (frame, result) in enumerate(
                _results(runs, given, reader, sizes, preparation, target)
            ):
                report(number, "")
                target.put(number, frame, result)
                told.append(_told(number, result))
                if output is None:
                    say(f"frame {number}: {'; '.join(_lines(result))}")
                    result.seen.say()
        except (InputError, PlanError) as error:
            raise InputError(f"{error}: {target.left(len(told))}") from error
        if not told:
            raise InputError(f"{given.video} has no frames: {target.left(0)}")
        if target.remark:
            note(f"saccade: {target.remark}")
        missing = _missing(reader, len(told))
    if missing:
        say(f"saccade: {given.video}: {missing}", sys.stderr)
    if output is not None:
        say(f"wrote {output} ({len(told)} frames)")
    return {"frames": told}, not missing


def _results(
    runs: ModelRuns,
    given: GivenInputs,
    reader: VideoReader,
    sizes: Mapping[str, tuple[int, ...]],
    preparation: Preparation,
    target: _FrameTarget,
) -> Iterator[tuple[VideoFrame, RunResult]]:
    (info,) = runs.model.inputs
    shape = sizes.get(info.name)
    channels = channels_of(str(given.video), info, shape)
    for frame in reader:
        pixels = frame.pixels if channels == 3 else _grey(frame.pixels)
        image = as_input(str(given.video), pixels, info, preparation, shape)
        check_fits(info, image.values.shape, IMAGE_WAYS)
        values = np.ascontiguousarray(image.values, dtype=info.dtype)
        yield frame, runs.run({info.name: values}, {info.name: image}, target.suffix)


def _missing(reader: VideoReader, done: int) -> str:
    """What to say of a video whose end is missing, which decoders do not see."""
    seconds = done / reader.rate
    if reader.duration is None or seconds >= _MOSTLY * reader.duration:
        return ""
    return f"the video ends after {float(seconds):.1f} of {float(reader.duration):.1f} seconds"


def _grey(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    from PIL import Image  # noqa: PLC0415

    return np.asarray(Image.fromarray(pixels).convert("L"))[..., None]


class _FrameTarget:
    """Nowhere: what is seen is said.

    Attributes:
        suffix: Of the files that are written; see `ModelRuns.run`.
    """

    suffix: str | None = ""

    @property
    def remark(self) -> str:
        """What there is to say of it in the end."""
        return ""

    def put(self, number: int, frame: VideoFrame, result: RunResult) -> None:
        """Take what came of a frame."""

    def left(self, _done: int) -> str:
        """What there is of it if there is no more."""
        return "nothing was written"


class _FrameFolder(_FrameTarget):
    """A file for each frame."""

    suffix = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, number: int, frame: VideoFrame, result: RunResult) -> None:
        """Write it."""
        del frame
        self._folder.mkdir(parents=True, exist_ok=True)
        result.write(self._folder / f"frame_{number:06}{result.suffix}")

    def left(self, done: int) -> str:
        """The frames so far."""
        return f"{done} frames are in {self._folder}"


class _FrameVideo(_FrameTarget):
    """A video."""

    suffix = ".png"

    def __init__(self, writer: VideoWriter) -> None:
        self._writer = writer

    @property
    def remark(self) -> str:
        """Whether it has no sound."""
        return "the sound is left out: this kind of file cannot hold it" * self._writer.lacks_sound

    def put(self, number: int, frame: VideoFrame, result: RunResult) -> None:
        """Add it at its time."""
        del number
        pixels = np.asarray(result.pixels())
        shaped = pixels[..., None] if pixels.ndim == 2 else pixels
        self._writer.write(VideoFrame(shaped, frame.time))


def _target(stack: ExitStack, reader: VideoReader, output: Path | None) -> _FrameTarget:
    if output is None:
        return _FrameTarget()
    suffix = output.suffix.lower()
    if suffix not in VIDEO_SUFFIXES or output.is_dir():
        return _FrameFolder(output)
    stream = stack.enter_context(whole_file(output))
    return _FrameVideo(stack.enter_context(VideoWriter(stream, suffix, reader.rate, reader)))


def _lines(result: RunResult) -> list[str]:
    return [figures.line(name) for name, figures in result.figures.items()]


def _told(number: int, result: RunResult) -> dict[str, Any]:
    outputs = {name: figures.data() for name, figures in result.figures.items()}
    return {"frame": number, "outputs": outputs} | result.seen.data()
