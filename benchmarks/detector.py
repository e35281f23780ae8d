"""What share of a detector's time its operators take, on torchvision's kernels and on Saccade's.

    python -m benchmarks.detector [--json FILE] [--threads N] [--rounds N] [--device cuda]

Torchvision's Faster R-CNN (ResNet-50 FPN, random weights) finds objects in an image of 800 x 1088
pixels in channels-last memory format; on a GPU in float16 and one of 800 x 1333. Rounds alternate
between the kernels; PyTorch's profiler tells what time each of `torchvision::…` takes, whatever it
calls inside: on a GPU its kernels' time, whose share is that of all kernels' time.
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
CASES = {
    "cpu": "1x3x800x1088, channels-last, float32",
    "cuda": "1x3x800x1333, channels-last, float16",
}


def detector(device: str) -> torch.nn.Module:
    """The model. Fresh weights give scores near each other: a thousand boxes go all the way."""
    from torchvision.models.detection import (  # noqa: PLC0415 - not installed everywhere
        fasterrcnn_resnet50_fpn,
    )

    torch.manual_seed(0)
    model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval()
    dtype = torch.float16 if device == "cuda" else torch.float32
    return model.to(device=device, dtype=dtype, memory_format=torch.channels_last)


def image(device: str) -> torch.Tensor:
    """[3, 800, 1088] or [3, 800, 1333], its channels beside each other."""
    torch.manual_seed(1)
    if device == "cuda":
        return torch.rand(800, 1333, 3, device=device).half().permute(2, 0, 1)
    return torch.rand(800, 1088, 3).permute(2, 0, 1)


def turn(model: torch.nn.Module, images: list[torch.Tensor]) -> dict[str, float]:
    """Milliseconds of one run: in all, in each operator, on a GPU in all its kernels."""
    on_gpu = images[0].is_cuda
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, *[kinds.CUDA] * on_gpu]) as profile:
        start = time.perf_counter()
        model(images)
        if on_gpu:
            torch.cuda.synchronize()
        whole = time.perf_counter() - start
    rows = profile.key_averages()
    spent = {"all": 1e3 * whole}
    if on_gpu:
        kernels = [row for row in rows if row.device_type == torch.autograd.DeviceType.CUDA]
        spent["kernels"] = sum(row.self_device_time_total for row in kernels) / 1e3
    for row in rows:
        space, _, name = row.key.partition("::")
        if space == "torchvision" and name in OPERATORS:
            spent[name] = (row.device_time_total if on_gpu else row.cpu_time_total) / 1e3
    return spent


def measure(rounds: int, device: str) -> dict[str, list[dict[str, float]]]:
    """Turns of both sides, the sides alternating."""
    model, images = detector(device), [image(device)]
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
    shares = [sum(t[name] for name in OPERATORS) / t.get("kernels", t["all"]) for t in turns]
    return {
        "median_ms": medians,
        "share": statistics.median(shares),
        "rounds_ms": [t["all"] for t in turns],
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to record it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    turns = measure(given.rounds, given.device)
    sides = {side: summary(of_side) for side, of_side in turns.items()}
    for side, found in sides.items():
        times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in found["median_ms"].items())
        print(f"{side:12} {times}; operators {found['share']:.2%}")
    if given.json:
        record = {**about(given.threads, given.device), "sides": sides}
        given.json.write_text(json.dumps(record, indent=2) + "\n")


def about(threads: int, device: str) -> dict[str, Any]:
    """What was measured on what."""
    import torchvision  # noqa: PLC0415 - not installed everywhere

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        "case": f"fasterrcnn_resnet50_fpn, {CASES[device]}",
        "commit": commit,
        "threads": threads,
        "processor": (
            torch.cuda.get_device_name()
            if device == "cuda"
            else platform.processor() or platform.machine()
        ),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


if __name__ == "__main__":
    main()
