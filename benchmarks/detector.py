"""What share of a detector's time its operators take, on torchvision's kernels and on Saccade's.

    python -m benchmarks.detector [--json FILE] [--threads N] [--rounds N]

Torchvision's Faster R-CNN (ResNet-50 FPN, random weights) finds objects in an image of 800 x 1088
pixels in channels-last memory format. Rounds alternate between the kernels; PyTorch's profiler
tells what time each of `torchvision::…` takes, whatever it calls inside.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from saccade.ops import patch_torchvision

OPERATORS = ("nms", "roi_align")
SIDES = ("torchvision", "saccade")


def detector() -> torch.nn.Module:
    """The model. Fresh weights give scores near each other: a thousand boxes go all the way."""
    from torchvision.models.detection import (  # noqa: PLC0415 - not installed everywhere
        fasterrcnn_resnet50_fpn,
    )

    torch.manual_seed(0)
    model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval()
    return model.to(memory_format=torch.channels_last)


def image() -> torch.Tensor:
    """[3, 800, 1088], its channels beside each other."""
    torch.manual_seed(1)
    return torch.rand(800, 1088, 3).permute(2, 0, 1)


def turn(model: torch.nn.Module, images: list[torch.Tensor]) -> dict[str, float]:
    """Milliseconds of one run: in all, and in each operator."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        start = time.perf_counter()
        model(images)
        whole = time.perf_counter() - start
    spent = {"all": 1e3 * whole}
    for row in profile.key_averages():
        space, _, name = row.key.partition("::")
        if space == "torchvision" and name in OPERATORS:
            spent[name] = row.cpu_time_total / 1e3
    return spent


def measure(rounds: int) -> dict[str, list[dict[str, float]]]:
    """Turns of both sides, the sides alternating."""
    model, images = detector(), [image()]
    turns: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with torch.inference_mode():
        for i in range(rounds + 1):
            for side in SIDES:
                patch = patch_torchvision() if side == "saccade" else None
                spent = turn(model, images)
                if patch is not None:
                    patch.undo()
                if i:  # the first one compiles
                    turns[side].append(spent)
    return turns


def summary(turns: list[dict[str, float]]) -> dict[str, Any]:
    """Medians in milliseconds, and the operators' share of the time."""
    medians = {name: statistics.median(t[name] for t in turns) for name in turns[0]}
    share = statistics.median(sum(t[name] for name in OPERATORS) / t["all"] for t in turns)
    return {"median_ms": medians, "share": share, "rounds_ms": [t["all"] for t in turns]}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to record it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sides = {side: summary(turns) for side, turns in measure(given.rounds).items()}
    for side, found in sides.items():
        times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in found["median_ms"].items())
        print(f"{side:12} {times}; operators {found['share']:.2%}")
    if given.json:
        given.json.write_text(json.dumps({**about(given.threads), "sides": sides}, indent=2) + "\n")


def about(threads: int) -> dict[str, Any]:
    """What was measured on what."""
    import torchvision  # noqa: PLC0415 - not installed everywhere

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        "case": "fasterrcnn_resnet50_fpn, 1x3x800x1088, channels-last, float32",
        "commit": commit,
        "threads": threads,
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


if __name__ == "__main__":
    main()
