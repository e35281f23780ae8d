"""Images of discs, stars and triangles on noise, and the boxes around them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

SIDE = 96  # of an image, in pixels
NAMES = ("nothing", "disc", "star", "triangle")
_OVERSAMPLED = 4  # drawn larger and made smaller, for smooth edges


class Scene(NamedTuple):
    """An image [3, 96, 96] in -2 to 2, boxes [N, 4] by their edges, and their classes [N]."""

    image: Tensor
    boxes: Tensor
    classes: Tensor


def scene(rng: np.random.Generator) -> Scene:
    """One to three shapes that do not touch, each with a colour, size and angle of its own."""
    side = SIDE * _OVERSAMPLED
    ground = rng.integers(60, 196, 3)
    canvas = Image.new("RGB", (side, side), tuple(int(level) for level in ground))
    pen = ImageDraw.Draw(canvas)
    boxes: list[np.ndarray] = []
    classes: list[int] = []
    for _ in range(int(rng.integers(1, 4))):
        radius, kind = rng.uniform(12, 21), int(rng.integers(1, 4))
        outline = _outline(kind, radius, rng.uniform(0, 2 * np.pi))
        outline += rng.uniform(radius, SIDE - radius, 2)
        box = np.concatenate([outline.min(0), outline.max(0)])
        if any((box[:2] < other[2:]).all() and (box[2:] > other[:2]).all() for other in boxes):
            continue
        colour = np.clip(ground + rng.choice([-1, 1], 3) * rng.integers(40, 110, 3), 0, 255)
        points = [tuple(point) for point in (outline * _OVERSAMPLED).tolist()]
        pen.polygon(points, fill=tuple(int(level) for level in colour))
        boxes.append(box)
        classes.append(kind)
    pixels = np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32) / 255
    pixels = pixels + rng.normal(0, 0.06, pixels.shape)
    image = 4 * torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1).contiguous() - 2
    return Scene(image, torch.from_numpy(np.array(boxes, np.float32)), torch.tensor(classes))


def _outline(kind: int, radius: float, angle: float) -> np.ndarray:
    """Points [N, 2] about the middle."""
    corners = (64, 10, 3)[kind - 1]
    around = angle + 2 * np.pi * np.arange(corners) / corners
    from_middle = np.full(corners, radius)
    if NAMES[kind] == "star":
        from_middle[1::2] *= 0.45  # every other corner points inwards
    return from_middle[:, None] * np.stack([np.cos(around), np.sin(around)], 1)


def shown(image: Tensor) -> Image.Image:
    """The image as one that can be saved."""
    pixels = (image.permute(1, 2, 0).clamp(-2, 2).numpy() + 2) * (255 / 4)
    return Image.fromarray(np.rint(pixels).astype(np.uint8))
