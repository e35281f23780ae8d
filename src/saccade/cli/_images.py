"""Images to tensors and back.

In: bytes of RGB (or grey, for a model with one channel) become floats of 0 to 1, `byte / 255`, in
[1, C, H, W] or, for a model that has channels last, [1, H, W, C]; or what `saccade.vision.prepare`
makes of them. Out: floats are clipped to [0, 1], scaled by 255 and rounded to the nearest byte,
halves to even. An image survives the way there and back unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.cli._types import TensorInfoLike
from saccade.errors import InputError
from saccade.files import whole_file
from saccade.signature import shape_text

if TYPE_CHECKING:
    from PIL.Image import Image

    from saccade.vision import PreparedImage

__all__ = [
    "VIDEO_SUFFIXES", "WRITTEN_SUFFIXES", "ImageInput", "Preparation", "as_input", "channels_of",
    "read_image", "reads_image", "write_image", "write_pixels",
]  # fmt: skip

WRITTEN_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
VIDEO_SUFFIXES = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".wmv", ".ts",
)  # fmt: skip
_CHANNELS = (1, 3)


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done with images before the model: see `saccade.vision.prepare`."""

    kind: str = "none"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ImageInput:
    """An image, and what a model gets of it.

    Attributes:
        pixels: [H, W, C] bytes.
        prepared: Where it lies in the input.
        values: The input.
    """

    pixels: NDArray[np.uint8]
    prepared: PreparedImage
    values: NDArray[Any]


def reads_image(path: Path) -> bool:
    """Whether Pillow reads files of this suffix, or this file, which has none."""
    from PIL import Image  # noqa: PLC0415 - only images need it

    suffix = path.suffix.lower()
    if not suffix:
        try:
            Image.open(path).close()
        except (OSError, ValueError):  # nothing that it knows
            return False
        return True
    # Pillow knows some videos, too, but cannot decode them.
    return suffix not in VIDEO_SUFFIXES and Image.registered_extensions().get(suffix) in Image.OPEN


def read_image(
    path: Path,
    info: TensorInfoLike,
    preparation: Preparation | None = None,
    shape: tuple[int, ...] | None = None,
) -> ImageInput:
    """The image as the input `info` takes it: its dtype, its rank, channels where they are there.

    Args:
        path: Of any format that Pillow reads.
        info: The input.
        preparation: What is done with it; nothing if None.
        shape: Of the input, if the user said one.

    Raises:
        InputError: Not an image, or the input does not take images.
    """
    from saccade import vision  # noqa: PLC0415

    pixels = vision.read(path, channels=channels_of(str(path), info, shape))
    return as_input(str(path), pixels, info, preparation, shape)


def channels_of(name: str, info: TensorInfoLike, shape: tuple[int, ...] | None = None) -> int:
    """How many channels images have for an input: 1 or 3.

    Args:
        name: Of the image, for messages.
        info: The input.
        shape: Of the input, if the user said one.

    Raises:
        InputError: If it takes no images.
    """
    axes = tuple(shape or info.shape)
    channel = _channel_axis(axes)
    if channel is None:
        text = shape_text(info.shape)
        raise InputError(f"{name}: input {info.name!r} ({text}) is not an image of 1 or 3 channels")
    channels = axes[channel]
    return channels if isinstance(channels, int) else 3


def as_input(
    name: str,
    pixels: NDArray[np.uint8],
    info: TensorInfoLike,
    preparation: Preparation | None = None,
    shape: tuple[int, ...] | None = None,
) -> ImageInput:
    """Pixels [H, W, C] as the input `info` takes them; see `read_image`.

    Raises:
        InputError: The input takes bytes, and these are to have a mean.
    """
    from saccade import vision  # noqa: PLC0415

    preparation = preparation or Preparation()
    axes = tuple(shape or info.shape)
    last = _channel_axis(axes) == len(axes) - 1
    high, wide = (axes[-3], axes[-2]) if last else (axes[-2], axes[-1])
    known = isinstance(high, int) and isinstance(wide, int) and preparation.kind != "none"
    size = (int(high), int(wide)) if known else None
    prepared = vision.prepare(
        pixels, preparation.kind, size, mean=preparation.mean, std=preparation.std
    )
    values: NDArray[Any] = prepared.values
    if info.dtype == "uint8":
        if preparation.mean is not None or preparation.std is not None:
            raise InputError(f"{name}: input {info.name!r} takes bytes, which have no mean or std")
        values = np.rint(values * 255).astype(np.uint8)
    if last:
        values = values.transpose(0, 2, 3, 1)
    values = np.ascontiguousarray(values[0] if len(axes) == 3 else values)
    return ImageInput(pixels, prepared, values)


def _channel_axis(axes: tuple[int | str, ...]) -> int | None:
    """Where channels are: third from the end, or last; a free axis may be three of them."""
    rank = len(axes)
    if rank not in (3, 4):
        return None
    if axes[-3] in _CHANNELS:
        return rank - 3
    if axes[-1] in _CHANNELS:
        return rank - 1
    return rank - 3 if isinstance(axes[-3], str) else None


def write_image(path: Path, name: str, output: NDArray[Any]) -> None:
    """Save [1, C, H, W] or [C, H, W] with one or three channels as an image.

    Raises:
        InputError: The output has another shape, or holds NaN.
    """
    from saccade.vision.tiles import as_bytes  # noqa: PLC0415

    write_pixels(path, as_bytes(name, output))


def write_pixels(path: Path, pixels: NDArray[np.uint8] | Image) -> None:
    """Save [H, W, 1 or 3] bytes, or an image of Pillow's, whole or not at all."""
    import PIL.Image  # noqa: PLC0415

    # The stream is a file of another name until it is whole.
    kind = PIL.Image.registered_extensions()[path.suffix.lower()]
    if isinstance(pixels, np.ndarray):
        flat = pixels[..., 0] if pixels.shape[2] == 1 else pixels
        pixels = PIL.Image.fromarray(np.ascontiguousarray(flat))
    with whole_file(path) as stream:
        pixels.save(stream, kind)
