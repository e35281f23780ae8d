"""Enlarges an image to twice its size."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import saccade

MODEL = Path(__file__).resolve().parent.parent / "upscale" / "model.onnx"


def load(path: Path) -> saccade.Model:
    return saccade.compile(path, threads=2)


def enlarge(model: saccade.Model, image: np.ndarray) -> np.ndarray:
    return model(image)


def main(source: str, target: str) -> None:
    model = load(MODEL)
    photo = Image.open(source).convert("RGB")
    image = np.asarray(photo, np.float32).transpose(2, 0, 1)[None] / 255
    upscaled = enlarge(model, image)
    pixels = np.rint(np.clip(upscaled[0], 0, 1) * 255).astype(np.uint8)
    Image.fromarray(pixels.transpose(1, 2, 0)).save(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
