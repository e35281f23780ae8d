"""Detections and classes drawn into images."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError
from saccade.vision._outputs import Outputs, named_outputs
from saccade.vision.detections import Detections, name_of
from saccade.vision.images import ImageLike, pixels_of
from saccade.vision.prepare import PreparedImage

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["draw", "overlay", "segmentation_of"]

Colour = tuple[int, int, int]

_GOLDEN = 0.618034  # of a turn of hues from class to class: neighbours differ, and few are alike
_SHADES = ((0.85, 1.0), (0.6, 0.85), (1.0, 0.75))  # saturation and value, in turns
_STRENGTH = 0.45  # of a mask's colour over the image
_LINE, _LETTER = 300, 36  # parts of an image's shorter side: width of lines, height of letters
_DOT = 25  # parts of a box's shorter side: radius of a key point
_LEAST_LETTER = 11  # pixels, which can be read
_LEAST_CLASSES = 5  # of what is taken for scores of classes, and not for an image
_SURE = 0.0  # what the third number of a key point that is seen exceeds


def colour_of(label: int) -> Colour:
    """A class's colour, always the same."""
    saturation, value = _SHADES[label // 8 % len(_SHADES)]
    red, green, blue = colorsys.hsv_to_rgb(label * _GOLDEN % 1.0, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw(image: ImageLike, detections: Detections, labels: Sequence[str] = ()) -> NDArray[np.uint8]:
    """An image with detections: boxes with names and scores, masks, key points.

    Args:
        image: [H, W, 3] or [H, W, 1] bytes, or what `read` takes.
        detections: In its pixels.
        labels: Names of the classes; numbers where there are none.

    Returns:
        [H, W, 3] bytes; the image stays as it is.

    Raises:
        InputError: If it is no such image, or masks are of another size.
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415 - most of a command needs none

    pixels = _rgb(image)
    masks = detections.masks
    if masks is not None and masks.shape[1:] != pixels.shape[:2]:
        raise InputError(f"masks of {masks.shape[1:]} for an image of {pixels.shape[:2]}")
    # The best come last, over all others. What is nowhere cannot be drawn.
    order = np.flatnonzero(np.isfinite(detections.boxes).all(axis=1))[::-1].tolist()
    for at in order if masks is not None else ():
        assert masks is not None
        _tint(pixels, masks[at], colour_of(int(detections.labels[at])))
    drawn = Image.fromarray(pixels)
    pen = ImageDraw.Draw(drawn)
    for at in order:
        label = int(detections.labels[at])
        text = f"{name_of(label, labels)} {detections.scores[at]:.2f}"
        _box(pen, drawn.size, detections.boxes[at].tolist(), text, colour_of(label))
        if detections.keypoints is not None:
            radius = _radius(drawn.size, detections.boxes[at])
            _points(pen, detections.keypoints[at], radius, colour_of(label))
    return np.array(drawn)


def overlay(image: ImageLike, classes: NDArray[Any]) -> NDArray[np.uint8]:
    """An image with each pixel's class as a colour over it; class 0, the background, has none.

    Args:
        image: [H, W, 3] or [H, W, 1] bytes, or what `read` takes.
        classes: [H, W] integers.

    Returns:
        [H, W, 3] bytes; the image stays as it is.

    Raises:
        InputError: If it is no such image, or classes are of another size.
    """
    pixels = _rgb(image)
    if classes.shape != pixels.shape[:2]:
        raise InputError(f"classes of {classes.shape} for an image of {pixels.shape[:2]}")
    for label in np.unique(classes):
        if label:
            _tint(pixels, classes == label, colour_of(int(label)))
    return pixels


def segmentation_of(outputs: Outputs, prepared: PreparedImage) -> NDArray[np.int64] | None:
    """The class of each pixel of an image, [H, W], if outputs are surely scores of classes.

    That is the first of outputs that all are [1, C, h, w] floats, of the size that the model was
    given and with five classes or more, which no image has channels. 0 where the model saw nothing.

    Args:
        outputs: All of a model's.
        prepared: What the model was given.
    """
    scores = list(named_outputs(outputs).values())
    size = prepared.values.shape[-2:]
    if not scores or not all(_scores_of_classes(array, size) for array in scores):
        return None
    classes = scores[0][0].argmax(axis=0)
    return np.rint(prepared.plane(classes, nearest=True)).astype(np.int64)


def _scores_of_classes(array: NDArray[Any], size: tuple[int, ...]) -> bool:
    floats = array.dtype.kind == "f" and array.ndim == 4 and len(array) == 1
    return floats and array.shape[1] >= _LEAST_CLASSES and array.shape[2:] == size


def _rgb(image: ImageLike) -> NDArray[np.uint8]:
    """A copy with three channels."""
    pixels = pixels_of(image)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels.copy()


def _tint(pixels: NDArray[np.uint8], mask: NDArray[np.bool_], colour: Colour) -> None:
    """Colour where a mask is, in place."""
    below = pixels[mask] * (1 - _STRENGTH)
    pixels[mask] = np.rint(below + _STRENGTH * np.array(colour)).astype(np.uint8)


def _line(size: tuple[int, int]) -> int:
    return max(1, round(min(size) / _LINE))


def _box(
    pen: ImageDraw, size: tuple[int, int], box: list[float], text: str, colour: Colour
) -> None:
    """A box, and what it is above it; inside where there is no space above."""
    from PIL import ImageFont  # noqa: PLC0415

    wide, high = size
    left, top, right, bottom = (
        min(max(round(edge), 0), most - 1)
        for edge, most in zip(box, (wide, high, wide, high), strict=True)
    )
    right, bottom = max(left, right), max(top, bottom)
    pen.rectangle((left, top, right, bottom), outline=colour, width=_line(size))
    font = ImageFont.load_default(max(_LEAST_LETTER, round(min(size) / _LETTER)))
    edges = pen.textbbox((0, 0), text, font=font)
    across, down = int(edges[2] - edges[0]) + 4, int(edges[3] - edges[1]) + 4
    x = max(min(left, wide - across), 0)
    y = top - down if top >= down else top
    pen.rectangle((x, y, x + across, y + down), fill=colour)
    dark = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 140  # of 255, to the eye
    pen.text((x + 2 - edges[0], y + 2 - edges[1]), text, "black" if dark else "white", font)


def _radius(size: tuple[int, int], box: NDArray[np.float32]) -> float:
    """Of key points in a box, of which there may be many."""
    side = min(float(box[2] - box[0]), float(box[3] - box[1]))
    return max(1.0, min(3.0 * _line(size), side / _DOT))


def _points(pen: ImageDraw, points: NDArray[np.float32], radius: float, colour: Colour) -> None:
    seen = (points[:, 2] > _SURE) & np.isfinite(points).all(axis=1)
    for x, y, _ in points[seen].tolist():
        for around, fill in ((radius + 1, "white"), (radius, colour)):
            pen.ellipse((x - around, y - around, x + around, y + around), fill)
