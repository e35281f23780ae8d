"""Read text from a picture: PP-OCR's three trained networks, run by Saccade or by ONNX Runtime.

pip install rapidocr-onnxruntime
python examples/ocr/read.py                          # draws a page and reads it
python examples/ocr/read.py --engine onnxruntime     # the same with the package as it is
python examples/ocr/read.py --image photo.jpg --output boxes.png

The networks and everything around them come from the package `rapidocr-onnxruntime`, unmodified;
with Saccade, its `InferenceSession` is the class below.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

import saccade

LINES = (
    "Saccade compiles vision models", "to the machine they run on.", "Invoice 2026-11-24: 1,284.50",
    "Kernels are written in Python", "and emitted as LLVM code.", "Call 0123 456789 before noon",
)  # fmt: skip


class Session:
    """As much of `onnxruntime.InferenceSession` as the package uses."""

    def __init__(self, path: str, **options: object) -> None:
        del options
        self.model = saccade.compile(path)
        # The recogniser's characters are written in its file.
        known = onnx.load(path, load_external_data=False).metadata_props
        self._meta = {entry.key: entry.value for entry in known}

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name=info.name) for info in self.model.inputs]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name=info.name) for info in self.model.outputs]

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_modelmeta(self) -> Any:  # noqa: ANN401 - as ONNX Runtime's
        return SimpleNamespace(custom_metadata_map=self._meta)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, np.ndarray]) -> list[Any]:
        results = self.model.run(dict(feeds))
        return [results[name] for name in names or results]


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
    parser.add_argument("--output", type=Path, help="where the picture goes with its boxes")
    parser.add_argument("--threads", type=int, default=2, help="of ONNX Runtime")
    options = parser.parse_args()

    from rapidocr_onnxruntime import RapidOCR  # noqa: PLC0415 - of the example alone
    from rapidocr_onnxruntime.utils import infer_engine  # noqa: PLC0415

    if options.engine == "saccade":
        infer_engine.InferenceSession = Session
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
