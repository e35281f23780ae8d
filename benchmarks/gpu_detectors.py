"""Torchvision's detectors on a GPU: whole networks of ours beside torchvision's own modules.

    python -m benchmarks.gpu_detectors export MODELS            # needs torchvision; no GPU
    python -m benchmarks.gpu_codes compile FILE MODELS $(python -m benchmarks.gpu_detectors cases)
    python -m benchmarks.gpu_codes bundle FILE MODELS BUNDLES   # where the GPU is, from here on
    python -m benchmarks.gpu_detectors measure BUNDLES --json benchmarks/results/detectors_gpu.json

Weights are random, the norms' statistics those of one image, every score is above the threshold:
as many boxes as a detector lets through go all the way. In one process, with the image on the GPU,
ours from its bundle takes turns with torchvision's module, channels-last in float16: first operator
by operator, then with a backbone that `torch.compile` compiled. Scores are compared with those of
the module in float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import commit
from benchmarks.record import RecordError

__all__ = ["FILE", "MODELS", "headlines", "render"]

FILE = "detectors_gpu.json"
MODELS: Mapping[str, Mapping[str, float]] = {
    "fasterrcnn_resnet50_fpn": {"box_score_thresh": 0.0},
    "maskrcnn_resnet50_fpn": {"box_score_thresh": 0.0},
    "keypointrcnn_resnet50_fpn": {"box_score_thresh": 0.0},
    "retinanet_resnet50_fpn": {"score_thresh": 0.0},
    "fcos_resnet50_fpn": {"score_thresh": 0.0},
    "ssd300_vgg16": {"score_thresh": 0.0},
    "ssdlite320_mobilenet_v3_large": {"score_thresh": 0.0},
}
"""What is measured, and what lets every box through."""
_HEADLINE = "maskrcnn_resnet50_fpn"
_SHAPE = (3, 480, 640)
_WAYS = {
    "saccade": "Saccade", "torchvision": "torchvision",
    "compiled": "torchvision, compiled backbone",
}  # fmt: skip
_WARM, _CALLS = 5, 15  # calls before a round, and in it
_FAR = 5e-2
"""Relative L2 of sorted scores above which there is no record: float16 and thousands of ties."""


def detector(name: str) -> Any:  # noqa: ANN401 - torch is not installed everywhere
    """The module on the CPU, in float32, with the statistics of one image."""
    import torch  # noqa: PLC0415
    from torchvision.models import detection  # noqa: PLC0415
    from torchvision.ops import FrozenBatchNorm2d  # noqa: PLC0415

    torch.manual_seed(0)
    options = MODELS[name]
    model = getattr(detection, name)(weights=None, weights_backbone=None, **options).eval()

    def settle(norm: torch.nn.Module, operands: tuple[torch.Tensor, ...]) -> None:
        (x,) = operands
        norm.running_mean.copy_(x.mean((0, 2, 3)))
        norm.running_var.copy_(x.var((0, 2, 3), correction=0) + 1e-3)

    norms = (FrozenBatchNorm2d, torch.nn.BatchNorm2d)
    hooks = [m.register_forward_pre_hook(settle) for m in model.modules() if isinstance(m, norms)]
    with torch.inference_mode():
        model([torch.from_numpy(image())])
    for hook in hooks:
        hook.remove()
    return model


def image() -> np.ndarray[Any, np.dtype[np.float32]]:
    """[3, 480, 640]."""
    return np.random.default_rng(1).random(_SHAPE, np.float32)


def export(folder: Path) -> None:
    """Write NAME.onnx for every detector."""
    import torch  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        torch.onnx.export(
            detector(name), ([torch.from_numpy(image())],), folder / f"{name}.onnx",
            opset_version=17, dynamo=False, input_names=["image"],
            dynamic_axes={"image": {1: "h", 2: "w"}},
        )  # fmt: skip
        print(f"{name}.onnx", flush=True)


def measure(bundles: Path, names: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """What the record has of each detector: milliseconds of every round, errors of the scores."""
    import torch  # noqa: PLC0415

    import saccade  # noqa: PLC0415 - what exports has no need of it

    pixels = torch.from_numpy(image()).cuda()
    for name in names:
        if not (bundles / f"{name}_fp16.saccade").is_file():
            print(f"{name}: no bundle: no record", flush=True)
            continue
        module = detector(name).cuda()
        with torch.inference_mode():
            truth = module([pixels])[0]["scores"]
        module = module.half().to(memory_format=torch.channels_last)
        ours = saccade.compile(bundles / f"{name}_fp16.saccade")
        (info,) = ours.inputs
        half = pixels.half()

        def eager(module: Any = module, half: Any = half) -> Any:  # noqa: ANN401
            with torch.inference_mode():
                return module([half])[0]["scores"]

        def bundled(ours: Any = ours, key: str = info.name) -> Any:  # noqa: ANN401
            found = ours.run({key: pixels}).values()
            # Of one axis and floating point are the scores alone.
            return next(v for v in found if v.ndim == 1 and v.dtype.is_floating_point)

        times: dict[str, list[float]] = {way: [] for way in _WAYS}
        scores = {"saccade": bundled()}
        # One after the other: a module whose backbone is compiled stays so.
        for way in ("torchvision", "compiled"):
            if way == "compiled":
                module.backbone = torch.compile(module.backbone, dynamic=False)
            scores[way] = eager()
            for _ in range(rounds):
                times["saccade"].append(_round(bundled))
                times[way].append(_round(eager))
        errors = {way: _apart(found, truth) for way, found in scores.items()}
        print(name, {way: statistics.median(ms) for way, ms in times.items()}, errors, flush=True)
        if errors["saccade"] > _FAR:
            print(f"{name}: scores differ by {errors['saccade']:.1e}: no record", flush=True)
            continue
        yield {"model": name, "boxes": len(scores["saccade"]), "ms": times, "errors": errors}


def _round(call: Callable[[], Any]) -> float:
    """Milliseconds of a call from an idle GPU to an idle GPU, the median of some."""
    import torch  # noqa: PLC0415

    spent = []
    for turn in range(_WARM + _CALLS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if turn >= _WARM:
            spent.append(1e3 * (time.perf_counter() - start))
    return statistics.median(spent)


def _apart(found: Any, truth: Any) -> float:  # noqa: ANN401
    """Relative L2 of scores, the highest first; 0 stands for those that one of them lacks."""
    count = max(len(found), len(truth))
    a, b = (np.zeros(count, np.float32) for _ in range(2))
    for array, scores in ((a, found), (b, truth)):
        array[: len(scores)] = np.sort(scores.detach().float().cpu().numpy())[::-1]
    norm = np.linalg.norm(b)
    return float(np.linalg.norm(a - b) / norm) if norm else float(a.any())


# -- the table -------------------------------------------------------------------------------------


def render(folder: Path) -> str:
    """A table for each GPU as Markdown.

    Raises:
        RecordError: A file is broken, or there is none.
    """
    found = _records(folder)
    if not found:
        raise RecordError(f"{folder}: no {FILE}")
    return "\n\n".join("\n".join(_lines(record)) for record in found)


def headlines(folder: Path, gpu: str) -> list[str]:
    """Rows of one detector on a GPU for `headline`, none where it was not measured."""
    rows = []
    for record in _records(folder):
        for one in record["results"] if record["gpu"] == gpu else ():
            if one["model"] == _HEADLINE:
                medians = _medians(one)
                ours = medians.pop("saccade")
                best, peer = min((ms, way) for way, ms in medians.items())
                shape = "x".join(map(str, record["shape"]))
                rows.append(
                    f"| {_HEADLINE} {shape}, fp16 | {ours:.3g} ms | {_WAYS[peer]} {best:.3g} ms "
                    f"| {best / ours:.2f}x |"
                )
    return rows


def _records(folder: Path) -> list[Mapping[str, Any]]:
    files = sorted([*folder.glob(FILE), *folder.glob(f"*/{FILE}")])
    return [json.loads(file.read_text()) for file in files]


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    try:
        rows = [_row(one) for one in record["results"]]
        shape = "x".join(map(str, record["shape"]))
        yield f"### {record['gpu']}"
        yield ""
        yield (
            f"{shape}, fp16, ms: medians; torch {record['torch']}, torchvision "
            f"{record['torchvision']}; measured {record['date']} at {record['commit']}."
        )
    except KeyError as error:
        raise RecordError(f"{FILE}: nothing says {error}") from None
    yield ""
    ways = " | ".join(_WAYS.values())
    yield f"| model | boxes | {ways} | over the better | error: Saccade | error: torchvision |"
    yield f"|{'---|' * (len(_WAYS) + 5)}"
    yield from rows


def _row(one: Mapping[str, Any]) -> str:
    medians = _medians(one)
    best = min(ms for way, ms in medians.items() if way != "saccade")
    cells = [one["model"], str(one["boxes"]), *(f"{ms:.3g}" for ms in medians.values())]
    cells += [f"{best / medians['saccade']:.2f}x"]
    cells += [f"{one['errors'][way]:.1e}" for way in ("saccade", "torchvision")]
    return f"| {' | '.join(cells)} |"


def _medians(one: Mapping[str, Any]) -> dict[str, float]:
    return {way: statistics.median(one["ms"][way]) for way in _WAYS}


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_detectors")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("cases")
    verbs.add_parser("export").add_argument("folder", type=Path)
    run = verbs.add_parser("measure")
    run.add_argument("folder", type=Path, help="of the bundles")
    run.add_argument("--only", default=",".join(MODELS), help="names, separated by commas")
    run.add_argument("--rounds", type=int, default=5)
    run.add_argument("--json", type=Path, help="where to record it")
    run.add_argument("--commit", default="", help="what is measured, where git cannot tell")
    given = parser.parse_args(arguments)
    if given.verb == "cases":
        print(*(f"{name}:fp16:{'x'.join(map(str, _SHAPE))}" for name in MODELS))
    elif given.verb == "export":
        export(given.folder)
    else:
        results = []
        # Time on a GPU is scarce: what was measured is kept if what follows fails.
        for one in measure(given.folder, given.only.split(","), given.rounds):
            results.append(one)
            if given.json:
                record = {**_about(given.commit), "results": results}
                given.json.write_text(json.dumps(record, indent=2) + "\n")


def _about(measured: str) -> dict[str, Any]:
    """What was measured on what."""
    import torch  # noqa: PLC0415
    import torchvision  # noqa: PLC0415

    return {
        "gpu": torch.cuda.get_device_name(), "shape": list(_SHAPE), "torch": torch.__version__,
        "torchvision": torchvision.__version__, "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": measured or commit(),
    }  # fmt: skip


if __name__ == "__main__":
    main()
