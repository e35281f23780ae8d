"""One benchmark: several engines on one model, compared before they are timed.

Each engine lives in a process of its own, all with the same thread count, pinned to the same
cores; while one runs, the others are blocked on their pipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saccade.bundlefile import is_bundle
from saccade.cli._bench_messages import Opened
from saccade.cli._bench_process import EngineProcess
from saccade.cli._engines import Arrays, EngineSpec
from saccade.cli._rounds import Stats, alternate, cores_for, summarize
from saccade.cli._shapes import Asked, declared_as, sizes_in
from saccade.cli._signature import fixed_shapes, is_half, random_inputs, read_inputs, symbol_values
from saccade.errors import OptionError
from saccade.testing.compare import (
    ABSOLUTE_FLOOR,
    BF16_TOLERANCE,
    FP16_TOLERANCE,
    FP32_TOLERANCE,
    Comparison,
    compare_outputs,
)

__all__ = [
    "BenchResult",
    "BenchSetup",
    "make_setup",
    "open_engines",
    "ratios",
    "run_bench",
    "take_turns",
]

_TOLERANCES = {
    "fp32": FP32_TOLERANCE,
    "tf32": 2 * FP16_TOLERANCE,
    "fp16": 2 * FP16_TOLERANCE,
    "bf16": BF16_TOLERANCE,
}
"""By precision: how far two engines may be apart, each of which may be as far from the truth."""


@dataclass(frozen=True, slots=True)
class BenchSetup:
    """What to time and how.

    Attributes:
        spec: Model and setting; the engine's name in it is replaced by each of `engines`.
        inputs: Arrays by input name, the same for all.
        engines: Names, ours first.
        rounds: Turns of each engine.
        seconds: Least length of a turn.
        tolerance: Largest relative L2 distance between two engines' outputs.
    """

    spec: EngineSpec
    inputs: Arrays
    engines: tuple[str, ...]
    rounds: int = 5
    seconds: float = 1.0
    tolerance: float = FP32_TOLERANCE


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Figures by engine, in the order of the setup.

    Attributes:
        opened: Version, first answer, and work of each engine.
        comparisons: The first engine's outputs against each other engine's.
        times: Milliseconds of every run, by round; empty when the outputs differ, because then no
            time means anything.
        stats: The same, summarised.
        peak_rss_bytes: Largest resident set of each engine's process.
    """

    opened: Mapping[str, Opened]
    comparisons: Mapping[str, Sequence[Comparison]]
    times: Mapping[str, list[list[float]]] = field(default_factory=dict)
    stats: Mapping[str, Stats] = field(default_factory=dict)
    peak_rss_bytes: Mapping[str, int] = field(default_factory=dict)

    def differing(self, tolerance: float) -> list[str]:
        """Engines whose outputs are further from the first one's than `tolerance`."""
        return [
            engine
            for engine, results in self.comparisons.items()
            if not all(result.within(tolerance, ABSOLUTE_FLOOR) for result in results)
        ]


def make_setup(
    path: Path,
    engines: Sequence[str],
    shapes: Asked,
    *,
    threads: int,
    precision: str = "fp32",
    device: str = "cpu",
    rounds: int = 5,
    seconds: float = 1.0,
    algorithms: Path | None = None,
    allow_reference: bool = False,
) -> BenchSetup:
    """A setup on random inputs; `shapes` may leave out what the model fixes or has a default for.

    Raises:
        ModelError: The file is missing or not ONNX.
        InputError: The shapes do not fit the model.
        OptionError: It is a bundle, and others are to be timed.
    """
    if is_bundle(path) and len(engines) > 1:
        raise OptionError(f"{path} is a bundle, which no other engine runs: give the ONNX file")
    infos = read_inputs(path)
    axes = declared_as(infos, [shapes])
    infos = infos if axes is None else read_inputs(path, axes)
    options: dict[str, object] = {} if algorithms is None else {"algorithms": str(algorithms)}
    if allow_reference:
        options["allow_reference"] = True
    if axes is not None:
        options["shapes"] = dict(axes)
    fixed = fixed_shapes(infos, *sizes_in([shapes]))
    spec = EngineSpec(
        engine=engines[0],
        path=str(path),
        shapes=fixed,
        symbols=symbol_values(infos, fixed),
        threads=threads,
        precision=precision,
        device=device,
        options=options,
    )
    tolerance = _TOLERANCES.get(precision, BF16_TOLERANCE)
    tolerance = FP16_TOLERANCE if precision == "fp32" and is_half(path) else tolerance
    inputs = random_inputs(infos, fixed)
    return BenchSetup(spec, inputs, tuple(engines), rounds, seconds, tolerance)


def run_bench(setup: BenchSetup, report: Callable[[str], None] = lambda _text: None) -> BenchResult:
    """Open every engine, compare their outputs, and time them in alternating rounds.

    Args:
        setup: What to time.
        report: Called with a line about what happens next.
    """
    with ExitStack() as stack:
        processes, opened = open_engines(stack, setup, report)
        return take_turns(setup, processes, opened, report)


def open_engines(
    stack: ExitStack, setup: BenchSetup, report: Callable[[str], None] = lambda _text: None
) -> tuple[list[EngineProcess], dict[str, Opened]]:
    """Every engine in a process of its own, which ends with the stack, and what it said."""
    cores = cores_for(setup.spec.threads)
    processes = []
    opened: dict[str, Opened] = {}
    for name in setup.engines:
        report(f"loading {name}")
        process = stack.enter_context(EngineProcess(replace(setup.spec, engine=name)))
        opened[name] = process.open(setup.inputs, cores)
        # What it goes on with would slow the next engine's load, which is a figure as well.
        process.wait_idle()
        processes.append(process)
    return processes, opened


def take_turns(
    setup: BenchSetup,
    processes: Sequence[EngineProcess],
    opened: Mapping[str, Opened],
    report: Callable[[str], None] = lambda _text: None,
) -> BenchResult:
    """Compare the outputs of opened engines, and time them in alternating rounds."""
    result = BenchResult(opened, _compare(opened))
    # Before the clock starts: how fast a wrong answer comes means nothing.
    if result.differing(setup.tolerance):
        return result

    def tell(index: int, engine: EngineProcess) -> None:
        report(f"round {index + 1} of {setup.rounds}: {engine.spec.engine}")

    turns = alternate(processes, setup.rounds, setup.seconds, tell)
    times = dict(zip(setup.engines, turns, strict=True))
    stats = {name: summarize(one) for name, one in times.items()}
    peaks = {process.spec.engine: process.peak_rss_bytes for process in processes}
    return replace(result, times=times, stats=stats, peak_rss_bytes=peaks)


def _compare(opened: Mapping[str, Opened]) -> dict[str, list[Comparison]]:
    ours, *peers = opened
    first = _by_position(opened[ours])
    return {peer: compare_outputs(first, _by_position(opened[peer])) for peer in peers}


def _by_position(opened: Opened) -> dict[str, Any]:
    """Outputs under their positions: engines agree on the order, not always on the names."""
    return {f"output {index}": array for index, array in enumerate(opened.outputs)}


def ratios(stats: Mapping[str, Stats]) -> dict[str, float]:
    """Each peer's median over the first engine's; all were timed in the same rounds."""
    ours, *peers = stats
    return {peer: stats[peer].median_ms / stats[ours].median_ms for peer in peers}
