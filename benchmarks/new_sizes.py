"""What another input size costs: its first run beyond its repetition, and planning alone.

The worker is a process of its own, `python -m benchmarks.new_sizes` with a request as JSON on its
standard input. It runs the model once at the size of its case, then at random sizes, each axis of
the image half to one and a half times as long; every engine meets the same sizes in the same order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import SaccadeError

__all__ = ["ENGINES", "Costs", "costs_of", "sizes_around"]

SIZES = 40
PLANS = 24
REPETITIONS = 3
_LEAST_MS = 1e-3
"""A first run that is no slower than its repetition: records hold positive numbers."""

Run = Callable[[NDArray[Any]], object]
Costs = Mapping[str, list[float]]
"""Milliseconds of every size: `beyond` its repetition, and `planning`, which peers do not show."""


def sizes_around(shape: Sequence[int], count: int, seed: int) -> list[tuple[int, ...]]:
    """Random shapes, the last two axes from half to one and a half times as long."""
    generator = np.random.default_rng(seed)
    *rest, height, width = shape
    return [
        (*rest, *(int(generator.integers(n // 2, n + n // 2 + 1)) for n in (height, width)))
        for _ in range(count)
    ]


def costs_of(
    engine: str, path: Path, shape: Sequence[int], threads: int, seed: int
) -> tuple[str, Costs]:
    """The engine's version, and what new sizes cost it in a fresh process with an empty cache.

    Raises:
        SaccadeError: If the engine is none of `ENGINES`, or its process fails.
    """
    if engine not in ENGINES:
        raise SaccadeError(f"new sizes are timed of {', '.join(ENGINES)}, not of {engine!r}")
    request = {"engine": engine, "path": str(path), "shape": list(shape), "threads": threads}
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.new_sizes"],
            check=False, input=json.dumps({**request, "seed": seed}), text=True,
            cwd=Path(__file__).parents[1], env={**os.environ, "SACCADE_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
        )  # fmt: skip
    if done.returncode:
        raise SaccadeError(f"new sizes: the process of {engine} ended with {done.returncode}")
    version, costs = json.loads(done.stdout.splitlines()[-1])
    return version, costs


def _saccade(path: str, threads: int) -> tuple[str, Run, Any]:
    import saccade  # noqa: PLC0415 - one engine a process
    from saccade.version import VERSION  # noqa: PLC0415

    model = saccade.compile(path, threads=threads)
    return VERSION, model, model.plan


def _onnxruntime(path: str, threads: int) -> tuple[str, Run, Any]:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return str(onnxruntime.__version__), lambda image: session.run(None, {name: image}), None


def _openvino(path: str, threads: int) -> tuple[str, Run, Any]:
    import openvino  # noqa: PLC0415

    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # or bfloat16 where the processor has it
    }
    compiled = openvino.Core().compile_model(path, "CPU", hints)
    request = compiled.create_infer_request()
    version = str(openvino.__version__).split("-", maxsplit=1)[0]
    return version, lambda image: request.infer([image], share_inputs=True), None


ENGINES: Mapping[str, Callable[[str, int], tuple[str, Run, Any]]] = {
    "saccade": _saccade,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
"""Each opens a file: its version, a run, and how it plans for a shape, if it shows that."""


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def _measure(run: Run, plan: Any, shape: Sequence[int], seed: int) -> Costs:  # noqa: ANN401
    generator = np.random.default_rng(seed)
    run(generator.random(tuple(shape), np.float32))
    costs: dict[str, list[float]] = {"beyond": []}
    for size in sizes_around(shape, SIZES, seed):
        again = partial(run, generator.random(size, np.float32))
        first = _milliseconds(again)
        least = min(_milliseconds(again) for _ in range(REPETITIONS))
        costs["beyond"].append(max(first - least, _LEAST_MS))
    if plan is not None:
        others = sizes_around(shape, PLANS, seed + 1)
        costs["planning"] = [_milliseconds(partial(plan, size)) for size in others]
    return costs


def _main() -> None:
    request = json.load(sys.stdin)
    version, run, plan = ENGINES[request["engine"]](request["path"], request["threads"])
    costs = _measure(run, plan, request["shape"], request["seed"])
    print(json.dumps([version, costs]))


if __name__ == "__main__":
    _main()
