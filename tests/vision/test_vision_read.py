"""Images as people have them: every mode becomes the same bytes, the right way up."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from saccade import vision
from saccade.errors import InputError

RGB = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
GREY = RGB[..., 0]


def saved(image, kind="PNG", **options):
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_every_format_that_keeps_the_bytes(kind, tmp_path):
    path = tmp_path / f"image.{kind.lower()}"
    options = {"lossless": True} if kind == "WEBP" else {}
    path.write_bytes(saved(Image.fromarray(RGB), kind, **options))
    found = vision.read(path)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, RGB)
    np.testing.assert_array_equal(vision.read(path.read_bytes()), RGB)


def test_grey_and_colour_become_one_another():
    grey = vision.read(saved(Image.fromarray(GREY)))
    np.testing.assert_array_equal(grey, np.repeat(GREY[..., None], 3, axis=2))
    one = vision.read(saved(Image.fromarray(RGB)), channels=1)
    assert one.shape == (5, 7, 1)
    np.testing.assert_array_equal(one[..., 0], np.asarray(Image.fromarray(RGB).convert("L")))


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [(1, RGB), (2, RGB[:, ::-1]), (3, RGB[::-1, ::-1]), (4, RGB[::-1]),
     (5, RGB.swapaxes(0, 1)), (6, np.rot90(RGB, -1)), (7, np.rot90(RGB, -1)[:, ::-1][::-1, ::-1]),
     (8, np.rot90(RGB))],
)  # fmt: skip
def test_cameras_say_how_they_were_held(orientation, upright):
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = vision.read(saved(Image.fromarray(RGB), exif=exif))
    if orientation == 7:  # as Pillow's own transposition has it
        upright = np.asarray(Image.fromarray(RGB).transpose(Image.Transpose.TRANSVERSE))
    np.testing.assert_array_equal(found, upright)


def test_sixteen_bits_are_scaled_and_not_cut():
    wide = np.array([[0, 128, 129, 257, 32768, 65407, 65535]], np.uint16)
    found = vision.read(saved(Image.fromarray(wide)), channels=1)
    assert found.ravel().tolist() == [0, 0, 1, 1, 128, 255, 255]


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 0, 0), (10, 200, 30)])
def test_what_is_transparent_lies_on_the_background(background):
    alpha = np.zeros((5, 7, 4), np.uint8)
    alpha[..., :3] = RGB
    alpha[:, 3:, 3] = 255
    found = vision.read(saved(Image.fromarray(alpha)), background=background)
    np.testing.assert_array_equal(found[:, 3:], RGB[:, 3:])
    assert (found[:, :3] == background).all()
    palette = Image.fromarray(np.array([[0, 1]], np.uint8)).convert("P")
    palette.putpalette([9, 9, 9, 50, 60, 70])
    found = vision.read(saved(palette, transparency=0), background=background)
    assert found[0].tolist() == [list(background), [50, 60, 70]]


def test_cmyk_and_animations():
    cmyk = Image.fromarray(RGB).convert("CMYK")
    found = vision.read(saved(cmyk, "TIFF"))
    np.testing.assert_array_equal(found, np.asarray(cmyk.convert("RGB")))
    frames = [Image.new("RGB", (4, 3), colour) for colour in ("#ff0000", "#0000ff")]
    found = vision.read(saved(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert (found == (255, 0, 0)).all()


def test_an_image_however_it_is_given(tmp_path):
    image = Image.fromarray(RGB)
    path = tmp_path / "image.png"
    path.write_bytes(saved(image))
    for given in (path, str(path), path.read_bytes(), BytesIO(path.read_bytes()), image):
        np.testing.assert_array_equal(vision.read(given), RGB)
    assert vision.read(image, channels=1).shape == (5, 7, 1)
    np.testing.assert_array_equal(np.asarray(image), RGB, "the caller's is still open")
    wide = Image.open(BytesIO(b"P5 2 1 65535\n\0\0\x80\0"))
    assert vision.read(wide, channels=1).ravel().tolist() == [0, 128]


def test_bad_files_are_told_in_one_line(tmp_path, monkeypatch):
    whole = saved(Image.fromarray(np.tile(RGB, (40, 40, 1))))
    with pytest.raises(InputError, match=r"missing\.png: there is no such file"):
        vision.read(tmp_path / "missing.png")
    with pytest.raises(InputError, match="the image is not an image that can be read"):
        vision.read(b"nothing")
    with pytest.raises(InputError, match="the image is damaged: "):
        vision.read(whole[: len(whole) // 2])
    for dtype, kind in ((np.float32, "floating-point"), (np.int32, "32-bit")):
        unknown = saved(Image.fromarray(np.full((2, 2), 200, dtype)), "TIFF")
        with pytest.raises(InputError, match=f"^the image has {kind} pixels, whose range is unkn"):
            vision.read(unknown)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        vision.read(tmp_path)
    with pytest.raises(InputError, match="open file or an image of Pillow's, not from a list"):
        vision.read([1])
    with pytest.raises(InputError, match="1 or 3 channels, not 4"):
        vision.read(whole, channels=4)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InputError, match=r"exceeds limit.*or raise PIL\.Image\.MAX_IMAGE_PIXELS"):
        vision.read(whole)
    # Half of what is refused is read, without a warning that would end the process of a test.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 5 * 40 * 7 * 2 // 3)
    assert vision.read(whole).shape == (200, 280, 3)
