"""Measures the network against bicubic on the photograph that was kept out of its training.

    python examples/upscale/evaluate.py --engine saccade
    python examples/upscale/evaluate.py --image photo_2x.png   # what `saccade run` wrote

Peak signal-to-noise ratio over RGB, after rounding to 8 bits, without a border of 8 pixels. The
exit status is 1 where the network gains less than 1 dB.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HERE = Path(__file__).resolve().parent
BORDER = 8  # pixels left out on every side
REQUIRED_GAIN = 1.0  # dB
DETAIL = (170, 20, 310, 170)  # of the reference, for the comparison: left, top, right, bottom
ENLARGED = 3


def psnr(image: Image.Image, reference: Image.Image) -> float:
    """In dB, of two RGB images of one size; raises ValueError where the sizes differ."""
    if image.size != reference.size:
        raise ValueError(f"the image is {image.size}, the reference {reference.size}")
    inside = (slice(BORDER, -BORDER), slice(BORDER, -BORDER))
    error = np.asarray(image, np.float64)[inside] - np.asarray(reference, np.float64)[inside]
    return 10.0 * math.log10(255.0**2 / np.mean(error**2))


def bicubic(photo: Image.Image) -> Image.Image:
    """Twice the width and height, by Pillow."""
    return photo.resize((2 * photo.width, 2 * photo.height), Image.Resampling.BICUBIC)


def infer(engine: str, model: Path, image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Runs the model file on `image` [1, 3, H, W]; only the engine asked for is imported."""
    if engine == "saccade":
        import saccade  # noqa: PLC0415 - the other engine need not be installed

        return saccade.compile(model)(image)
    import onnxruntime  # noqa: PLC0415

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": image})[0]


def upscale(engine: str, model: Path, photo: Image.Image) -> Image.Image:
    """The network's image, with twice the width and height."""
    image = np.asarray(photo, np.float32).transpose(2, 0, 1)[None] / np.float32(255.0)
    upscaled = infer(engine, model, np.ascontiguousarray(image))[0].transpose(1, 2, 0)
    return Image.fromarray(np.rint(np.clip(upscaled, 0.0, 1.0) * 255.0).astype(np.uint8))


def side_by_side(images: list[Image.Image]) -> Image.Image:
    """The same detail of all images in a row, enlarged without any smoothing."""
    details = [np.asarray(image.crop(DETAIL)) for image in images]
    gap = np.full((details[0].shape[0], 2, 3), 255, np.uint8)
    parts = [part for detail in details for part in (detail, gap)][:-1]
    return Image.fromarray(np.concatenate(parts, axis=1).repeat(ENLARGED, 0).repeat(ENLARGED, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("saccade", "onnxruntime"), default="saccade")
    parser.add_argument("--image", type=Path, help="score this image instead of running")
    parser.add_argument("--model", type=Path, default=HERE / "model.onnx")
    parser.add_argument("--side-by-side", type=Path, help="write the comparison to this file")
    options = parser.parse_args()

    photo = Image.open(HERE / "photo.png").convert("RGB")
    reference = Image.open(HERE / "reference.png").convert("RGB")
    if options.image:
        network = Image.open(options.image).convert("RGB")
    else:
        network = upscale(options.engine, options.model, photo)
    plain = bicubic(photo)
    baseline, reached = psnr(plain, reference), psnr(network, reference)
    gain = reached - baseline
    print(f"bicubic {baseline:.2f} dB, network {reached:.2f} dB, gain {gain:+.2f} dB")
    if options.side_by_side:
        side_by_side([plain, network]).save(options.side_by_side, optimize=True)
    return 0 if gain >= REQUIRED_GAIN else 1


if __name__ == "__main__":
    sys.exit(main())
