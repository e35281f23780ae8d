"""Images as networks want them, and back: what is cut, scaled and filled, and where boxes lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError

__all__ = ["KINDS", "PreparedImage", "imagenet", "letterbox", "prepare", "unit"]

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
    image: NDArray[np.uint8],
    kind: str,
    size: tuple[int, int] | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> PreparedImage:
    """An image by the name of what is done with it.

    Args:
        image: [H, W, C].
        kind: One of `KINDS`.
        size: Height and width of the input; 224x224 for "imagenet" and 640x640 for "letterbox" if
            None, and as the image is for "none".
        mean: Subtracted from each channel, of values from 0 to 1.
        std: What is divided by then.

    Raises:
        InputError: If there is no such kind, or parameters do not fit.
    """
    if kind == "imagenet":
        return imagenet(image, size or (224, 224), mean or IMAGENET_MEAN, std or IMAGENET_STD)
    if kind == "letterbox":
        return letterbox(image, size or (640, 640), mean=mean, std=std)
    if kind == "none":
        return unit(image, size, mean=mean, std=std)
    raise InputError(f"no preprocessing {kind!r}; there is {', '.join(KINDS)}")


def imagenet(
    image: NDArray[np.uint8],
    size: tuple[int, int] = (224, 224),
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
) -> PreparedImage:
    """The middle of an image, as classifiers are evaluated: 224 of 256 pixels of the shorter side.

    Args:
        image: [H, W, C] bytes.
        size: Height and width of the crop.
        mean: Of each channel, of values from 0 to 1.
        std: The same.

    Raises:
        InputError: If it is no image, or parameters do not fit.
    """
    high, wide = _checked(image, size)
    ratio = _MARGIN * max(size[0] / high, size[1] / wide)
    rows, columns = max(round(high * ratio), size[0]), max(round(wide * ratio), size[1])
    scaled = _resized(image, (rows, columns))
    top, left = (rows - size[0]) // 2, (columns - size[1]) // 2
    cropped = scaled[top : top + size[0], left : left + size[1]]
    return PreparedImage(
        _planes(cropped, mean, std), (columns / wide, rows / high), (-left, -top), (wide, high)
    )


def letterbox(
    image: NDArray[np.uint8],
    size: tuple[int, int] = (640, 640),
    *,
    fill: int = _GREY,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> PreparedImage:
    """A whole image with its proportions, in the middle of a grey one, as detectors take it.

    Args:
        image: [H, W, C] bytes.
        size: Height and width.
        fill: The grey, 0 to 255.
        mean: Of each channel, of values from 0 to 1; 0 if None.
        std: The same; 1 if None.

    Raises:
        InputError: If it is no image, or parameters do not fit.
    """
    high, wide = _checked(image, size)
    ratio = min(size[0] / high, size[1] / wide)
    rows, columns = max(round(high * ratio), 1), max(round(wide * ratio), 1)
    top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
    whole = np.full((*size, image.shape[2]), fill, np.uint8)
    whole[top : top + rows, left : left + columns] = _resized(image, (rows, columns))
    return PreparedImage(
        _planes(whole, mean, std), (columns / wide, rows / high), (left, top), (wide, high)
    )


def unit(
    image: NDArray[np.uint8],
    size: tuple[int, int] | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> PreparedImage:
    """An image as it is, from 0 to 1; stretched to a size if one is given.

    Args:
        image: [H, W, C] bytes.
        size: Height and width.
        mean: Of each channel, of values from 0 to 1; 0 if None.
        std: The same; 1 if None.

    Raises:
        InputError: If it is no image, or parameters do not fit.
    """
    high, wide = _checked(image, size or (1, 1))
    rows, columns = size or (high, wide)
    scaled = image if (rows, columns) == (high, wide) else _resized(image, (rows, columns))
    return PreparedImage(
        _planes(scaled, mean, std), (columns / wide, rows / high), (0.0, 0.0), (wide, high)
    )


def _checked(image: NDArray[np.uint8], size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of an image that can be prepared."""
    if image.ndim != 3 or image.dtype != np.uint8 or image.shape[2] not in (1, 3) or not image.size:
        shape = "x".join(map(str, image.shape))
        raise InputError(f"an image is [H, W, 1 or 3] bytes, not {image.dtype} {shape}")
    if min(size) < 1:
        raise InputError(f"an input of {size[0]}x{size[1]} pixels has none")
    return image.shape[0], image.shape[1]


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
