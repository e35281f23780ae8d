"""Where results of several images go: looked at, and named, before any work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.cli._files import WRITTEN, array_files
from saccade.cli._given import GivenInputs
from saccade.cli._images import VIDEO_SUFFIXES, WRITTEN_SUFFIXES
from saccade.cli._outputs import STANDARD_OUTPUT, check_folder, check_outputs
from saccade.cli._shown import TopQuery
from saccade.cli._types import TensorInfoLike
from saccade.errors import InputError, OptionError
from saccade.signature import shape_text
from saccade.vision.video import WRITTEN_VIDEOS

__all__ = ["ResultFolder", "check_results", "check_target", "file_of", "result_folder"]

_SUFFIXES = (".npz", ".npy", *WRITTEN_SUFFIXES)
_IMAGE_RANKS, _SCORES_RANKS = (3, 4), (1, 2)
"""Of outputs that may be images, or be drawn into one; of scores of classes."""


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """A file for each image, in a folder.

    Attributes:
        folder: Made when the first result is written.
        suffix: Of the files; None where it depends on the result: .png for images, .npz for others.
        names: Of each image's file, without the suffix.
    """

    folder: Path
    suffix: str | None
    names: dict[Path, str]

    def file(self, image: Path, suffix: str) -> Path:
        """The file of an image's result."""
        return self.folder / (self.names[image] + suffix)


def check_target(output: Path | None, given: GivenInputs) -> None:
    """See to it that results of such inputs can go there, before anything is computed.

    Raises:
        InputError: The kind of file does not fit.
    """
    if output is None:
        return
    if output == STANDARD_OUTPUT:
        raise OptionError("--output -: results go to files; --json - prints what is said of them")
    suffix = output.suffix.lower()
    if given.video is not None:
        folder = output.is_dir() or not (suffix or output.exists())
        if not folder and suffix not in WRITTEN_VIDEOS:
            written = ", ".join(WRITTEN_VIDEOS)
            raise InputError(f"{output}: a video becomes a video ({written}) or a folder of frames")
    elif given.images is not None:
        result_folder(output, given)
    elif suffix in VIDEO_SUFFIXES:
        raise InputError(f"{output}: a video is made of a video alone")
    elif not output.is_dir() and (suffix or output.exists()) and suffix not in _SUFFIXES:
        raise InputError(f"{output}: an output is a {WRITTEN} file or a folder")
    if file_of(output, given) is None:
        check_folder("--output", output.parent if output.name.startswith("*.") else output)


def file_of(output: Path | None, given: GivenInputs) -> Path | None:
    """The one file that is written; None where it is several, in a folder."""
    if output is None or output.is_dir() or output.name.startswith("*."):
        return None
    if given.images is not None:
        return None
    return output if output.suffix else None


def check_results(
    outputs: Sequence[TensorInfoLike],
    query: TopQuery,
    suffix: str | None,
    into: Path | None = None,
    reads: Sequence[Path] = (),
) -> None:
    """See to it that outputs can be what is asked for, as far as a signature tells, before a run.

    Args:
        outputs: Of the model.
        query: What is asked of them.
        suffix: Of the files that are written; None or "" where outputs decide, or there are none.
        into: A folder that they go to as arrays, if they do.
        reads: Files that stay.

    Raises:
        InputError: If they cannot.
    """
    first = outputs[0]
    if query.top is not None and not first.held and len(first.shape) not in _SCORES_RANKS:
        told = f"output {first.name!r} of shape {shape_text(first.shape)}"
        raise InputError(f"--top: {told} is not scores of classes")
    if (suffix or into is not None) and any(info.held for info in outputs):
        held = next(info.name for info in outputs if info.held)
        raise InputError(f"output {held!r} cannot be written: it is no array of numbers")
    if suffix == ".npy" and len(outputs) != 1:
        raise InputError(f"a .npy takes one output of {len(outputs)}; use an .npz or a folder")
    if suffix in WRITTEN_SUFFIXES and len(outputs) == 1 and len(first.shape) not in _IMAGE_RANKS:
        told = f"output {first.name!r} of shape {shape_text(first.shape)}"
        raise InputError(f"{told} is not one image; use .npy")
    if into is not None and into.is_dir():
        for file in array_files(into, [info.name for info in outputs]):
            check_outputs(None, reads, output=file)


def result_folder(output: Path, given: GivenInputs) -> ResultFolder:
    """Names for the results of several images: their own, whole where they differ by suffix alone.

    Args:
        output: A folder, or `FOLDER/*.npz`, `FOLDER/*.jpg` and so on.
        given: With several images.

    Raises:
        InputError: If it cannot be a folder, two results would be one file, or one be an image that
            is read.
    """
    images = given.images or ()
    folder, suffix = output, None
    if output.name.startswith("*."):
        folder, suffix = output.parent, output.suffix.lower()
        if suffix not in _SUFFIXES or output.stem != "*":
            raise InputError(f"{output}: an output is a {WRITTEN} file, or a folder")
    elif not output.is_dir() and (output.exists() or output.suffix.lower() in _SUFFIXES):
        raise InputError(
            f"{output}: results of several images go into a folder (or {output.parent}/*.png)"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: this is a file, and results go into a folder")
    found = ResultFolder(folder, suffix, _names(images))
    _check_apart(found, images, given.paths)
    return found


def _names(images: Sequence[Path]) -> dict[Path, str]:
    # File systems may not tell upper case from lower.
    stems = Counter(image.stem.casefold() for image in images)
    return {
        image: image.stem if stems[image.stem.casefold()] == 1 else image.name for image in images
    }


def _check_apart(results: ResultFolder, images: Sequence[Path], reads: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    read = {path.resolve() for path in reads}
    suffixes = (".png", ".npz") if results.suffix is None else (results.suffix,)
    for image in images:
        other = seen.setdefault(results.names[image].casefold(), image)
        if other != image:
            raise InputError(
                f"{other} and {image} would become one file in {results.folder}: "
                "give them other names, or run them apart"
            )
        for suffix in suffixes:
            target = results.file(image, suffix)
            if target.resolve() in read:
                raise InputError(f"{target}: the result would take the place of what is read")
