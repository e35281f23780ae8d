"""One function per suite: a case in, its records out.

Every function opens the engines in processes of their own, lets them take turns, and returns what
they took; nothing is caught, so a case that fails fails the run.
"""

from __future__ import annotations

import compileall
import datetime
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import saccade
from benchmarks.cases import Case
from benchmarks.new_sizes import costs_of
from benchmarks.record import Figure, Record
from saccade.cli._bench_messages import Opened
from saccade.cli._bench_process import EngineProcess
from saccade.cli._bench_session import BenchResult, BenchSetup, make_setup, run_bench
from saccade.cli._rounds import alternate, cores_for
from saccade.cli._signature import read_inputs
from saccade.errors import SaccadeError

__all__ = ["MEASURES", "Method"]

CALLERS = 8


@dataclass(frozen=True, slots=True)
class Method:
    """How to measure.

    Attributes:
        engines: In turn order, ours first; empty for those that each case names.
        threads: Width of the engines' pools.
        rounds, seconds: Turns of each engine, and their least length.
        device: Where, as `saccade.compile` spells it.
        bundles: A folder of bundles MODEL_PRECISION.saccade, which Saccade runs where there is one.
        kernels: A folder that holds a package of compiled kernels, `saccade_kernels`.
        commit: What is measured, where there is no repository that would say it.
    """

    engines: tuple[str, ...]
    threads: int
    rounds: int
    seconds: float
    device: str = "cpu"
    bundles: Path | None = None
    kernels: Path | None = None
    commit: str = ""

    def setup(self, case: Case, path: Path) -> BenchSetup:
        """The case on the same random input for all engines."""
        (info,) = read_inputs(path)
        made = make_setup(
            path,
            self.engines or case.engines,
            {info.name: case.shape},
            threads=self.threads,
            precision=case.precision,
            device=self.device,
            rounds=self.rounds,
            seconds=self.seconds,
        )
        bundle = self.bundles and self.bundles / f"{case.model}_{case.precision}.saccade"
        if bundle is None or not bundle.is_file():
            return made
        return replace(made, spec=replace(made.spec, bundle=str(bundle)))

    def record(
        self,
        name: tuple[str, str],
        case: Case,
        figures: Sequence[Figure],
        load: float,
        *,
        threads: int | None = None,
        work: Mapping[str, int] | None = None,
    ) -> Record:
        """A record of these figures, with the circumstances; `name` is suite and measure."""
        return Record(
            suite=name[0],
            measure=name[1],
            case=case.name,
            shape=case.shape,
            threads=threads or self.threads,
            precision=case.precision,
            commit=self.commit or commit(),
            taken=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            load=load,
            figures=tuple(figures),
            work=dict(work or {}),
        )


