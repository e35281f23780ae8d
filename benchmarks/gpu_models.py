"""Networks on a GPU, from bundles: right, and how fast beside PyTorch's compiler.

    python benchmarks/gpu_models.py build DIR MODEL.onnx … [--precision fp16] [--batch 1,32]
    python benchmarks/gpu_models.py run DIR [--against inductor,eager] [--json FILE]

`build` needs Triton and no GPU; it also computes what the outputs must be, in float32 on the CPU.
`run` needs a GPU with PyTorch for data, clocks and peers, and no compiler for ours. Times are of
replayed CUDA graphs on both sides, medians of rounds by turns, over several sets of random inputs.
"""

# ruff: noqa: ANN401 - PyTorch is imported where it is there

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import saccade

Numbers = NDArray[Any]

SETS = 4  # of inputs, in turns, so that one does not stay in the L2 cache


def _inputs(model: saccade.Model, batch: int, seed: int) -> dict[str, Numbers]:
    """Random arrays for a model's inputs."""
    rng = np.random.default_rng(seed)
    found = {}
    for info in model.inputs:
        sizes = (size if isinstance(size, int) else 224 for size in info.shape[1:])
        shape = (batch, *sizes) if len(info.shape) > 1 else info.shape
        found[info.name] = rng.standard_normal(shape).astype(info.dtype)
    return found


def build(options: argparse.Namespace) -> None:
    """Bundles with their truth beside them."""
    options.dir.mkdir(parents=True, exist_ok=True)
    for path in map(Path, options.models):
        reference = saccade.compile(str(path))
        x = _inputs(reference, 1, 0)
        if options.size:
            x = {n: _resized(a, options.size) for n, a in x.items()}
        truth = list(reference.run(x).values())
        start = time.perf_counter()
        model = saccade.compile(
            str(path), device="cuda", precision=options.precision, machine=options.machine
        )
        shapes = [{name: (batch, *a.shape[1:]) for name, a in x.items()} for batch in options.batch]
        stem = options.dir / f"{path.stem}_{options.precision}"
        nbytes = model.save(stem.with_suffix(".saccade"), *shapes)
        np.savez(stem.with_suffix(".npz"), *truth, **{f"in_{n}": a for n, a in x.items()})
        print(f"{stem.name}: {nbytes / 1e6:.1f} MB in {time.perf_counter() - start:.1f} s")


def _resized(array: Numbers, size: tuple[int, int]) -> Numbers:
    rng = np.random.default_rng(0)
    return rng.standard_normal((*array.shape[:2], *size)).astype(array.dtype)


def _clock(
    torch: Any, call: Callable[..., Any], inputs: list[list[Any]], rounds: int = 20, runs: int = 20
) -> tuple[float, float]:
    """Median microseconds of a call on the device, over sets of inputs in turns."""
    for one in inputs:
        call(*one)
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(runs):
            call(*inputs[i % len(inputs)])
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / runs)
    return float(np.median(times)), float(np.min(times))


def _peer(torch: Any, name: str, kind: str, dtype: Any) -> Any:
    """A network of torchvision's, as its users would run it; None if there is none."""
    import torchvision  # noqa: PLC0415

    make = getattr(torchvision.models, name, None)
    if make is None:
        return None
    network = make(weights=None).eval().cuda().to(dtype).to(memory_format=torch.channels_last)
    if kind == "eager":
        return network
    torch._inductor.config.freezing = True
    return torch.compile(network, mode="max-autotune" if kind == "autotune" else "reduce-overhead")


def run(options: argparse.Namespace) -> None:
    """Check and time every bundle of a folder."""
    import torch  # noqa: PLC0415

    records = []
    for path in sorted(options.dir.glob("*.saccade")):
        start = time.perf_counter()
        model = saccade.compile(str(path))
        kept = np.load(path.with_suffix(".npz"))
        x = {info.name: kept[f"in_{info.name}"] for info in model.inputs}
        outputs = list(model.run(x).values())
        first = time.perf_counter() - start
        errors = [_error(a, kept[f"arr_{i}"]) for i, a in enumerate(outputs)]
        name, _, precision = path.stem.rpartition("_")
        print(f"{path.stem}: first answer {first:.2f} s, relative errors {errors}", flush=True)
        for batch in options.batch:
            shapes = {n: (batch, *a.shape[1:]) for n, a in x.items()}
            sets = [
                [torch.from_numpy(_random(s, x[n].dtype, i)).cuda() for n, s in shapes.items()]
                for i in range(SETS)
            ]
            try:
                ours = _clock(torch, model, sets)
            except saccade.OptionError:
                continue  # not in the bundle
            record = {"model": name, "precision": precision, "batch": batch, "us": ours[0],
                      "min_us": ours[1], "errors": errors}  # fmt: skip
            line = f"  batch {batch}: {ours[0]:.0f} µs (least {ours[1]:.0f})"
            for kind in filter(None, options.against.split(",")):
                dtype = {"fp16": torch.half, "bf16": torch.bfloat16}.get(precision, torch.float32)
                network = _peer(torch, name, kind, dtype)
                if network is not None:
                    given = [
                        [a.to(dtype).to(memory_format=torch.channels_last) for a in one]
                        for one in sets
                    ]
                    with torch.inference_mode():
                        record[kind] = _clock(torch, network, given)[0]
                    line += f", {kind} {record[kind]:.0f} ({record[kind] / ours[0]:.2f}x)"
            print(line, flush=True)
            records.append(record)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))


def _random(shape: tuple[int, ...], dtype: Any, seed: int) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _error(found: Any, truth: Numbers) -> float:
    """Of an output: the L2 norm of the difference over that of the truth."""
    found = np.asarray(found, np.float64)
    return float(f"{np.linalg.norm(found - truth) / np.linalg.norm(truth):.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["build", "run"])
    parser.add_argument("dir", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--against", default="")
    parser.add_argument("--json", type=Path)
    batches = {"type": lambda text: [int(n) for n in text.split(",")], "default": [1]}
    parser.add_argument("--batch", **batches)
    parser.add_argument("--size", type=lambda text: tuple(map(int, text.split("x"))))
    options = parser.parse_args()
    {"build": build, "run": run}[options.command](options)


if __name__ == "__main__":
    main()
