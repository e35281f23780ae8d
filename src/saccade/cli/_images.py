"""Images to tensors and back.

In: bytes of RGB (or grey, for a model with one channel) become floats of 0 to 1, `byte / 255`, in
[1, C, H, W] or, for a model that has channels last, [1, H, W, C]; or what `saccade.vision.prepare`
makes of them. Out: floats are clipped to [0, 1], scaled by 255 and rounded to the nearest byte,
halves to even. An image survives the way there and back unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.cli._types import TensorInfoLike
from saccade.errors import InputError
from saccade.files import whole_file

__all__ = ["WRITTEN_SUFFIXES", "Preparation", "read_image", "reads_image", "write_image"]

WRITTEN_SUFFIXES = (".png", ".jpg", ".jpeg")
_CHANNELS = (1, 3)


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done with images before the model: see `saccade.vision.prepare`."""

    kind: str = "none"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def reads_image(path: Path) -> bool:
    """Whether Pillow reads files of this suffix."""
    from PIL import Image  # noqa: PLC0415 - only images need it

    kind = Image.registered_extensions().get(path.suffix.lower())
    return kind in Image.OPEN


def read_image(
    path: Path,
    info: TensorInfoLike,
    preparation: Preparation | None = None,
    shape: tuple[int, ...] | None = None,
) -> NDArray[Any]:
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

    preparation = preparation or Preparation()
    axes = tuple(shape or info.shape)
    channel = _channel_axis(axes)
    if channel is None:
        text = "x".join(map(str, info.shape))
        raise InputError(f"{path}: input {info.name!r} ({text}) is not an image of 1 or 3 channels")
    channels = axes[channel]
    image = vision.read(path, channels=channels if isinstance(channels, int) else 3)
    high, wide = (axes[-2], axes[-1]) if channel == len(axes) - 3 else (axes[-3], axes[-2])
    known = isinstance(high, int) and isinstance(wide, int) and preparation.kind != "none"
    size = (int(high), int(wide)) if known else None
    values = vision.prepare(
        image, preparation.kind, size, mean=preparation.mean, std=preparation.std
    ).values
    if info.dtype == "uint8":
        if preparation.mean is not None or preparation.std is not None:
            raise InputError(f"{path}: input {info.name!r} takes bytes, which have no mean or std")
        values = np.rint(values * 255).astype(np.uint8)
    if channel == len(axes) - 1:
        values = values.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(values[0] if len(axes) == 3 else values)


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
    from PIL import Image  # noqa: PLC0415

    planes = output[0] if output.ndim == 4 and output.shape[0] == 1 else output
    if planes.ndim != 3 or planes.shape[0] not in _CHANNELS:
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
