"""Read text from an image: PP-OCR's three trained networks, run by Saccade or by ONNX Runtime.

pip install rapidocr-onnxruntime
python examples/ocr/read.py                          # draws a page and reads it
python examples/ocr/read.py --engine onnxruntime     # the same with the package as it is
python examples/ocr/read.py --image photo.jpg --output boxes.png

The networks and everything around them come from the package `rapidocr-onnxruntime`, unmodified;
with Saccade, what it imports as `onnxruntime` is `saccade.onnxruntime`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import saccade.onnxruntime

LINES = (
    "Saccade compiles vision models", "to the machine they run on.", "Invoice 2026-11-24: 1,284.50",
    "Kernels are written in Python", "and emitted as LLVM code.", "Call 0123 456789 before noon",
)  # fmt: skip


def page() -> Image.Image:
    """Lines of text, each a little larger than the one before."""
    image = Image.new("RGB", (640, 400), "white")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(LINES):
        font = ImageFont.load_default(20 + 2 * number)
        draw.text((30, 20 + 60 * number), line, "black", font)
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("saccade", "onnxruntime"), default="saccade")
    parser.add_argument("--image", type=Path, help="a page is drawn unless given")
    parser.add_argument("--output", type=Path, help="where the image goes with its boxes")
    parser.add_argument("--threads", type=int, default=2, help="of either engine")
    options = parser.parse_args()

    if options.engine == "saccade":
        # In a script of one's own: `import saccade.onnxruntime as onnxruntime`.
        sys.modules["onnxruntime"] = saccade.onnxruntime
    from rapidocr_onnxruntime import RapidOCR  # noqa: PLC0415 - of the example alone

    reader = RapidOCR(intra_op_num_threads=options.threads)
    image = Image.open(options.image).convert("RGB") if options.image else page()
    pixels = np.asarray(image)[:, :, ::-1].copy()  # the package wants blue first
    found, _ = reader(pixels)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        found, _ = reader(pixels)
        times.append(time.perf_counter() - start)
    draw = ImageDraw.Draw(image)
    for box, text, score in found or ():
        print(f"{float(score):.4f}  {text}")
        draw.polygon([tuple(map(float, corner)) for corner in box], outline="red", width=2)
    print(f"{options.engine}: {1000 * sorted(times)[2]:.1f} ms, all three networks and around them")
    if options.output:
        image.save(options.output)


if __name__ == "__main__":
    main()
