"""What share of a detector's time its operators take, on torchvision's kernels and on Saccade's.

    python -m benchmarks.detector [--json FILE] [--threads N] [--rounds N] [--device cuda]

Torchvision's Faster R-CNN (ResNet-50 FPN, random weights) finds objects in an image of 800 x 1088
pixels in channels-last memory format; on a GPU in float16 and one of 800 x 1333. Rounds alternate
between the kernels; PyTorch's profiler tells what time each of `torchvision::…` takes, whatever it
calls inside: on a GPU its kernels' time, whose share is that of a run without a profiler, and that
of all kernels' time.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import commit
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
    """Milliseconds of one run: in all, in each operator, on a GPU in all its kernels.

    On a GPU the whole is that of a run of its own, as most of it is what the profiler slows down.
    """
    on_gpu = images[0].is_cuda
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, *[kinds.CUDA] * on_gpu]) as profile:
        whole = _seconds(model, images)
    rows = profile.key_averages()
    spent = {"all": 1e3 * (_seconds(model, images) if on_gpu else whole)}
    if on_gpu:
        kernels = [row for row in rows if row.device_type == torch.autograd.DeviceType.CUDA]
        spent["kernels"] = sum(row.self_device_time_total for row in kernels) / 1e3
    for row in rows:
        space, _, name = row.key.partition("::")
        if space == "torchvision" and name in OPERATORS:
            spent[name] = (row.device_time_total if on_gpu else row.cpu_time_total) / 1e3
    return spent


def _seconds(model: torch.nn.Module, images: list[torch.Tensor]) -> float:
    """Of one run, from an idle device to an idle device."""
    wait = torch.cuda.synchronize if images[0].is_cuda else lambda: None
    wait()
    start = time.perf_counter()
    model(images)
    wait()
    return time.perf_counter() - start


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
    """Medians in milliseconds, and the operators' share of the time and of all kernels'."""
    medians = {name: statistics.median(t[name] for t in turns) for name in turns[0]}
    spent = [(sum(t[name] for name in OPERATORS), t) for t in turns]
    shares = {"share": [operators / t["all"] for operators, t in spent]}
    if "kernels" in medians:
        shares["share_of_kernels"] = [operators / t["kernels"] for operators, t in spent]
    return {
        "median_ms": medians,
        **{name: statistics.median(each) for name, each in shares.items()},
        "rounds_ms": [t["all"] for t in turns],
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to record it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--commit", default="", help="what is measured, where git cannot tell")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    turns = measure(given.rounds, given.device)
    sides = {side: summary(of_side) for side, of_side in turns.items()}
    for side, found in sides.items():
        times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in found["median_ms"].items())
        kernels = found.get("share_of_kernels")
        of_kernels = "" if kernels is None else f", {kernels:.2%} of all kernels' time"
        print(f"{side:12} {times}; operators {found['share']:.2%}{of_kernels}")
    if given.json:
        record = {**about(given), "sides": sides}
        given.json.write_text(json.dumps(record, indent=2) + "\n")


def about(given: argparse.Namespace) -> dict[str, Any]:
    """What was measured on what."""
    import torchvision  # noqa: PLC0415 - not installed everywhere

    return {
        "case": f"fasterrcnn_resnet50_fpn, {CASES[given.device]}",
        "commit": given.commit or commit(),
        "threads": given.threads,
        "processor": (
            torch.cuda.get_device_name()
            if given.device == "cuda"
            else platform.processor() or platform.machine()
        ),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


if __name__ == "__main__":
    main()
