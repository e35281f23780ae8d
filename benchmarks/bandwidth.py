"""How near kernels that are bound by bandwidth come to a warm copy of as many bytes.

    python -m benchmarks.bandwidth [--only TEXT] [--sizes L2,L3,memory] [--dtypes …] [--table]

Ours is the time from the first thread's start to the last one's end inside the running program, all
reorders included. The copy is PyTorch's `copy_` between two arrays that are there, with as many
threads, of half of the bytes that the caller's arrays hold (what has to be read twice counts
twice): as much is read and written. All arrays begin at a line of cache, as those between the steps
of a model do. The two take turns in phases with a pause between them, as each has threads that spin
for a while when they are out of work. A share above 1 is faster than the copy.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bandwidth_cases import CASES, SWEEPS, moved, sized
from benchmarks.measure import commit
from benchmarks.report import replace_section
from saccade import layout, passes
from saccade import plan as planner
from saccade.backends.cpu.backend import CpuBackend
from saccade.backends.cpu.runtime.program import CpuProgram, Stopwatch
from saccade.ir import Array, DType, Graph, Value
from saccade.options import Options
from saccade.processes import Processes
from saccade.report.machine import describe_machine

__all__ = ["MARKS", "NOTES", "RESULTS", "main", "table"]

RESULTS = Path(__file__).parent / "results" / "bandwidth.json"
NOTES = Path(__file__).parent.parent / "docs" / "performance" / "bandwidth.md"
MARKS = ("<!-- bandwidth:begin -->", "<!-- bandwidth:end -->")
SIZES = {"L2": 512 << 10, "L3": 8 << 20, "memory": 128 << 20}  # of two cores together
DTYPES = {"float32": DType.F32, "bfloat16": DType.BF16}
PAUSE = 0.02  # seconds until threads out of work sleep
AIM = 0.8


class Bench:
    """One team of threads, ours and PyTorch's."""

    def __init__(self, threads: int, rounds: int, seconds: float) -> None:
        import torch  # noqa: PLC0415 - rendering the table needs none

        torch.set_num_threads(threads)
        self._torch = torch
        self._options = Options.make(threads=threads)
        self._backend = CpuBackend(self._options, Processes())
        self._rounds, self._seconds = rounds, seconds

    def measure(self, graph: Graph, sweeps: int = 1) -> dict[str, Any]:
        """The figures of a record; `sweeps` as for `moved`."""
        program = self._program(graph)
        random = np.random.default_rng(0)
        inputs, outputs = (
            [self._array(v) for v in values] for values in (graph.inputs, graph.outputs)
        )
        for array in inputs:
            array[...] = random.standard_normal(array.shape)
        watch = program.stopwatch(inputs, outputs)
        half = moved(graph, sweeps) // 2
        source, target = (self._torch.full((half // 4,), float(i)) for i in (1, 2))
        ours, copies, steps = [], [], []
        for _ in range(self._rounds):
            copies.append(self._copies(source, target))
            time.sleep(PAUSE)
            readings = self._runs(watch)
            ours.append(statistics.median(_span(readings)))
            steps.append(np.median(_steps(readings), axis=0))
            time.sleep(PAUSE)
        shares = [copy / own for copy, own in zip(copies, ours, strict=True)]
        kernels = [str(step.kernel) for step, _ in watch.phases]
        taken = np.median(np.array(steps), axis=0)
        return {
            "bytes": 2 * half,
            "us": round(statistics.median(ours), 2),
            "copy_us": round(statistics.median(copies), 2),
            "share": round(statistics.median(shares), 3),
            "shares": [round(s, 3) for s in shares],
            "phases": [[k, round(float(t), 2)] for k, t in zip(kernels, taken, strict=True)],
        }

    def _array(self, value: Value) -> Array:
        """Zeros in PyTorch's memory: NumPy's begins in the middle of a line of cache."""
        nbytes = math.prod(value.shape) * value.dtype.itemsize  # type: ignore[arg-type] - static
        content: Array = self._torch.zeros(nbytes, dtype=self._torch.uint8).numpy()
        return content.view(value.dtype.numpy).reshape(value.shape)

    def _program(self, graph: Graph) -> CpuProgram:
        threads, target = self._options.resolved_threads, self._backend.target
        lowered = passes.run(graph)
        laid = layout.assign(lowered, {}, self._backend, threads=threads)
        plan = planner.make(lowered, laid, {}, threads, target.isa)
        return self._backend.build(plan, lowered, "")

    def _copies(self, source: Any, target: Any) -> float:  # noqa: ANN401 - tensors
        """Microseconds of a copy: the median over a phase."""
        taken = []
        until = time.perf_counter() + self._seconds
        target.copy_(source)
        while not taken or time.perf_counter() < until:
            began = time.perf_counter()
            target.copy_(source)
            taken.append(time.perf_counter() - began)
        return 1e6 * statistics.median(taken)

    def _runs(self, watch: Stopwatch) -> Any:  # noqa: ANN401 - an array
        """Readings [runs, phases, threads, (start, end)] of a phase of at least so many seconds."""
        found = [watch.runs(4)]
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            found.append(watch.runs(16, warm=False))
        return np.concatenate(found)


def _span(readings: Any) -> list[float]:  # noqa: ANN401
    """Microseconds of every run."""
    micros: list[float] = (
        (readings[..., 1].max(axis=(1, 2)) - readings[..., 0].min(axis=(1, 2))) / 1e3
    ).tolist()
    return micros


def _steps(readings: Any) -> Any:  # noqa: ANN401
    """Microseconds of every phase of every run, from the end of the one before."""
    ends = readings[..., 1].max(axis=2)
    first = readings[:, :1, :, 0].min(axis=2)
    return (ends - np.concatenate([first, ends[:, :-1]], axis=1)) / 1e3


def table(document: dict[str, Any]) -> str:
    """The shares as Markdown: a row for each case."""
    shares = {(r["case"], r["size"], r["dtype"]): r["share"] for r in document["records"]}
    columns = [(size, dtype) for dtype in DTYPES for size in SIZES]
    names = {"float32": "fp32", "bfloat16": "bf16"}
    lines = [
        "| copy's time over ours | " + " | ".join(f"{names[d]}, {s}" for s, d in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case in CASES:
        cells = [shares.get((case, *column)) for column in columns]
        lines.append(f"| {case} | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.2f}" if share >= AIM else f"**{share:.2f}**"


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    for size in options.sizes.split(","):
        for dtype in options.dtypes.split(","):
            for case in CASES:
                if options.only in case:
                    yield case, size, dtype


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; or bring the table of the notes up to date with the record."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bandwidth", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="least length of a phase")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="measure nothing, write the notes")
    options = parser.parse_args(arguments)
    known = json.loads(options.out.read_text()) if options.out.exists() else {"records": []}
    if options.table:
        NOTES.write_text(replace_section(NOTES.read_text(), table(known), MARKS))
        return 0
    bench = Bench(options.threads, options.rounds, options.seconds)
    records = {(r["case"], r["size"], r["dtype"]): r for r in known["records"]}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    circumstances = {"commit": commit(), "taken": now}
    for case, size, dtype in _wanted(options):
        sweeps = SWEEPS.get(case, 1)
        figures = bench.measure(sized(CASES[case], DTYPES[dtype], SIZES[size], sweeps), sweeps)
        names = {"case": case, "size": size, "dtype": dtype}
        records[case, size, dtype] = names | figures | circumstances
        phases = ", ".join(f"{kernel} {micros:.1f}" for kernel, micros in figures["phases"])
        print(
            f"{figures['share']:6.2f}  {size:6} {dtype:8} {case:32} "
            f"copy {figures['copy_us']:9.1f}  {phases}", flush=True,
        )  # fmt: skip
    document = {
        "machine": describe_machine(),
        "threads": options.threads,
        "records": list(records.values()),
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
