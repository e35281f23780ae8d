"""Images from files: whatever Pillow reads becomes rows of RGB or grey bytes, the right way up."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from os import PathLike, fspath
from typing import IO, TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from saccade.errors import InputError, printable

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageLike", "Source", "pixels_of", "read"]

Source: TypeAlias = "str | PathLike[str] | bytes | IO[bytes] | Image"
"""A path, a file's bytes, an open file, or an image of Pillow's."""
ImageLike: TypeAlias = "NDArray[np.uint8] | Source"
"""[H, W, 1 or 3] bytes, or what `read` takes."""

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
        source: A file of any format that Pillow reads, or an image of Pillow's.
        channels: 3 for RGB, 1 for grey.
        background: RGB, of what is transparent.

    Raises:
        InputError: If there is no such file, if it is no image, damaged, or too large for Pillow
            (`PIL.Image.MAX_IMAGE_PIXELS`, twice), or has pixels whose range is unknown:
            floating-point ones, and integers of 32 bits.
    """
    import PIL.Image  # noqa: PLC0415 - most of a command needs none

    if channels not in _MODES:
        raise InputError(f"an image is read with 1 or 3 channels, not {channels}")
    name = printable(fspath(source)) if isinstance(source, str | PathLike) else "the image"
    with _told(name):
        if isinstance(source, PIL.Image.Image):
            return _pixels(name, source, channels, background)
        if not isinstance(source, str | PathLike | bytes) and not hasattr(source, "read"):
            raise InputError(
                "an image is read from a path, bytes, an open file or an image of Pillow's, not "
                f"from a {type(source).__name__}"
            )
        with PIL.Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
            return _pixels(name, image, channels, background)


def pixels_of(image: ImageLike) -> NDArray[np.uint8]:
    """[H, W, 1 or 3] bytes of an image, however it is given.

    Raises:
        InputError: If it is none.
    """
    if not isinstance(image, np.ndarray):
        return read(image)
    shaped = image.ndim == 3 and image.shape[2] in _MODES and image.dtype == np.uint8
    if not shaped or not image.size:
        shape = "x".join(map(str, image.shape))
        raise InputError(f"an image is [H, W, 1 or 3] bytes, not {image.dtype} {shape}")
    return image


def _pixels(
    name: str, image: Image, channels: int, background: tuple[int, int, int]
) -> NDArray[np.uint8]:
    import PIL.ImageOps  # noqa: PLC0415

    # Of integers of 32 bits only PNM's are scaled: its files say what white is.
    if image.mode == "F" or (image.mode == "I" and image.format != "PPM"):
        kind = "floating-point" if image.mode == "F" else "32-bit"
        raise InputError(
            f"{name} has {kind} pixels, whose range is unknown: save it with 8 or 16 bits, or use "
            ".npy"
        )
    # Before anything is converted: what it says of its orientation is lost then.
    upright = PIL.ImageOps.exif_transpose(image)
    pixels = np.asarray(_opaque(_eight_bits(upright), background).convert(_MODES[channels]))
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
            case InputError():  # our own, which is a ValueError, too
                return
            case FileNotFoundError():
                raise InputError(f"{self._name}: there is no such file") from None
            case UnidentifiedImageError():
                raise InputError(f"{self._name} is not an image that can be read") from None
            case Image.DecompressionBombError():
                raise InputError(
                    f"{self._name}: {error}: scale it, give its pixels as .npy, or raise "
                    "PIL.Image.MAX_IMAGE_PIXELS where you trust it"
                ) from None
            case OSError(errno=int()):  # the system's, and not Pillow's
                raise InputError(f"{self._name} cannot be read: {error.strerror}") from None
            case OSError() | SyntaxError() | ValueError() | EOFError():
                raise InputError(f"{self._name} is damaged: {error}") from error
            case _:
                return


def _eight_bits(image: Image) -> Image:
    """An image of 8 bits: of 16, where Pillow would cut all above 255 to white."""
    import PIL.Image  # noqa: PLC0415

    if not image.mode.startswith("I"):
        return image
    scaled = (np.asarray(image, np.int64) * 255 + _WIDE // 2) // _WIDE
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
