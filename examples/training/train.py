"""Trains a small detector with Saccade's operators for PyTorch, in less than a minute.

    pip install 'saccade[examples]'
    python examples/training/train.py --sheet sheet.jpg

Before that, all gradients are held against those of the same network with operators made of
PyTorch's `grid_sample`, in float64. The exit status is 1 where they differ, or where the trained
network misses or invents more than one in six shapes in images that it never saw.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from network import PLAIN, SACCADE, Detector
from PIL import Image, ImageDraw
from shapes import NAMES, SIDE, Scene, scene, shown
from torch import Tensor

import saccade.ops

BATCH = 8  # images of a step
NEAR, FAR = 24, 40  # boxes of an image that are drawn near its shapes, and anywhere
OVERLAP = 0.5  # with a shape, from which on a box is its
GRADIENTS = 1e-9  # relative difference that float64 may round to
REQUIRED = 5 / 6  # of the shapes found, and of what is found a shape
SCORE = 0.6  # least of a detection
COLOURS = ("white", "#ff5050", "#40e070", "#50a0ff")


class Found(NamedTuple):
    """Boxes [N, 4], classes [N] and scores [N] in one image."""

    boxes: Tensor
    classes: Tensor
    scores: Tensor


def iou(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union [N, M] of boxes [N, 4] and [M, 4]."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (first, second)]
    return shared / (areas[0][:, None] + areas[1][None] - shared)


def proposals(truth: Tensor, generator: torch.Generator) -> Tensor:
    """Boxes [24, 4] inside the image: shaken ones of the shapes, and others."""
    chosen = truth[torch.randint(len(truth), (NEAR,), generator=generator)]
    size = chosen[:, 2:] - chosen[:, :2]
    shaken = (torch.rand(NEAR, 4, generator=generator) - 0.5) * 0.4 * size.repeat(1, 2)
    middle = torch.rand(FAR, 2, generator=generator) * SIDE
    half = 9 + torch.rand(FAR, 1, generator=generator) * 13
    boxes = torch.cat([chosen + shaken, torch.cat([middle - half, middle + half], 1)])
    return boxes.clamp(0, SIDE)


def grid() -> Tensor:
    """The boxes that are looked at in an image that nobody knows: three sizes, every 6 pixels."""
    places = torch.arange(6.0, SIDE, 6)
    y, x, half = torch.meshgrid(places, places, torch.tensor([11.0, 15, 20]), indexing="ij")
    return torch.stack([x - half, y - half, x + half, y + half], -1).view(-1, 4).clamp(0, SIDE)


def numbered(boxes: list[Tensor]) -> Tensor:
    """Boxes of several images as [R, 5], the image's number first."""
    each = [F.pad(one, (1, 0), value=float(number)) for number, one in enumerate(boxes)]
    return torch.cat(each)


def corrections(boxes: Tensor, truth: Tensor) -> Tensor:
    """What moves boxes [N, 4] to the true ones, in widths and heights of theirs."""
    size = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    return (truth - boxes) / size


def loss_of(network: Detector, scenes: list[Scene], boxes: list[Tensor]) -> Tensor:
    """Cross entropy of the classes, and the smooth L1 distance of the corrections."""
    classes, wanted = [], []
    for one, each in zip(scenes, boxes, strict=True):
        overlap, nearest = iou(each, one.boxes.to(each.dtype)).max(1)
        classes.append(torch.where(overlap >= OVERLAP, one.classes[nearest], 0))
        wanted.append(corrections(each, one.boxes.to(each.dtype)[nearest]))
    label = torch.cat(classes)
    images = torch.stack([one.image for one in scenes]).to(boxes[0].dtype)
    scores, moves = network(images, numbered(boxes))
    shape = label > 0
    distance = F.smooth_l1_loss(moves[shape], torch.cat(wanted)[shape], beta=0.1)
    return F.cross_entropy(scores, label) + distance


def gradient_difference(scenes: list[Scene], generator: torch.Generator) -> float:
    """Greatest relative difference of any parameter's gradient, Saccade's and `grid_sample`'s."""
    boxes = [proposals(one.boxes, generator).double() for one in scenes]
    gradients = []
    for operators in (SACCADE, PLAIN):
        torch.manual_seed(1)
        network = Detector(operators).double()
        torch.nn.init.normal_(network.offset.weight, std=0.1)  # offsets of several pixels
        loss_of(network, scenes, boxes).backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    return max(float((a - b).norm() / b.norm()) for a, b in zip(*gradients, strict=True))


