"""What `--input` gives: files, folders of images, patterns, a video; looked at before any work."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.cli._images import VIDEO_SUFFIXES, reads_image
from saccade.cli._options import input_paths
from saccade.errors import InputError

__all__ = ["GivenInputs", "given_inputs", "one_for_each", "several_images"]


@dataclass(frozen=True, slots=True)
class GivenInputs:
    """The texts of `--input`, sorted by what they are.

    Attributes:
        files: `[NAME=]FILE` texts that every run gets.
        images: Files of which each gets a run of its own; None if there is one run.
        name: Of the input that these, or the video's frames, go to, if it was told.
        video: Whose frames each get a run.
    """

    files: tuple[str, ...] = ()
    images: tuple[Path, ...] | None = None
    name: str | None = None
    video: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """All files that are read, and others that texts with equals signs may mean."""
        video = [] if self.video is None else [self.video]
        return [*input_paths(self.files), *(self.images or ()), *video]


def given_inputs(texts: Sequence[str]) -> GivenInputs:
    """Folders and patterns become their images, and images beside them are more of these.

    Raises:
        InputError: A file is not there, a folder holds no image, a pattern fits no file, or several
            inputs are given many files.
    """
    files: list[str] = []
    many: list[tuple[str | None, list[Path]]] = []
    videos: list[tuple[str | None, Path]] = []
    for text in texts:
        name, path = _split(text)
        found = _expanded(path)
        if found is not None:
            many.append((name, found))
        elif path.suffix.lower() in VIDEO_SUFFIXES:
            videos.append((name, path))
        else:
            files.append(text)
    if videos:
        if len(texts) > 1:
            raise InputError(f"{videos[0][1]}: a video is run by itself, without other inputs")
        return GivenInputs(name=videos[0][0], video=videos[0][1])
    if not many:
        return GivenInputs(tuple(files))
    names = {name for name, _ in many}
    if len(names) > 1:
        raise InputError("only one input of a model may have several files")
    (name,) = names
    images = [path for _, found in many for path in found]
    if name is None:
        nameless = [text for text in files if _split(text)[0] is None and reads_image(Path(text))]
        images += map(Path, nameless)
        files = [text for text in files if text not in nameless]
    return GivenInputs(tuple(files), tuple(dict.fromkeys(images)), name)


def one_for_each(given: GivenInputs) -> GivenInputs:
    """A single image as one of several, for results that are named after images.

    Raises:
        InputError: It is not told which image a result would be named after.
    """
    if given.images is not None or given.video is not None:
        return given
    images = [text for text in given.files if reads_image(_split(text)[1])]
    if len(images) != 1:
        raise InputError("--output DIR/*.png names results after images: give one, or a file")
    name, path = _split(images[0])
    others = tuple(text for text in given.files if text not in images)
    return GivenInputs(others, (path,), name)


def several_images(given: GivenInputs, inputs: Sequence[str]) -> GivenInputs:
    """Several images for one input of the model, of which each gets a run.

    Args:
        given: What the user gave.
        inputs: Names of the model's inputs.
    """
    if given.images is not None or given.video is not None or len(given.files) < 2:
        return given
    split = [_split(text, inputs) for text in given.files]
    taken = {name for name, _ in split if name is not None}
    free = [name for name in inputs if name not in taken]
    for wanted in (None, *inputs):
        mine = [path for name, path in split if name == wanted]
        enough = len(free) if wanted is None else 1
        if len(mine) > enough == 1 and all(map(reads_image, mine)):
            others = [
                text for text, (name, _) in zip(given.files, split, strict=True) if name != wanted
            ]
            return GivenInputs(tuple(others), tuple(dict.fromkeys(mine)), wanted or free[0])
    return given


def _split(text: str, known: Sequence[str] | None = None) -> tuple[str | None, Path]:
    """Name and path; what is there as a whole, or fits a file, is a path with an equals sign."""
    name, sign, rest = text.partition("=")
    if known is not None:
        return (name, Path(rest)) if sign and name in known else (None, Path(text))
    if not sign or Path(text).exists() or (glob.has_magic(text) and _fitting(text)):
        return None, _there(text)
    return name, _there(rest)


def _there(text: str) -> Path:
    if not glob.has_magic(text) and not Path(text).exists():
        raise InputError(f"{text}: no such file")
    return Path(text)


def _expanded(path: Path) -> list[Path] | None:
    """The images of a folder, or files that fit a pattern; None for one file."""
    if path.is_dir():
        files = [one for one in sorted(path.iterdir()) if not one.name.startswith(".")]
        images = [one for one in files if one.is_file() and reads_image(one)]
        if images:
            return images
        videos = any(one.suffix.lower() in VIDEO_SUFFIXES for one in files)
        raise InputError(
            f"{path}: there is no image in this folder"
            + ("; videos are given one by one" if videos else "")
        )
    if path.is_file() or not glob.has_magic(str(path)):
        return None
    fitting = _fitting(str(path))
    images = [one for one in fitting if reads_image(one)]
    if not images:
        raise InputError(
            f"{path}: none of {len(fitting)} files that fit is an image"
            if fitting
            else f"{path}: no file fits this pattern"
        )
    return images


def _fitting(pattern: str) -> list[Path]:
    # `Path.glob` takes no pattern that begins at the root.
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207
    return [path for path in map(Path, sorted(found)) if path.is_file()]
