"""The tables of networks on GPUs, from records of `python -m benchmarks.suite --device cuda`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.cases import GPU_CASES, Case
from benchmarks.record import Figure, Record, RecordError, ResultFile, by_key, load_all
from benchmarks.report_cpu import when

__all__ = ["FILE", "PEERS", "render", "rows_of"]

FILE = "cuda.json"
PEERS = {"inductor": "torch.compile", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
"""Engines that may stand beside ours, in the order of the columns."""
MISSING = "–"


def render(folder: Path) -> str:
    """A table for each GPU as Markdown; cases that were not measured are named below it.

    Raises:
        RecordError: A file is broken, or a case was measured at another shape.
    """
    found = load_all(folder, "cuda")
    if not found:
        raise RecordError(f"{folder}: no {FILE}")
    return "\n\n".join("\n".join(_lines(results, rows_of(results))) for results in found)


def rows_of(results: ResultFile) -> list[tuple[Case, Record, Record | None]]:
    """The cases that were measured, with their latency and, where it is known, their error.

    Raises:
        RecordError: There is none, or one was measured on something else, or without us.
    """
    records = by_key(results)
    rows = [
        (case, records[case.name, "latency"], records.get((case.name, "error")))
        for case in GPU_CASES
        if (case.name, "latency") in records
    ]
    for case, latency, _ in rows:
        if latency.shape != case.shape or latency.precision != case.precision:
            raise RecordError(f"{FILE}: {case.name} was measured on something else")
        if latency.figure("saccade") is None:
            raise RecordError(f"{FILE}: {case.name}: no figure of saccade")
    if not rows:
        raise RecordError(f"{FILE}: no case of the suite is in it")
    return rows


def _lines(results: ResultFile, rows: list[tuple[Case, Record, Record | None]]) -> Iterator[str]:
    peers = [one for one in PEERS if any(latency.figure(one) for _, latency, _ in rows)]
    yield f"### {results.machine.get('gpu', 'a GPU without a name')}"
    yield ""
    yield _circumstances(results, [latency for _, latency, _ in rows], peers)
    yield ""
    times = [f"{name}, µs" for name in ("Saccade", *(PEERS[one] for one in peers))]
    errors = [f"error: {name}" for name in ("Saccade", *(PEERS[one] for one in peers))]
    over = ["over the better peer"] if len(peers) > 1 else [f"over {PEERS[one]}" for one in peers]
    yield from _head(["model", "input", "precision", *times, *over, "of the floor", *errors])
    for case, latency, error in rows:
        yield f"| {' | '.join(_row(case, latency, error, peers))} |"
    done = {case.name for case, _, _ in rows}
    left = [case.name for case in GPU_CASES if case.name not in done]
    if left:
        yield f"\nNot measured: {', '.join(left)}."


def _row(case: Case, latency: Record, error: Record | None, peers: list[str]) -> Iterator[str]:
    ours = latency.figure("saccade")
    assert ours is not None, "`render` looks at that"
    yield from (case.model, "x".join(map(str, case.shape)), case.precision, _time(ours))
    others = [latency.figure(peer) for peer in peers]
    yield from map(_time, others)
    best = min((one.median for one in others if one is not None), default=None)
    if peers:
        yield MISSING if best is None else f"{best / ours.median:.2f}x"
    floor = latency.work.get("floor_us")
    yield MISSING if floor is None else f"{floor / (1e3 * ours.median):.0%}"
    for engine in ("saccade", *peers):
        found = error.figure(engine) if error is not None else None
        yield MISSING if found is None else f"{found.median:.1e}"


def _time(figure: Figure | None) -> str:
    """Microseconds, and half the distance of the quartiles in percent of them."""
    if figure is None:
        return MISSING
    spread = (figure.q3 - figure.q1) / (2 * figure.median)
    return f"{1e3 * figure.median:.0f} ± {spread:.1%}"


def _circumstances(results: ResultFile, records: list[Record], peers: list[str]) -> str:
    machine: Mapping[str, str] = results.machine
    versions = {f.engine: f.version for record in records for f in record.figures}
    beside = ", ".join(f"{PEERS[one]} {versions[one]}" for one in peers)
    driver = f"driver {machine['gpu_driver']}, " if "gpu_driver" in machine else ""
    try:
        has = f"{machine['gpu_multiprocessors']} multiprocessors, {driver}CUDA {machine['cuda']}"
        gpu = f"{machine['gpu']} ({has})"
    except KeyError as error:
        raise RecordError(f"{FILE}: the machine does not state {error}") from None
    return (
        f"{gpu}: medians ± half the distance of the quartiles, of calls that follow each other on "
        "several sets of random inputs on the GPU, engines by turns in processes of their own. "
        f"Saccade {versions['saccade']}{', ' + beside if beside else ''}; torch.compile with "
        "freezing, channels-last, `reduce-overhead`; CUDA graphs on both sides. Errors: relative "
        f"L2 against PyTorch's kernels in float64. Measured {when(records)}."
    )


def _head(cells: list[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"
    yield f"|{'|'.join('---' for _ in cells)}|"
