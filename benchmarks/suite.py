"""Measure: `python -m benchmarks.suite --models DIR [--suites …] [--cases …]`.

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
from benchmarks.cases import CASES, Case, cases_of, select
from benchmarks.measure import MEASURES, Method
from benchmarks.models import prepare
from benchmarks.record import SCHEMA, ResultFile, load, merge, save
from saccade.cli._machine import describe_machine
from saccade.errors import SaccadeError
from saccade.options import default_threads

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites; 0 when every case of every suite was measured."""
    options = _parser().parse_args(arguments)
    method = Method(
        engines=tuple(options.engines.split(",")) if options.engines else (),
        threads=options.threads,
        rounds=options.rounds,
        seconds=options.seconds,
    )
    try:
        cases = select(options.cases)
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.filled or Path(scratch)
            paths = prepare(options.models, [case.model for case in cases], folder)
            for suite in options.suites.split(","):
                chosen = cases_of(suite) if cases == CASES else cases
                _run(suite, chosen, paths, method, options.results)
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
    return parser


def _run(
    suite: str, cases: Sequence[Case], paths: dict[str, Path], method: Method, folder: Path
) -> None:
    if suite not in MEASURES:
        raise ValueError(f"no suite {suite!r}; there are {', '.join(MEASURES)}")
    file = folder / f"{suite}.json"
    ceilings = peaks.measure(method.threads)
    for case in cases:
        records = MEASURES[suite](case, paths[case.model], method)
        new = ResultFile(SCHEMA, suite, describe_machine(), ceilings, tuple(records))
        save(file, merge(load(file) if file.exists() else None, new))
        for record in records:
            figures = ", ".join(f"{f.engine} {f.median:.4g} {f.unit}" for f in record.figures)
            print(f"{suite} {record.measure}, {record.case}: {figures}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
