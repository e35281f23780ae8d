"""What another input size costs on a device, by hand, in this process.

    python -m benchmarks.device_sizes resnet50.onnx 1x3x224x224 --device cuda --precision fp16

The model runs at the shape, then at random sizes around it, all of them twice: more than a model
keeps programs of. In the first round a size may have to compile kernels, read them from the disk
or load them; in the second all are loaded, and it is planned, built and recorded anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

import saccade
from benchmarks.new_sizes import REPETITIONS, sizes_around
from saccade.model import PLANS_KEPT

__all__ = ["Cost", "costs", "main"]

_SIZES = PLANS_KEPT + 8


class Cost:
    """Milliseconds of one size.

    Attributes:
        first: Of its first run.
        beyond: The same beyond its fastest repetition.
        planning: Of another plan.
        processor: The same in time of the process.
    """

    def __init__(self, model: saccade.Model, size: Sequence[int]) -> None:
        image = np.random.default_rng(0).random(tuple(size), np.float32)
        run = partial(model, image)
        self.first = _milliseconds(run, time.perf_counter)
        self.beyond = self.first - min(
            _milliseconds(run, time.perf_counter) for _ in range(REPETITIONS)
        )
        plan = partial(model.plan, tuple(size))
        self.planning = _milliseconds(plan, time.perf_counter)
        self.processor = _milliseconds(plan, time.process_time)


def _milliseconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return 1e3 * (clock() - start)


def costs(
    model: saccade.Model, shape: Sequence[int], count: int = _SIZES, seed: int = 5
) -> list[list[Cost]]:
    """Of each round, of each size; results are on the host, so that a run is over."""
    model(np.zeros(tuple(shape), np.float32))
    sizes = list(dict.fromkeys(sizes_around(shape, count, seed)))
    return [[Cost(model, size) for size in sizes] for _ in range(2)]


def _row(name: str, values: Sequence[float]) -> str:
    ranked = sorted(values)
    tenth = ranked[min(len(ranked) - 1, 9 * len(ranked) // 10)]
    middle = ranked[len(ranked) // 2]
    return f"{name:30} {ranked[0]:8.1f} {middle:8.1f} {tenth:8.1f} {ranked[-1]:8.1f}"


def main(words: Sequence[str] | None = None) -> None:
    """Print what sizes cost: least, median, nine of ten below, most."""
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    reader.add_argument("model", type=Path)
    reader.add_argument("shape", help="sizes with x between them")
    reader.add_argument("--device", default="cuda")
    reader.add_argument("--precision", default="fp32")
    reader.add_argument("--sizes", type=int, default=_SIZES)
    given = reader.parse_args(words)
    if given.sizes <= PLANS_KEPT:
        reader.error(f"--sizes must be more than the {PLANS_KEPT} that a model keeps")
    model = saccade.compile(given.model, device=given.device, precision=given.precision)
    shape = tuple(int(size) for size in given.shape.split("x"))
    print(f"{'milliseconds':30} {'least':>8} {'median':>8} {'9 of 10':>8} {'most':>8}")
    for name, round_ in zip(
        ("kernels to get", "kernels loaded"), costs(model, shape, given.sizes), strict=True
    ):
        print(_row(f"{name}: beyond a repetition", [one.beyond for one in round_]))
        print(_row("  planning", [one.planning for one in round_]))
        print(_row("  planning, process time", [one.processor for one in round_]))


if __name__ == "__main__":
    main()
