"""Tunes networks on a GPU: how long it takes, what it saves, what could not be run.

    python benchmarks/gpu_tuning.py DIR MODEL.onnx … [--precision fp16] [--batch 1,32]

Writes a file of algorithms for each model and batch into DIR, and `tuning.json`: seconds, variants,
microseconds of the whole program before and after. Needs a GPU and Triton.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import saccade
from saccade.tuning import Progress

SIZE = 224
EVERY = 5.0  # seconds between lines of progress


def tuned(path: Path, precision: str, batch: int, folder: Path) -> dict[str, object]:
    """A record of one model at one batch."""
    started = time.monotonic()
    model = saccade.compile(str(path), device="cuda", precision=precision)
    rng = np.random.default_rng(0)
    inputs = {}
    for info in model.inputs:
        sizes = (size if isinstance(size, int) else SIZE for size in info.shape[1:])
        inputs[info.name] = rng.standard_normal((batch, *sizes)).astype(info.dtype)
    told = [0.0]

    def report(progress: Progress) -> None:
        if progress.elapsed - told[0] >= EVERY:
            told[0] = progress.elapsed
            print(f"  {progress.elapsed:5.0f} s, {progress.remaining:5.0f} left: {progress.text}")

    outcome = model.tune(**inputs, report=report)
    seconds, whole = time.monotonic() - started, outcome.whole
    name = f"{path.stem}_{precision}_b{batch}"
    (folder / f"{name}.json").write_text(model.algorithms.to_json())
    print(f"{name}: {seconds:.0f} s, {outcome.measured} measured, {len(outcome.changes)} changed")
    if whole is not None:
        kept = "kept" if whole.faster else "not kept"
        print(f"  {whole.before:.1f} µs untuned, {whole.after:.1f} tuned, {kept}")
    for reason in outcome.failures:
        print(f"  failed: {reason}")
    return {
        "model": path.stem, "precision": precision, "batch": batch, "seconds": seconds,
        "measured": outcome.measured, "remembered": outcome.remembered,
        "calls": len(outcome.calls), "changes": len(outcome.changes),
        "failures": list(outcome.failures),
        "before_us": whole and whole.before, "after_us": whole and whole.after,
        "kept": bool(whole and whole.faster),
    }  # fmt: skip


def main() -> None:
    """Tune what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dir", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--batch", type=lambda text: list(map(int, text.split(","))), default=[32])
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    records = []
    for path in options.models:
        for batch in options.batch:
            records.append(tuned(path, options.precision, batch, options.dir))
            (options.dir / "tuning.json").write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
