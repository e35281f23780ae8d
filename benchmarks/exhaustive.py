"""How near the tuned plan of a model comes to the best of all variants for named layers.

    python -m benchmarks.exhaustive --models FOLDER [--seconds 60] [--out FILE]

Every variant that any kernel offers for a named layer is timed inside the running program, against
the untuned one. Then the tuned program and one with the best variants found take turns, and the
share is the tuned program's speed on the layer over that of the best. What was timed is kept in the
store of `saccade tune`, so that a run that was ended by `--seconds` goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

import saccade
from benchmarks.models import prepare
from saccade.backends.cpu.insitu import InSitu
from saccade.backends.cpu.processor import this_machine
from saccade.engine import Engine, sizes_of
from saccade.options import Options
from saccade.processes import Processes
from saccade.report.machine import describe_machine
from saccade.tuning import Bounds, Measured, Swaps, TimingStore
from saccade.tuning.candidates import TuningCandidate, candidates
from saccade.tuning.judge import judge
from saccade.tuning.keys import call_key, variant_id

CLASSIFIER = (1, 3, 224, 224)
LAYERS: Mapping[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "resnet50": (
        CLASSIFIER,
        (
            "/relu/Relu",
            "/layer1/layer1.0/relu/Relu",
            "/layer1/layer1.0/relu_1/Relu",
            "/layer2/layer2.0/relu_1/Relu",
            "/layer2/layer2.1/relu_1/Relu",
            "/layer3/layer3.1/relu_1/Relu",
            "/layer3/layer3.1/relu_2/Relu",
            "/layer4/layer4.1/relu/Relu",
            "/layer4/layer4.1/relu_1/Relu",
        ),
    ),
    "mobilenet_v3_large": (
        CLASSIFIER,
        (
            "/features/features.0/features.0.2/HardSwish",
            "/features/features.4/block/block.0/block.0.2/Relu",
            "/features/features.12/block/block.0/block.0.2/HardSwish",
            "/features/features.16/features.16.2/HardSwish",
            "/features/features.14/Add",
        ),
    ),
    "densenet121": (
        CLASSIFIER,
        (
            "/features/relu0/Relu",
            "/features/denseblock1/denselayer6/relu2/Relu",
            "/features/denseblock2/denselayer1/conv2/Conv",
        ),
    ),
    "deeplabv3_mobilenet": (
        (1, 3, 520, 520),
        (
            "/classifier/classifier.0/convs.1/convs.1.2/Relu",
            "/classifier/classifier.0/convs.3/convs.3.2/Relu",
            "/classifier/classifier.3/Relu",
        ),
    ),
}
WAVE, FINAL = 5, 31  # turns


@dataclass
class Sweep:
    """Every variant for the named layers of one model.

    Attributes:
        engine: Of the model.
        options: It was compiled with.
        inputs: What it runs on.
        names: Steps.
        until: When no further wave may begin, by the monotonic clock.
    """

    engine: Engine
    options: Options
    inputs: Sequence[np.ndarray[Any, Any]]
    names: Sequence[str]
    until: float

    def run(self) -> Iterator[dict[str, Any]]:
        """A record for each layer; nothing when the time was too short for all variants."""
        processes = Processes()
        backend = self.engine.backend
        store = TimingStore(backend.device, this_machine() | {"code": backend.code})
        try:
            best = self._best(self._bench(processes, None), store)
            if best is not None:
                tuned = self._bench(processes, self.engine.algorithms)
                yield from self._records(tuned, best)
        finally:
            processes.close()

    def _bench(self, processes: Processes, base: Any) -> InSitu:  # noqa: ANN401
        engine = self.engine
        sizes = sizes_of(engine.graph, [x.shape for x in self.inputs])
        return InSitu.of(
            engine.graph, engine.identity, sizes, self.inputs, engine.backend, self.options,
            processes, base,
        )  # fmt: skip

    def _best(
        self, bench: InSitu, store: TimingStore
    ) -> dict[str, tuple[TuningCandidate, int]] | None:
        """The fastest variant of each call and how many there are; None without time for all."""
        steps = [step for step in bench.laid.steps if step.name in self.names and not step.note]
        missing = set(self.names) - {step.name for step in steps}
        assert not missing, f"no such steps: {missing}"
        ways = {
            call_key(s.call): candidates(
                s.call,
                bench.backend.candidates(s.call.op),
                Bounds(10**6, float("inf")),
            )
            for s in steps
        }
        untuned = {call_key(s.call): variant_id(s.launches) for s in steps}
        number = {call_key(s.call): i for i, s in enumerate(bench.laid.steps)}
        left = {
            key: [c for c in found if store.get(key, c.id, untuned[key]) is None]
            for key, found in ways.items()
        }
        while any(left.values()):
            if time.monotonic() > self.until:
                print(f"{sum(map(len, left.values()))} ways left; run again to go on")
                return None
            wave = {key: found.pop(0) for key, found in left.items() if found}
            store.add(_measured(bench, {number[k]: c for k, c in wave.items()}, untuned))
        ranked = {
            key: min(found, key=lambda c, key=key: store.get(key, c.id, untuned[key]).ratio)  # type: ignore[union-attr]
            for key, found in ways.items()
        }
        return {key: (ranked[key], len(ways[key])) for key in ways}

    def _records(
        self, tuned: InSitu, best: Mapping[str, tuple[TuningCandidate, int]]
    ) -> Iterator[dict[str, Any]]:
        """The tuned program against one with the best variants."""
        keys = [call_key(step.call) for step in tuned.laid.steps]
        swaps = {i: best[key][0] for i, key in enumerate(keys) if key in best}
        tuned.compile(swaps)
        before, after = tuned.alternate(swaps, FINAL, lambda _done: None)
        for i, step in enumerate(tuned.laid.steps):
            if i in swaps and step.name in self.names:
                verdict = judge(before[:, i], after[:, i])
                same = variant_id(step.launches) == swaps[i].id
                yield {
                    "layer": step.name,
                    "call": keys[i],
                    "ways": best[keys[i]][1],
                    "tuned": step.choice.kernel and step.choice.kernel.name,
                    "best": swaps[i].kernel.name,
                    "rank": swaps[i].rank,
                    "estimate": round(swaps[i].micros, 1),
                    "tuned_us": round(verdict.before, 1),
                    "best_us": round(verdict.after, 1),
                    # The same way timed twice says nothing; a best that is slower was chance.
                    "share": 1.0 if same else round(min(1.0, 1.0 - verdict.gain), 4),
                }


def _measured(bench: InSitu, swaps: Swaps, untuned: Mapping[str, str]) -> list[Measured]:
    bench.compile(swaps)
    before, after = bench.alternate(swaps, WAVE, lambda _done: None)
    found = []
    for i, candidate in swaps.items():
        verdict, key = judge(before[:, i], after[:, i]), call_key(bench.laid.steps[i].call)
        found.append(
            Measured(
                key, candidate.id, untuned[key], candidate.kernel.name, verdict.after,
                verdict.before, WAVE,
            )
        )  # fmt: skip
    return found


def _model(path: Path, name: str, threads: int, seconds: float) -> list[dict[str, Any]]:
    shape, names = LAYERS[name]
    began = time.monotonic()
    model = saccade.compile(path, threads=threads)
    x = np.random.default_rng(0).standard_normal(shape).astype(model.inputs[0].dtype)
    model.tune(x, seconds=seconds)  # goes on where it was
    sweep = Sweep(model._started(), Options.make(threads=threads), [x], names, began + seconds)
    return [{"model": name, "input": list(shape)} | record for record in sweep.run()]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True, help="folder of ONNX files")
    parser.add_argument("--only", choices=LAYERS, action="append", help="this model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each model")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/exhaustive.json"))
    given = parser.parse_args()
    wanted = given.only or list(LAYERS)
    paths = prepare(given.models, wanted, Path(gettempdir()) / "saccade-models")
    records = json.loads(given.out.read_text())["layers"] if given.out.exists() else []
    for name in wanted:
        fresh = _model(paths[name], name, given.threads, given.seconds)
        for record in fresh:
            print(f"{record['share']:.3f}  {record['ways']:>4} ways  {name} {record['layer']}")
        if fresh:
            records = [r for r in records if r["model"] != name] + fresh
            document = {"machine": describe_machine(), "threads": given.threads, "layers": records}
            given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
