"""The suite of GPUs: `python -m benchmarks.suite --device cuda`.

Each engine has a process of its own on the same GPU, and they take turns; a call is timed as one of
many that follow each other, on several sets of random inputs that are on the GPU. Answers are held
against PyTorch's own kernels in float64. What cannot be measured is told and leaves no record: time
on a GPU is scarce, and one case must not take the others with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.measure import Method
from benchmarks.record import Figure, Record
from saccade.cli._bench_messages import Opened
from saccade.cli._bench_process import EngineProcess
from saccade.cli._bench_session import BenchSetup, open_engines, take_turns
from saccade.errors import SaccadeError
from saccade.testing.compare import Comparison, relative_l2

__all__ = ["SUITE", "TRUTH", "measure_gpu"]

SUITE = "cuda"
TRUTH = "torch:fp64"
_LEAST_ERROR = 1e-12
"""What stands for an answer that is the truth's to the last bit: figures are positive."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A case whose engines are open."""

    setup: BenchSetup
    processes: Sequence[EngineProcess]
    opened: Mapping[str, Opened]
    truth: Opened


def measure_gpu(
    cases: Sequence[Case],
    paths: Mapping[str, Path],
    method: Method,
    *,
    abreast: int,
    failed: Callable[[Case, SaccadeError], None],
) -> Iterator[tuple[Case, list[Record]]]:
    """Records of each case that can be measured: of its latency, and of its errors.

    Args:
        cases: What to measure.
        paths: Files by model.
        method: How.
        abreast: Cases whose engines are opened at the same time; they are timed one by one.
        failed: Told of each of the others.
    """
    for first in range(0, len(cases), abreast):
        chunk = cases[first : first + abreast]
        with ExitStack() as stack:
            loading = _opened_together(stack, chunk, paths, method)
            for case, one in zip(chunk, loading, strict=True):
                try:
                    yield case, _measured(case, one, method)
                except SaccadeError as error:
                    failed(case, error)


def _opened_together(
    stack: ExitStack, cases: Sequence[Case], paths: Mapping[str, Path], method: Method
) -> list[Future[_Loaded]]:
    """All engines of some cases, side by side; done when the last one is idle.

    What compiles would disturb what is timed.
    """
    most = max(len(method.engines or case.engines) for case in cases) + 1
    with ThreadPoolExecutor(len(cases) * most) as pool, ThreadPoolExecutor(len(cases)) as each:

        def load(case: Case) -> _Loaded:
            setup = method.setup(case, paths[case.model])
            truth = pool.submit(_truth, setup)
            alone = [replace(setup, engines=(name,)) for name in setup.engines]
            rest = [pool.submit(open_engines, stack, one) for one in alone]
            processes, opened = zip(*(one.result() for one in rest), strict=True)
            return _Loaded(
                setup,
                [process for one in processes for process in one],
                {name: said for one in opened for name, said in one.items()},
                truth.result(),
            )

        return [each.submit(load, case) for case in cases]


def _truth(setup: BenchSetup) -> Opened:
    """The answer in float64, of a process that ends with it."""
    with ExitStack() as passing:
        return open_engines(passing, replace(setup, engines=(TRUTH,)))[1][TRUTH]


def _measured(case: Case, loading: Future[_Loaded], method: Method) -> list[Record]:
    loaded, load = loading.result(), os.getloadavg()[0]
    result = take_turns(loaded.setup, loaded.processes, loaded.opened)
    if differing := result.differing(loaded.setup.tolerance):
        far = ", ".join(f"{name} by {_apart(result.comparisons[name])}" for name in differing)
        raise SaccadeError(f"outputs differ: {far}; errors {_errors(loaded)}")
    versions = {engine: opened.version for engine, opened in loaded.opened.items()}
    times = [Figure.of(name, versions[name], "ms", one) for name, one in result.times.items()]
    errors = [
        Figure.of(name, versions[name], "relative L2", [[max(error, _LEAST_ERROR)]])
        for name, error in _errors(loaded).items()
    ]
    work = loaded.opened[loaded.setup.engines[0]].work
    return [
        method.record((SUITE, "latency"), case, times, load, work=work),
        method.record((SUITE, "error"), case, errors, load),
    ]


def _errors(loaded: _Loaded) -> dict[str, float]:
    """Of each engine the largest of its outputs' errors."""
    return {
        name: max(
            relative_l2(found, wanted)
            for found, wanted in zip(opened.outputs, loaded.truth.outputs, strict=True)
        )
        for name, opened in loaded.opened.items()
    }


def _apart(comparisons: Sequence[Comparison]) -> str:
    return f"{max(one.relative_l2 for one in comparisons):.1e}"