def train(network: Detector, steps: int, seed: int) -> list[float]:
    """The losses of all steps; each sees new images."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    losses = []
    for _ in range(steps):
        scenes = [scene(rng) for _ in range(BATCH)]
        boxes = [proposals(one.boxes, generator) for one in scenes]
        loss = loss_of(network, scenes, boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


@torch.inference_mode()
def detect(network: Detector, image: Tensor) -> Found:
    """Shapes in an image: the best box of each, by class."""
    boxes = grid()
    scores, moves = network(image[None], numbered([boxes]))
    best, classes = scores.softmax(1)[:, 1:].max(1)
    boxes = (boxes + moves * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)).clamp(0, SIDE)
    kept = (best >= SCORE).nonzero()[:, 0]
    kept = kept[saccade.ops.nms(boxes[kept], best[kept], 0.3)]
    return Found(boxes[kept], classes[kept] + 1, best[kept])


def counted(network: Detector, scenes: list[Scene]) -> tuple[float, float]:
    """Which part of the shapes is found, and which part of what is found is one."""
    right = found = there = 0
    for one in scenes:
        seen = detect(network, one.image)
        fits = (iou(seen.boxes, one.boxes) >= OVERLAP) & (seen.classes[:, None] == one.classes)
        right += int(fits.any(0).sum())
        found, there = found + len(seen.boxes), there + len(one.boxes)
    return right / there, right / max(1, found)


def sheet(losses: list[float], network: Detector, scenes: list[Scene]) -> Image.Image:
    """The loss of each step, and what the trained network finds in images that it never saw."""
    scale, width, height = 2, 2 * SIDE * 4, 200
    whole = Image.new("RGB", (width, height + 2 * SIDE * scale), "white")
    pen = ImageDraw.Draw(whole)
    smooth = np.convolve(losses, np.ones(10) / 10, "valid")
    for values, colour, thick in ((losses, "#b8cbe4", 1), (smooth, "#1f4e8c", 2)):
        x = np.linspace(34, width - 10, len(values))
        y = height - 22 - (height - 40) * np.asarray(values) / max(losses)
        pen.line(list(zip(x.tolist(), y.tolist(), strict=True)), fill=colour, width=thick)
    pen.line((34, 10, 34, height - 22, width - 10, height - 22), fill="black")
    pen.text((2, 12), f"{max(losses):.1f}", fill="black")
    pen.text((38, 8), "loss", fill="black")
    pen.text((width - 80, height - 18), f"{len(losses)} steps", fill="black")
    for place, one in enumerate(scenes):
        image = shown(one.image).resize((SIDE * scale, SIDE * scale), Image.Resampling.NEAREST)
        boxes = ImageDraw.Draw(image)
        found = detect(network, one.image)
        for box, kind, score in zip(*(part.tolist() for part in found), strict=True):
            left, top, right, bottom = (scale * edge for edge in box)
            boxes.rectangle((left, top, right, bottom), outline=COLOURS[kind], width=2)
            text = f"{NAMES[kind]} {score:.2f}"
            above = max(0, top - 14)
            boxes.rectangle((left, above, left + 6 * len(text) + 4, above + 14), fill="#202020")
            boxes.text((left + 3, above + 2), text, COLOURS[kind])
        whole.paste(image, (place % 4 * SIDE * scale, height + place // 4 * SIDE * scale))
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sheet", type=Path, help="write the losses and some detections here")
    parser.add_argument("--threads", type=int, default=1, help="one is enough for so small a net")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    rng = np.random.default_rng(options.seed + 1000)  # images that training does not see
    unseen = [scene(rng) for _ in range(100)]
    generator = torch.Generator().manual_seed(options.seed)
    difference = gradient_difference(unseen[:2], generator)
    print(f"gradients beside grid_sample's, float64: within {difference:.1e}")

    torch.manual_seed(options.seed)
    network = Detector(SACCADE)
    start = time.perf_counter()
    losses = train(network, options.steps, options.seed)
    seconds = time.perf_counter() - start
    first, last = (float(np.mean(part)) for part in (losses[:10], losses[-10:]))
    print(f"loss {first:.2f} to {last:.2f} in {options.steps} steps, {seconds:.0f} s")
    recall, precision = counted(network, unseen)
    print(f"unseen images: {recall:.0%} of the shapes found, {precision:.0%} of the boxes right")
    if options.sheet:
        sheet(losses, network, unseen[:8]).save(options.sheet, quality=85, optimize=True)
    return 0 if difference <= GRADIENTS and min(recall, precision) >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
