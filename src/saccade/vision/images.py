"""Images from files: whatever Pillow reads becomes rows of RGB or grey bytes, the right way up."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from os import PathLike, fspath
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError, printable

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Source", "read"]

Source = str | PathLike[str] | bytes
"""A path, or a file's bytes."""

_MODES = {1: "L", 3: "RGB"}
_WIDE = 65535  # the largest value of 16 bits
WHITE = (255, 255, 255)


def read(
    source: Source, *, channels: int = 3, background: tuple[int, int, int] = WHITE
) -> NDArray[np.uint8]:
    """[H, W, channels] bytes of an image, the right way up, as its camera said (EXIF orientation).

    Of animations the first frame. Sixteen bits are scaled to eight, rounded to the nearest; what is
    transparent lies on the background; CMYK, palettes and others are converted by Pillow.

    Args:
        source: A file of any format that Pillow reads.
        channels: 3 for RGB, 1 for grey.
        background: RGB, of what is transparent.

    Raises:
        InputError: If there is no such file, if it is no image, damaged, or too large for Pillow
            (`PIL.Image.MAX_IMAGE_PIXELS`, twice), or has floating-point pixels.
    """
    import PIL.Image  # noqa: PLC0415 - most of a command needs none
    import PIL.ImageOps  # noqa: PLC0415

    if channels not in _MODES:
        raise InputError(f"an image is read with 1 or 3 channels, not {channels}")
    name = "the image" if isinstance(source, bytes) else printable(fspath(source))
    opened = BytesIO(source) if isinstance(source, bytes) else source
    with _told(name), PIL.Image.open(opened) as image:
        # Before anything is converted: what it says of its orientation is lost then.
        upright = PIL.ImageOps.exif_transpose(image)
        pixels = np.asarray(
            _opaque(_eight_bits(name, upright), background).convert(_MODES[channels])
        )
    return pixels.reshape(*pixels.shape[:2], channels)


class _told:  # noqa: N801 - reads as a statement
    """Pillow's errors as one line of ours."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        import warnings  # noqa: PLC0415

        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        # Half of what is refused is told by a warning only, of which nobody would know the cause.
        warnings.simplefilter("ignore")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

        self._caught.__exit__(None, None, None)
        match error:
            case FileNotFoundError():
                raise InputError(f"{self._name}: there is no such file") from None
            case UnidentifiedImageError():
                raise InputError(f"{self._name} is not an image that can be read") from None
            case Image.DecompressionBombError():
                raise InputError(f"{self._name}: {error}") from None
            case OSError() | SyntaxError() | ValueError() | EOFError():
                raise InputError(f"{self._name} is damaged: {error}") from error
            case _:
                return


def _eight_bits(name: str, image: Image) -> Image:
    """An image of 8 bits: of 16, where Pillow would cut all above 255 to white."""
    import PIL.Image  # noqa: PLC0415

    if image.mode == "F":
        raise InputError(f"{name} has floating-point pixels, whose range is unknown: use .npy")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image, np.int64)
    if values.size and not 0 <= values.min() <= values.max() <= _WIDE:
        raise InputError(f"{name} has pixels outside of 16 bits: use .npy")
    scaled = (values * 255 + _WIDE // 2) // _WIDE
    return PIL.Image.fromarray(scaled.astype(np.uint8))


def _opaque(image: Image, background: tuple[int, int, int]) -> Image:
    """Without transparency, which may be a channel or a colour of a palette."""
    import PIL.Image  # noqa: PLC0415

    if not image.has_transparency_data:
        return image
    shown = image.convert("RGBA")
    below = PIL.Image.new("RGBA", shown.size, (*background, 255))
    composed = cast("Callable[[Image, Image], Image]", PIL.Image.alpha_composite)
    return composed(below, shown).convert("RGB")
