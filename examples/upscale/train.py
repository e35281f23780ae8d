"""Trains the 2x sub-pixel network on scikit-image's photographs and writes `model.onnx`.

    pip install "saccade[examples]"
    python examples/upscale/train.py --minutes 40

One thread, one process, no state but the seed: the crops come in the same order every time. How
many of them fit into the minutes depends on the machine; `--steps` makes a run repeatable.
`photo.png` and `reference.png`, the photograph kept out, are written too, for `evaluate.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import torch
from export import SCALE, SLOPE, export
from onnx.reference import ReferenceEvaluator
from photographs import HELD_OUT, Crops, even, halve, load
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
WARM_UP = 0.02  # part of the run in which the learning rate rises
AVERAGED = 0.999  # highest weight of the past in the moving average of the weights
REPORT_EVERY = 200  # steps


class Block(nn.Module):
    """Two 3x3 convolutions around a LeakyReLU, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.normal_(self.second.weight, std=0.01)  # starts near the identity
        nn.init.zeros_(self.second.bias)

    def forward(self, features: Tensor) -> Tensor:
        inner = functional.leaky_relu(self.first(features), SLOPE)
        return self.second(inner) + features


class Upscaler(nn.Module):
    """Image [N, 3, H, W] to [N, 3, 2H, 2W], both in [0, 1]: learns what nearest-neighbour lacks."""

    def __init__(self, channels: int, blocks: int, fine_channels: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.fuse = nn.Conv2d(channels, channels, 3, padding=1)
        self.expand = nn.Conv2d(channels, fine_channels * SCALE**2, 3, padding=1)
        self.tail = nn.Conv2d(fine_channels, 3, 3, padding=1)
        nn.init.normal_(self.tail.weight, std=0.001)
        nn.init.zeros_(self.tail.bias)
        # 1x1 and pixel shuffle repeat every pixel 2x2 times, right up to the border of the image;
        # a bicubic start would need neighbours there that a zero padding does not have.
        self.skip = nn.Conv2d(3, 3 * SCALE**2, 1)
        with torch.no_grad():
            self.skip.weight.copy_(torch.eye(3).repeat_interleave(SCALE**2, 0)[:, :, None, None])
            self.skip.bias.zero_()

    def forward(self, image: Tensor) -> Tensor:
        head = self.head(image)
        features = self.fuse(self.body(head)) + head
        fine = functional.pixel_shuffle(self.expand(features), SCALE)
        detail = self.tail(functional.leaky_relu(fine, SLOPE))
        return detail + functional.pixel_shuffle(self.skip(image), SCALE)


@dataclass
class Budget:
    """How much of the run is over: by steps where they are given, by the clock otherwise."""

    minutes: float
    steps: int | None
    started: float = field(default_factory=time.monotonic)

    def spent(self, step: int) -> float:
        """The part in [0, 1] that is over when `step` steps are done."""
        if self.steps is not None:
            return min(step / self.steps, 1.0)
        return min((time.monotonic() - self.started) / (60.0 * self.minutes), 1.0)


def learning_rate(peak: float, spent: float) -> float:
    """A short linear rise, then a cosine down to zero at the end of the run."""
    if spent < WARM_UP:
        return peak * max(spent / WARM_UP, 0.01)
    return 0.5 * peak * (1.0 + math.cos(math.pi * (spent - WARM_UP) / (1.0 - WARM_UP)))


def moving_average(average: Tensor, current: Tensor, count: Tensor | int) -> Tensor:
    """Follows the first steps closely, so that the untrained weights are soon forgotten."""
    past = min(AVERAGED, (1.0 + float(count)) / (10.0 + float(count)))
    return average.lerp(current, 1.0 - past)


def train(network: Upscaler, crops: Crops, batch: int, peak: float, budget: Budget) -> nn.Module:
    """Minimises the mean absolute error; returns the moving average of the network."""
    averaged = torch.optim.swa_utils.AveragedModel(network, avg_fn=moving_average)
    optimizer = torch.optim.Adam(network.parameters(), lr=peak)
    step, total = 0, 0.0
    while (spent := budget.spent(step)) < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(peak, spent)
        small, large = (torch.from_numpy(array) for array in crops.batch(batch))
        loss = functional.l1_loss(network(small), large)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        averaged.update_parameters(network)
        step, total = step + 1, total + loss.item()
        if step % REPORT_EVERY == 0:
            print(f"{spent:6.1%}  step {step}  loss {total / REPORT_EVERY:.5f}", flush=True)
            total = 0.0
    print(f"{step} steps in {(time.monotonic() - budget.started) / 60:.1f} minutes")
    return averaged.module


def check_export(network: nn.Module, path: Path) -> None:
    """Raises if the file at `path` does not compute what `network` does."""
    image = torch.rand(2, 3, 11, 14, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = network(image).numpy()
    (given,) = ReferenceEvaluator(onnx.load(path)).run(None, {"image": image.numpy()})
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=40.0, help="length of the run")
    parser.add_argument("--steps", type=int, help="length in steps instead, to repeat a run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--fine-channels", type=int, default=16, help="after the pixel shuffle")
    parser.add_argument("--side", type=int, default=48, help="of a crop, in small pixels")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--peak", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--output", type=Path, default=HERE / "model.onnx")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    network = Upscaler(options.channels, options.blocks, options.fine_channels)
    print(f"{sum(p.numel() for p in network.parameters())} parameters")
    crops = Crops(options.side, options.seed)
    budget = Budget(options.minutes, options.steps)
    trained = train(network, crops, options.batch, options.peak, budget)
    export({name: value.numpy() for name, value in trained.state_dict().items()}, options.output)
    check_export(trained, options.output)

    reference = even(load(HELD_OUT))
    reference.save(HERE / "reference.png", optimize=True)
    halve(reference).save(HERE / "photo.png", optimize=True)


if __name__ == "__main__":
    main()
