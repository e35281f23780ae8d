"""Enlarges an image to twice its size."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from saccade import onnxruntime

MODEL = Path(__file__).resolve().parent.parent / "upscale" / "model.onnx"


def load(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def enlarge(session: onnxruntime.InferenceSession, image: np.ndarray) -> np.ndarray:
    name = session.get_inputs()[0].name
    return session.run(["upscaled"], {name: image})[0]


def main(source: str, target: str) -> None:
    session = load(MODEL)
    photo = Image.open(source).convert("RGB")
    image = np.asarray(photo, np.float32).transpose(2, 0, 1)[None] / 255
    upscaled = enlarge(session, image)
    pixels = np.rint(np.clip(upscaled[0], 0, 1) * 255).astype(np.uint8)
    Image.fromarray(pixels.transpose(1, 2, 0)).save(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
