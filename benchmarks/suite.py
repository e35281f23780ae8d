"""Measure: `python -m benchmarks.suite --models DIR [--suites …] [--cases …]`.

With `--device cuda`, the suite of GPUs: see `benchmarks/gpu.py`.

Records go to `results/SUITE.json`; those of the cases measured now replace the old ones. The run
fails, with what it has so far written, at the first case that is missing, wrong, or raises.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peaks
from benchmarks.cases import CASES, GPU_CASES, STARTS, Case, cases_of, select
from benchmarks.gpu import SUITE, measure_gpu
from benchmarks.measure import MEASURES, Method
from benchmarks.models import prepare
from benchmarks.record import SCHEMA, Record, ResultFile, load, merge, save
from saccade.errors import SaccadeError
from saccade.options import default_threads
from saccade.report.machine import describe_machine

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites; 0 when every case of every suite was measured."""
    options = _parser().parse_args(arguments)
    method = Method(
        engines=tuple(options.engines.split(",")) if options.engines else (),
        threads=options.threads,
        rounds=options.rounds,
        seconds=options.seconds,
        device=options.device,
        bundles=options.bundles,
        kernels=options.kernels,
        commit=options.commit,
    )
    on_gpu = options.device != "cpu"
    try:
        # The same cases may be of several suites.
        known = GPU_CASES if on_gpu else tuple(dict.fromkeys((*CASES, *STARTS)))
        cases = select(options.cases, known)
        suites = [SUITE] if on_gpu else options.suites.split(",")
        chosen = {suite: cases_of(suite) if cases == known else cases for suite in suites}
        models = [case.model for some in chosen.values() for case in some]
        with tempfile.TemporaryDirectory() as scratch:
            paths = prepare(options.models, models, options.filled or Path(scratch))
            if on_gpu:
                return _run_gpu(cases, paths, method, options.results, options.abreast)
            for suite, some in chosen.items():
                _run(suite, some, paths, method, options.results)
    except (SaccadeError, OSError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    add = parser.add_argument
    add("--models", type=Path, required=True, help="folder of ONNX files, or of those and fill.py")
    add("--filled", type=Path, help="folder that keeps the filled models for the next run")
    add("--suites", default=",".join(MEASURES), help="comma-separated; default: all")
    add("--cases", default="", help="comma-separated names; default: all")
    add("--engines", default="", help="comma-separated, ours first; default: those of each case")
    add("--threads", type=int, default=default_threads())
    add("--rounds", type=int, default=5, help="turns of each engine")
    add("--seconds", type=float, default=1.0, help="least length of a turn")
    add("--results", type=Path, default=RESULTS, help="folder of the records")
    add("--device", choices=("cpu", SUITE), default="cpu", help="what to measure on")
    add("--bundles", type=Path, help="folder of MODEL_PRECISION.saccade that Saccade runs")
    add("--kernels", type=Path, help="folder of a package saccade_kernels, for first answers")
    add("--commit", default="", help="what is measured, where git cannot tell")
    add("--abreast", type=int, default=6, help="cases that compile at the same time for a GPU")
    return parser


def _run(
    suite: str, cases: Sequence[Case], paths: dict[str, Path], method: Method, folder: Path
) -> None:
    if suite not in MEASURES:
        raise ValueError(f"no suite {suite!r}; there are {', '.join(MEASURES)}")
    machine, ceilings = describe_machine(), peaks.measure(method.threads)
    for case in cases:
        records = MEASURES[suite](case, paths[case.model], method)
        _keep(folder, ResultFile(SCHEMA, suite, machine, ceilings, tuple(records)))


def _run_gpu(
    cases: Sequence[Case], paths: dict[str, Path], method: Method, folder: Path, abreast: int
) -> int:
    """The exit status: 0 when every case was measured."""
    machine = describe_machine(method.device)
    machine.pop("memory_bytes", None)  # which grows while it is used, where machines are virtual
    failures: list[str] = []

    def failed(case: Case, error: SaccadeError) -> None:
        failures.append(case.name)
        print(f"benchmarks: {case.name}: {error}", file=sys.stderr, flush=True)

    for _, records in measure_gpu(cases, paths, method, abreast=abreast, failed=failed):
        _keep(folder, ResultFile(SCHEMA, SUITE, machine, {}, tuple(records)))
    return 1 if failures else 0


def _keep(folder: Path, new: ResultFile) -> None:
    """Write records beside those that are there, and say what they are."""
    file = folder / f"{new.suite}.json"
    save(file, merge(load(file) if file.exists() else None, new))
    for record in new.records:
        print(f"{new.suite} {record.measure}, {record.case}: {_text(record)}", flush=True)


def _text(record: Record) -> str:
    return ", ".join(f"{f.engine} {f.median:.4g} {f.unit}" for f in record.figures)


if __name__ == "__main__":
    sys.exit(main())
