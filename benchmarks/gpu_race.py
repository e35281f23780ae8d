"""All variants for the steps of a network on a GPU, beside what estimates say of them.

    python -m benchmarks.gpu_race compile FILE MODEL.onnx 32x3x224x224 [--kernels conv2d] [--most 5]
    python -m benchmarks.gpu_race run FILE TIMES.json       # needs a GPU, and no Triton

Variants of a step take turns, apart from the network, with a cold L2 cache (`runtime.gauge`). FILE
is a pickle for one's own machines: load none from elsewhere.
"""

from __future__ import annotations

import argparse
import json
import lzma
import pickle
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

import saccade
from saccade.backends.cuda.codegen.compile import Cubin
from saccade.backends.cuda.cubins import Cubins
from saccade.backends.cuda.measuring import open_gauge, time_contest
from saccade.backends.cuda.operands import StepOperands, TypesOfPacked
from saccade.backends.cuda.runtime.gauge import Contest
from saccade.engine import sizes_of
from saccade.kernels.cuda import kernels_for
from saccade.layout import StepLayout
from saccade.plan import Phase
from saccade.processes import Processes

_COLD = 100 << 20  # bytes: twice the L2 cache of an H200
_TURN, _LEAST, _MOST = 400.0, 4, 64  # microseconds of a turn; launches in it
_ROUNDS = 5
_WITHIN = 4.0  # times the best estimate: what is slower is not compiled


@dataclass(frozen=True)
class Race:
    """The variants for one step.

    Attributes:
        step: Its name.
        shapes: Of its operands and results.
        variants: Kernel, estimate in microseconds and config of each that is timed.
        contest: What the GPU does.
    """

    step: str
    shapes: list[tuple[int, ...]]
    variants: list[tuple[str, float, str]]
    contest: Contest


@dataclass
class _Entry:
    """A step, and phases and keys of its variants."""

    step: StepLayout
    operands: StepOperands
    variants: list[tuple[str, float, str, tuple[Phase, ...], tuple[object, ...]]]


def races(
    model: Path, shape: tuple[int, ...], precision: str, prefix: str, most: int
) -> list[Race]:
    """What is to be timed of a model, compiled for the H200."""
    made = saccade.compile(model, device="cuda", machine="h200", precision=precision)
    engine = made._started()
    graph = engine.graph
    laid = engine._lay_out(sizes_of(graph, [shape]), engine.backend.available)
    constants = {value.name: array for value, array in graph.constants.items()}
    types, seen, entries = TypesOfPacked(constants), set[object](), list[_Entry]()
    for step in laid.steps:
        kernel = step.choice.kernel
        if kernel is None or not kernel.name.startswith(prefix) or step.call in seen:
            continue
        seen.add(step.call)
        entries.append(_entry(step, StepOperands(laid, step, constants, types), most))
    keys = list(dict.fromkeys(k for one in entries for *_, own in one.variants for k in own))
    print(f"{len(entries)} steps, {len(keys)} kernels", flush=True)
    cubins = Cubins(90)
    with closing(Processes()) as processes:
        codes = cubins.attempt(keys, processes)  # type: ignore[arg-type]
    return [_race(one, codes) for one in entries]


def _entry(step: StepLayout, operands: StepOperands, most: int) -> _Entry:
    found = []
    call = step.call
    for kernel in kernels_for(type(call.op).__name__):
        if kernel.supports(call) is not None:  # type: ignore[arg-type]
            continue
        for place, variant in enumerate(kernel.variants(call)):  # type: ignore[arg-type]
            if place < most:
                found.append((kernel.name, variant.micros, variant.launches))
    best = min(micros for _, micros, _ in found)
    entry = _Entry(step, operands, [])
    for name, micros, launches in found:
        if micros <= _WITHIN * best:
            bound = operands.bind(name, launches)
            config = str(launches[-1].config)
            entry.variants.append((name, micros, config, bound.phases, bound.keys))
    return entry


def _race(entry: _Entry, codes: object) -> Race:
    assert isinstance(codes, dict)
    runnable = [v for v in entry.variants if all(isinstance(codes[k], Cubin) for k in v[4])]
    timed = tuple(tuple(zip(v[3], (codes[k] for k in v[4]), strict=True)) for v in runnable)
    least = min(micros for _, micros, *_ in runnable)
    launches = min(max(ceil(_TURN / least), _LEAST), _MOST)
    contest = Contest(tuple(entry.operands.regions), timed, _ROUNDS, _COLD, launches)
    views = (*entry.step.call.inputs, *entry.step.call.outputs)
    return Race(entry.step.name, [v.shape for v in views], [v[:3] for v in runnable], contest)


def run(file: Path, target: Path) -> None:
    """Time what a file has; medians go to a JSON file, what was lost by estimates is printed."""
    open_gauge(0)
    found, picked, best = [], 0.0, 0.0
    for race in pickle.loads(lzma.decompress(file.read_bytes())):
        timed = time_contest(race.contest)
        if timed.micros is None:
            print(f"{race.step}: {timed.reason}", file=sys.stderr)
            if timed.lost:
                break
            continue
        micros = [float(m) for m in np.median(timed.micros, axis=1)]
        rows = [(*one, m) for one, m in zip(race.variants, micros, strict=True)]
        found.append({"step": race.step, "shapes": race.shapes, "variants": rows})
        chosen, fastest = min(rows, key=lambda r: r[1]), min(rows, key=lambda r: r[3])
        picked, best = picked + chosen[3], best + fastest[3]
        print(f"{race.step}: {chosen[0]} {chosen[3]:.1f} µs, best {fastest[0]} {fastest[3]:.1f}")
    print(f"chosen {picked:.0f} µs, best {best:.0f}")
    target.write_text(json.dumps(found))


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_race")
    verbs = parser.add_subparsers(dest="verb", required=True)
    make, play = verbs.add_parser("compile"), verbs.add_parser("run")
    make.add_argument("file", type=Path)
    make.add_argument("model", type=Path)
    make.add_argument("shape")
    make.add_argument("--precision", default="fp16")
    make.add_argument("--kernels", default="conv2d", help="steps whose kernel's name begins so")
    make.add_argument("--most", type=int, default=5, help="variants of each kernel for a step")
    play.add_argument("file", type=Path)
    play.add_argument("times", type=Path)
    given = parser.parse_args(arguments)
    if given.verb == "run":
        run(given.file, given.times)
        return
    shape = tuple(map(int, given.shape.split("x")))
    made = races(given.model, shape, given.precision, given.kernels, given.most)
    given.file.write_bytes(lzma.compress(pickle.dumps(made), preset=6))


if __name__ == "__main__":
    main()
