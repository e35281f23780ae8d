"""The arrays that a command runs a model on: files where given, random data elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saccade.cli._files import read_files
from saccade.cli._images import ImageInput, Preparation
from saccade.cli._signature import SCALED, fixed_shapes, random_inputs
from saccade.cli._types import Arrays, TensorInfoLike
from saccade.errors import InputError

__all__ = ["make_feeds", "read_feeds"]


def make_feeds(
    inputs: Sequence[TensorInfoLike],
    files: Sequence[str] | None,
    shapes: Mapping[str, tuple[int, ...]],
    preparation: Preparation | None = None,
) -> Arrays:
    """An array for every input, in the model's order; see `read_feeds`."""
    return read_feeds(inputs, files, shapes, preparation)[0]


def read_feeds(
    inputs: Sequence[TensorInfoLike],
    files: Sequence[str] | None,
    shapes: Mapping[str, tuple[int, ...]],
    preparation: Preparation | None = None,
) -> tuple[Arrays, dict[str, ImageInput]]:
    """An array for every input, in the model's order, and the images among them by input.

    Args:
        inputs: Objects with name, dtype and shape, such as `Model.inputs`.
        files: `[NAME=]FILE` texts.
        shapes: What the user asked for with --shape.
        preparation: What is done with images.

    Raises:
        InputError: A file or a shape does not fit the model, or they contradict each other.
    """
    feeds, images = read_files(files or (), inputs, preparation, shapes)
    open_inputs = [info for info in inputs if info.name not in feeds]
    for name in shapes:
        if name in feeds and feeds[name].shape != shapes[name]:
            given = "x".join(map(str, feeds[name].shape))
            way = f": {SCALED}" if name in images else ""
            raise InputError(
                f"the file for input {name!r} is {given}, which --shape contradicts{way}"
            )
    rest = {name: shape for name, shape in shapes.items() if name not in feeds}
    if open_inputs:
        feeds |= random_inputs(open_inputs, fixed_shapes(open_inputs, rest))
    return {info.name: feeds[info.name] for info in inputs}, images
