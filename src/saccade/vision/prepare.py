"""Images as networks want them, and back: what is cut, scaled and filled, and where boxes lie."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError
from saccade.vision.images import ImageLike, pixels_of

__all__ = ["KINDS", "PreparedImage", "imagenet", "letterbox", "prepare", "unit"]

Size: TypeAlias = "tuple[int, int] | int"
"""Height and width, or one number for both."""
KINDS = ("none", "imagenet", "letterbox")
"""What `prepare` knows by name."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of RGB from 0 to 1, as networks of torchvision are trained with."""
_MARGIN = 256 / 224  # of the shorter side over the crop
_GREY = 114  # what letterboxes are filled with, as YOLO's are


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """A network's input, and where it lies in the image.

    Attributes:
        values: [1, C, H, W], float32.
        scale: Pixels of the input for one of the image: across, down.
        offset: Of the image's corner in the input, in the input's pixels: x, y.
        size: Of the image: width, height.
    """

    values: NDArray[np.float32]
    scale: tuple[float, float]
    offset: tuple[float, float]
    size: tuple[int, int]

    def boxes(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """[..., 4] boxes (x1, y1, x2, y2) of the input, in the image's pixels and inside of it."""
        steps = np.array([*self.scale, *self.scale], np.float32)
        corner = np.array([*self.offset, *self.offset], np.float32)
        most = np.array([*self.size, *self.size], np.float32)
        found: NDArray[np.float32] = np.clip((boxes - corner) / steps, 0, most)
        return found

    def points(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """[..., 2] points (x, y) of the input, in the image's pixels and inside of it."""
        twice = np.concatenate([points, points], axis=-1)
        return self.boxes(twice)[..., :2]

    def plane(self, plane: NDArray[np.float32], *, nearest: bool = False) -> NDArray[np.float32]:
        """[H, W] of the image, of a plane of any size that covers the input; 0 beyond the input.

        Args:
            plane: [h, w], of masks or classes.
            nearest: Whether each pixel is one of the plane's, and none in between.
        """
        from PIL import Image  # noqa: PLC0415 - most of a command needs none

        high, wide = self.values.shape[-2:]
        across, down = plane.shape[1] / wide, plane.shape[0] / high
        # From the middle of a pixel of the image to the plane's.
        steps = (
            self.scale[0] * across, 0.0, self.offset[0] * across,
            0.0, self.scale[1] * down, self.offset[1] * down,
        )  # fmt: skip
        kind = Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
        source = Image.fromarray(np.ascontiguousarray(plane, np.float32))
        return np.array(source.transform(self.size, Image.Transform.AFFINE, steps, kind))


def prepare(
    image: ImageLike,
    kind: str,
    size: Size | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> PreparedImage:
    """An image by the name of what is done with it.

    Args:
        image: [H, W, C] bytes, or what `read` takes: a path, a file, an image of Pillow's.
        kind: One of `KINDS`.
        size: Height and width of the input, or one number for both; 224x224 for "imagenet" and
            640x640 for "letterbox" if None, and as the image is for "none".
        mean: Subtracted from each channel, of values from 0 to 1.
        std: What is divided by then.

    Raises:
        InputError: If there is no such kind, or parameters do not fit.
    """
    if kind == "imagenet":
        return imagenet(
            image, (224, 224) if size is None else size, mean or IMAGENET_MEAN, std or IMAGENET_STD
        )
    if kind == "letterbox":
        return letterbox(image, (640, 640) if size is None else size, mean=mean, std=std)
    if kind == "none":
        return unit(image, size, mean=mean, std=std)
    raise InputError(f"no preprocessing {kind!r}; there is {', '.join(KINDS)}")


def imagenet(
    image: ImageLike,
    size: Size = (224, 224),
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> PreparedImage:
    """The middle of an image, as classifiers are evaluated: 224 of 256 pixels of the shorter side.

    Args:
        image: As of `prepare`.
        size: Height and width of the crop.
        mean: Of each channel, of values from 0 to 1.
        std: The same.

    Raises:
        InputError: If it is no image, or parameters do not fit.
    """
    pixels, (height, width) = pixels_of(image), _height_and_width(size)
    high, wide = pixels.shape[:2]
    ratio = _MARGIN * max(height / high, width / wide)
    rows, columns = max(round(high * ratio), height), max(round(wide * ratio), width)
    scaled = _resized(pixels, (rows, columns))
    top, left = (rows - height) // 2, (columns - width) // 2
    cropped = scaled[top : top + height, left : left + width]
    return PreparedImage(
        _planes(cropped, mean, std), (columns / wide, rows / high), (-left, -top), (wide, high)
    )


def letterbox(
    image: ImageLike,
    size: Size = (640, 640),
    *,
    fill: int = _GREY,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> PreparedImage:
    """A whole image with its proportions, in the middle of a grey one, as detectors take it.

    Args:
        image: As of `prepare`.
        size: Height and width.
        fill: The grey, 0 to 255.
        mean: Of each channel, of values from 0 to 1; 0 if None.
        std: The same; 1 if None.

    Raises:
        InputError: If it is no image, or parameters do not fit.
    """
    pixels, (height, width) = pixels_of(image), _height_and_width(size)
    high, wide, channels = pixels.shape
    ratio = min(height / high, width / wide)
    rows, columns = max(round(high * ratio), 1), max(round(wide * ratio), 1)
    top, left = (height - rows) // 2, (width - columns) // 2
    whole = np.full((height, width, channels), fill, np.uint8)
    whole[top : top + rows, left : left + columns] = _resized(pixels, (rows, columns))
    return PreparedImage(
        _planes(whole, mean, std), (columns / wide, rows / high), (left, top), (wide, high)
    )


def unit(
    image: ImageLike,
    size: Size | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> PreparedImage:
    """An image as it is, from 0 to 1; stretched to a size if one is given.

    Args:
        image: As of `prepare`.
        size: Height and width.
        mean: Of each channel, of values from 0 to 1; 0 if None.
        std: The same; 1 if None.

    Raises:
        InputError: If it is no image, or parameters do not fit.
    """
    pixels = pixels_of(image)
    high, wide = pixels.shape[:2]
    rows, columns = (high, wide) if size is None else _height_and_width(size)
    scaled = pixels if (rows, columns) == (high, wide) else _resized(pixels, (rows, columns))
    return PreparedImage(
        _planes(scaled, mean, std), (columns / wide, rows / high), (0.0, 0.0), (wide, high)
    )


def _height_and_width(size: Size) -> tuple[int, int]:
    """Of an input, which has pixels."""
    try:
        height, width = map(
            operator.index, (size, size) if isinstance(size, int | np.integer) else size
        )
    except (TypeError, ValueError):
        raise InputError(
            f"a size is height and width, or one number for both, not {size!r}"
        ) from None
    if min(height, width) < 1:
        raise InputError(f"an input of {height}x{width} pixels has none")
    return height, width


def _resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """By linear interpolation, over the whole area of what becomes a pixel."""
    from PIL import Image  # noqa: PLC0415 - most of a command needs none

    squeezed = image[..., 0] if image.shape[2] == 1 else image
    scaled = Image.fromarray(squeezed).resize(size[::-1], Image.Resampling.BILINEAR)
    return np.asarray(scaled).reshape(*size, image.shape[2])


def _planes(
    image: NDArray[np.uint8], mean: Sequence[float] | None, std: Sequence[float] | None
) -> NDArray[np.float32]:
    """[1, C, H, W]."""
    values = image.transpose(2, 0, 1).astype(np.float32) / np.float32(255)
    for name, given in (("mean", mean), ("std", std)):
        if given is not None and len(given) not in (1, len(values)):
            raise InputError(f"{len(given)} numbers of {name} for {len(values)} channels")
    if mean is not None:
        values -= np.array(mean, np.float32)[:, None, None]
    if std is not None:
        if not all(std):
            raise InputError("a std of 0 divides by zero")
        values /= np.array(std, np.float32)[:, None, None]
    return np.ascontiguousarray(values[None])
