"""Images to tensors and back.

In: RGB (or grey, for a model with one channel) bytes become [1, C, H, W] floats of 0 to 1,
`byte / 255`. Out: floats are clipped to [0, 1], scaled by 255 and rounded to the nearest byte,
halves to even. An image survives the way there and back unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.cli._types import TensorInfoLike
from saccade.errors import InputError
from saccade.files import whole_file

__all__ = ["IMAGE_SUFFIXES", "read_image", "write_image"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = {1: "L", 3: "RGB"}


def read_image(path: Path, info: TensorInfoLike) -> NDArray[Any]:
    """The image as the input `info` takes it: its dtype, [1, C, H, W] or, for rank 3, [C, H, W].

    Raises:
        InputError: Not an image, or the input does not take images.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - only images need it

    rank = len(info.shape)
    channels = info.shape[-3] if rank in (3, 4) else None
    mode = "RGB" if isinstance(channels, str) else _MODES.get(channels or 0)
    if mode is None:
        shape = "x".join(map(str, info.shape))
        raise InputError(
            f"{path}: input {info.name!r} ({shape}) is not an image of 1 or 3 channels"
        )
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert(mode))
    except UnidentifiedImageError:
        raise InputError(f"{path} is not an image that can be read") from None
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    values = planes if info.dtype == "uint8" else planes.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(values if rank == 3 else values[None])


def write_image(path: Path, name: str, output: NDArray[Any]) -> None:
    """Save [1, C, H, W] or [C, H, W] with one or three channels as an image.

    Raises:
        InputError: The output has another shape, or holds NaN.
    """
    from PIL import Image  # noqa: PLC0415

    planes = output[0] if output.ndim == 4 and output.shape[0] == 1 else output
    if planes.ndim != 3 or planes.shape[0] not in _MODES:
        raise InputError(f"output {name!r} of shape {output.shape} is not one image; use .npy")
    if np.isnan(planes).any():
        raise InputError(f"output {name!r} holds NaN and makes no image; use .npy")
    values = planes if planes.dtype == np.uint8 else _to_bytes(planes)
    pixels = values[0] if values.shape[0] == 1 else values.transpose(1, 2, 0)
    # The stream is a file of another name until it is whole.
    kind = Image.registered_extensions()[path.suffix.lower()]
    with whole_file(path) as stream:
        Image.fromarray(np.ascontiguousarray(pixels)).save(stream, kind)


def _to_bytes(planes: NDArray[Any]) -> NDArray[np.uint8]:
    scaled = np.clip(planes.astype(np.float32), 0.0, 1.0) * np.float32(255)
    rounded: NDArray[np.uint8] = np.rint(scaled).astype(np.uint8)
    return rounded