def commit() -> str:
    """The commit of the working tree, with a `+` when the sources have changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ":/src", ":/benchmarks/*.py")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def latency(case: Case, path: Path, method: Method) -> list[Record]:
    """Milliseconds of one run, after the outputs were compared."""
    load = os.getloadavg()[0]
    setup = method.setup(case, path)
    result = run_bench(setup)
    if differing := result.differing(setup.tolerance):
        raise SaccadeError(f"{case.name}: outputs differ from those of {', '.join(differing)}")
    return [_latency_record("latency", case, method, setup, result, load)]


def detectors(case: Case, path: Path, method: Method) -> list[Record]:
    """The same of detectors, whose boxes of nearly equal scores come in any order.

    Scores, at least, have to agree with the peers'; `tests/models` compares boxes and classes, too.
    """
    load = os.getloadavg()[0]
    setup = method.setup(case, path)
    result = run_bench(replace(setup, tolerance=math.inf))
    for engine, comparisons in result.comparisons.items():
        wrong = [one.name for one in comparisons if not one.within(setup.tolerance)]
        if len(wrong) == len(comparisons):
            raise SaccadeError(f"{case.name}: {', '.join(wrong)} differ from those of {engine}")
    return [_latency_record("detectors", case, method, setup, result, load)]


def _latency_record(
    suite: str, case: Case, method: Method, setup: BenchSetup, result: BenchResult, load: float
) -> Record:
    versions = {engine: opened.version for engine, opened in result.opened.items()}
    figures = _figures(result.times, versions, "ms")
    ours = result.opened[setup.engines[0]]
    return method.record((suite, "latency"), case, figures, load, work=ours.work)


def startup(case: Case, path: Path, method: Method) -> list[Record]:
    """Seconds to the first answer in a fresh process, with an empty and a filled cache.

    With a package of compiled kernels, those of an empty cache beside it are a record of their own.
    Measured from the call that loads the model, whatever it imports late included; what importing
    the engine's package takes beyond NumPy is a record of its own. The file is in the system's page
    cache for all, and Python's code compiled, as installing a package leaves it. Peers keep no
    cache, so that cold and warm are two looks at the same.
    """
    load = os.getloadavg()[0]
    setup = method.setup(case, path)
    compileall.compile_dir(Path(saccade.__file__).parent, quiet=1)
    states = ("cold", "warm", "import", *(["kernels"] if method.kernels else []))
    answers: dict[str, dict[str, list[list[float]]]] = {state: {} for state in states}
    versions: dict[str, str] = {}
    for _ in range(method.rounds):
        for engine in setup.engines:
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    opened, _peak = _fresh(setup, engine, cache)
                    answers[state].setdefault(engine, []).append([opened.first_answer_s])
            if method.kernels and engine == "saccade":
                with tempfile.TemporaryDirectory() as cache:
                    opened, _peak = _fresh(setup, engine, cache, method.kernels)
                answers["kernels"].setdefault(engine, []).append([opened.first_answer_s])
            answers["import"].setdefault(engine, []).append([_import_seconds(engine)])
            versions[engine] = opened.version
    return [
        method.record(("startup", state), case, _figures(rounds, versions, "s"), load)
        for state, rounds in answers.items()
    ]


def memory(case: Case, path: Path, method: Method) -> list[Record]:
    """Largest resident set in MiB of a process that loads and runs the model.

    With a filled cache and with an empty one; compilers are processes of their own, and not
    counted. Peers keep no cache, and have the first record alone.
    """
    load = os.getloadavg()[0]
    setup = method.setup(case, path)
    peaks: dict[str, dict[str, list[list[float]]]] = {"peak_rss": {}, "peak_rss_cold": {}}
    versions: dict[str, str] = {}
    for engine in setup.engines:
        for _ in range(method.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("peak_rss_cold", "peak_rss"):
                    opened, peak = _fresh(setup, engine, cache)
                    if state == "peak_rss" or engine == "saccade":
                        peaks[state].setdefault(engine, []).append([peak / 2**20])
            versions[engine] = opened.version
    return [
        method.record(("memory", state), case, _figures(found, versions, "MiB"), load)
        for state, found in peaks.items()
        if found
    ]


def threads(case: Case, path: Path, method: Method) -> list[Record]:
    """Milliseconds with one thread and with all, every engine at both widths in the same rounds."""
    load = os.getloadavg()[0]
    setup = method.setup(case, path)
    widths = sorted({1, method.threads})
    with ExitStack() as stack:
        opened, processes = [], []
        for width in widths:
            for engine in setup.engines:
                spec = replace(setup.spec, engine=engine, threads=width)
                process = stack.enter_context(EngineProcess(spec))
                opened.append(process.open(setup.inputs, cores_for(width)))
                process.wait_idle()
                processes.append(process)
        times = alternate(processes, method.rounds, method.seconds)
    records = []
    for width in widths:
        figures = [
            Figure.of(process.spec.engine, one.version, "ms", rounds)
            for process, one, rounds in zip(processes, opened, times, strict=True)
            if process.spec.threads == width
        ]
        name = ("threads", f"threads={width}")
        records.append(method.record(name, case, figures, load, threads=width))
    return records


def concurrency(case: Case, path: Path, method: Method) -> list[Record]:
    """Runs per second of one loop, and of several Python threads that share the model."""
    load = os.getloadavg()[0]
    setup = method.setup(case, path)
    rates: dict[int, dict[str, list[list[float]]]] = {1: {}, CALLERS: {}}
    versions: dict[str, str] = {}
    with ExitStack() as stack:
        processes = []
        for engine in setup.engines:
            process = stack.enter_context(EngineProcess(replace(setup.spec, engine=engine)))
            versions[engine] = process.open(setup.inputs, cores_for(method.threads)).version
            process.wait_idle()
            processes.append(process)
        for _ in range(method.rounds):
            for process in processes:
                for callers, collected in rates.items():
                    done = process.round(method.seconds, callers)
                    rate = len(done.times_ms) / done.wall_s
                    collected.setdefault(process.spec.engine, []).append([rate])
    return [
        method.record(
            ("concurrency", f"callers={callers}"), case, _figures(rounds, versions, "1/s"), load
        )
        for callers, rounds in rates.items()
    ]


def sizes(case: Case, path: Path, method: Method) -> list[Record]:
    """Milliseconds that the first run at another input size takes beyond its repetition.

    A round is a process that meets 40 sizes on an empty cache; planning, which Saccade alone shows,
    is timed on 24 more.
    """
    load = os.getloadavg()[0]
    found: dict[str, dict[str, list[list[float]]]] = {}
    versions: dict[str, str] = {}
    for turn in range(method.rounds):
        for engine in method.engines or case.engines:
            versions[engine], costs = costs_of(engine, path, case.shape, method.threads, turn)
            for what, times in costs.items():
                found.setdefault(what, {}).setdefault(engine, []).append(times)
    return [
        method.record(("sizes", what), case, _figures(rounds, versions, "ms"), load)
        for what, rounds in found.items()
    ]


MEASURES: Mapping[str, Callable[[Case, Path, Method], list[Record]]] = {
    "latency": latency,
    "startup": startup,
    "threads": threads,
    "concurrency": concurrency,
    "memory": memory,
    "sizes": sizes,
    "detectors": detectors,
}


def _fresh(
    setup: BenchSetup, engine: str, cache: str, kernels: Path | None = None
) -> tuple[Opened, int]:
    """What an engine says in a new process on this cache folder, and its largest resident set.

    With `kernels`, a folder that holds `saccade_kernels` is on Python's path.
    """
    environment = {**os.environ, "SACCADE_CACHE_DIR": cache}
    if kernels:
        paths = (str(kernels.resolve()), os.environ.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with EngineProcess(replace(setup.spec, engine=engine), environment) as process:
        # Without its work: the machine's speeds would be looked for, in buffers of their own.
        opened = process.open(setup.inputs, cores_for(setup.spec.threads), work=False)
        process.wait_idle()
        process.round(0.0)
        return opened, process.peak_rss_bytes


def _import_seconds(package: str) -> float:
    """Seconds that importing the package takes in a fresh interpreter that has NumPy already."""
    code = (
        "import time, numpy; start = time.perf_counter(); "
        f"import {package.partition(':')[0]}; print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _figures(
    rounds: Mapping[str, Sequence[Sequence[float]]], versions: Mapping[str, str], unit: str
) -> list[Figure]:
    return [Figure.of(engine, versions[engine], unit, one) for engine, one in rounds.items()]
