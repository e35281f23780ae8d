"""`saccade bench`: how fast, and how fast beside others."""

# ruff: noqa: PLC0415 - NumPy and the engines are imported when the command runs, not for --help

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saccade.cli._options import (
    AllowOption,
    DeviceOption,
    ImportOption,
    JsonOption,
    ModelArgument,
    PrecisionOption,
    ShapeOption,
    ThreadsOption,
    existing_model,
)
from saccade.cli._outputs import check_outputs, give_json
from saccade.cli._print import say, say_fitted
from saccade.cli._shape_texts import parse_shapes, usual_shapes
from saccade.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saccade.cli._bench_session import BenchResult, BenchSetup

__all__ = ["bench"]

PEERS = ("onnxruntime", "openvino", "ncnn", "inductor", "torch", "saccade:fp32")

AgainstOption = Annotated[
    str,
    typer.Option(
        metavar=",".join(PEERS),
        help="Engines to time beside Saccade (saccade:fp32 beside another precision).",
    ),
]
RoundsOption = Annotated[int, typer.Option(min=1, metavar="N", help="Turns of each engine.")]
SecondsOption = Annotated[float, typer.Option(min=0.0, metavar="S", help="Length of a turn.")]


def bench(
    model: ModelArgument,
    *,
    shape: ShapeOption = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = None,
    against: AgainstOption = "",
    rounds: RoundsOption = 5,
    seconds: SecondsOption = 1.0,
    allow_reference: AllowOption = False,
    import_algorithms: ImportOption = None,
    json: JsonOption = None,
) -> None:
    """Time MODEL on random data, alternating with other engines on the same device and cores."""
    shapes = parse_shapes(shape)
    engines = ("saccade", *_peers(against))
    path = existing_model(model)
    check_outputs(path, [import_algorithms], json=json)
    from saccade.bundlefile import is_bundle, open_bundle
    from saccade.cli._bench_session import make_setup, run_bench
    from saccade.cli._progress import working
    from saccade.options import default_threads

    # A bundle's teams are as wide as it says.
    own = open_bundle(path).head.threads if is_bundle(path) else default_threads()
    setup = make_setup(
        path,
        engines,
        usual_shapes(path, shapes),
        threads=threads or own,
        precision=precision,
        device=device,
        rounds=rounds,
        seconds=seconds,
        algorithms=import_algorithms,
        allow_reference=allow_reference,
    )
    with working(f"loading {path.name}") as report:
        result = run_bench(setup, report)
    if differing := result.differing(setup.tolerance):
        for line in _differences(result, setup, differing):
            say(line, sys.stderr)
        raise typer.Exit(1)
    document = _document(setup, result)
    say_fitted(_table(document))
    give_json(json, document)


def _peers(against: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in against.split(",") if name.strip()))
    for name in names:
        if name.startswith("saccade:") and name not in PEERS:
            precision = name.partition(":")[2]
            raise OptionError(
                f"--against {name!r}: the other way round, --precision {precision} --against "
                "saccade:fp32 times both"
            )
        if name not in PEERS:
            raise OptionError(f"--against {name!r} is not one of {', '.join(PEERS)}")
    return names


def _differences(result: BenchResult, setup: BenchSetup, engines: list[str]) -> Iterator[str]:
    from saccade.testing.compare import ABSOLUTE_FLOOR

    for engine in engines:
        for one in result.comparisons[engine]:
            if not one.within(setup.tolerance, ABSOLUTE_FLOOR):
                why = one.problem or f"relative L2 {max(one.relative_l2, one.ring_l2 or 0.0):.2e}"
                yield f"saccade: {one.name} differs from {engine}'s ({why}); nothing was timed"


def _document(setup: BenchSetup, result: BenchResult) -> dict[str, Any]:
    """What --json writes."""
    from saccade.cli._bench_session import ratios
    from saccade.report.machine import describe_machine

    return {
        "model": setup.spec.path,
        "shape": {name: list(shape) for name, shape in setup.spec.shapes.items()},
        "threads": setup.spec.threads,
        "precision": setup.spec.precision,
        "machine": describe_machine(setup.spec.device),
        "results": [
            {
                "engine": engine,
                "version": result.opened[engine].version,
                "median_ms": stats.median_ms,
                "p90_ms": stats.p90_ms,
                "min_ms": stats.min_ms,
                "runs": stats.runs,
            }
            for engine, stats in result.stats.items()
        ],
        "ratios": ratios(result.stats),
    }


def _table(document: dict[str, Any]) -> Iterator[str]:
    shapes = ", ".join(f"{n} {'x'.join(map(str, s))}" for n, s in document["shape"].items())
    yield f"{document['model']}: {shapes}, {document['threads']} thread(s), {document['precision']}"
    head = "  ".join(f"{word:>9}" for word in ("median ms", "p90 ms", "min ms"))
    yield f"{'engine':<12}  {'version':<12}  {head}  {'runs':>6}  ratio"
    for row in document["results"]:
        times = "  ".join(f"{row[key]:>9.3f}" for key in ("median_ms", "p90_ms", "min_ms"))
        ratio = document["ratios"].get(row["engine"])
        shown = "" if ratio is None else f"  {ratio:.2f}x"
        yield f"{row['engine']:<12}  {row['version']:<12}  {times}  {row['runs']:>6}{shown}"
