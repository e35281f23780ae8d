"""Where results of several images go: looked at, and named, before any work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.cli._given import GivenInputs
from saccade.cli._images import VIDEO_SUFFIXES, WRITTEN_SUFFIXES
from saccade.errors import InputError
from saccade.vision.video import WRITTEN_VIDEOS

__all__ = ["ARRAY_SUFFIXES", "ResultFolder", "check_target", "result_folder"]

ARRAY_SUFFIXES = (".npz", ".npy")
_SUFFIXES = (*ARRAY_SUFFIXES, *WRITTEN_SUFFIXES)
_WRITTEN = ".npy, .npz, .png or .jpg"


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
    suffix = output.suffix.lower()
    if given.video is not None:
        folder = not output.is_file() and (not suffix or output.is_dir())
        if not folder and suffix not in WRITTEN_VIDEOS:
            written = ", ".join(WRITTEN_VIDEOS)
            raise InputError(f"{output}: a video becomes a video ({written}) or a folder of frames")
        if not folder and output.resolve() == given.video.resolve():
            raise InputError(f"{output}: the result would take the place of what is read")
    elif given.images is not None:
        result_folder(output, given.images)
    elif suffix in VIDEO_SUFFIXES:
        raise InputError(f"{output}: a video is made of a video alone")
    elif not output.is_dir() and (suffix or output.is_file()) and suffix not in _SUFFIXES:
        raise InputError(f"{output}: an output is a {_WRITTEN} file or a folder")


def result_folder(output: Path, images: Sequence[Path]) -> ResultFolder:
    """Names for the results of several images: their own, whole where they differ by suffix alone.

    Args:
        output: A folder, or `FOLDER/*.npz`, `FOLDER/*.jpg` and so on.
        images: The images.

    Raises:
        InputError: If it cannot be a folder, two results would be one file, or one be an image that
            is read.
    """
    folder, suffix = output, None
    if output.name.startswith("*."):
        folder, suffix = output.parent, output.suffix.lower()
        if suffix not in _SUFFIXES or output.stem != "*":
            raise InputError(f"{output}: an output is a {_WRITTEN} file, or a folder")
    elif not output.is_dir() and (output.exists() or output.suffix.lower() in _SUFFIXES):
        raise InputError(
            f"{output}: results of several images go into a folder (or {output.parent}/*.png)"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: this is a file, and results go into a folder")
    found = ResultFolder(folder, suffix, _names(images))
    _check_apart(found, images)
    return found


def _names(images: Sequence[Path]) -> dict[Path, str]:
    # File systems may not tell upper case from lower.
    stems = Counter(image.stem.casefold() for image in images)
    return {
        image: image.stem if stems[image.stem.casefold()] == 1 else image.name for image in images
    }


def _check_apart(results: ResultFolder, images: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    read = {image.resolve() for image in images}
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
                raise InputError(f"{target}: the result would take the place of this image")
