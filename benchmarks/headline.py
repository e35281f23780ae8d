"""The figures that pages begin with, and those of the plots: a few rows for each machine.

Rows are chosen here, not by their figures: wins and losses stand as they were recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import gpu_detectors, operators, report_gpu
from benchmarks.cases import CASES, GPU_CASES, select
from benchmarks.plot import Bar, Panel
from benchmarks.record import Record, ResultFile, by_key, load_all
from benchmarks.report_cpu import PEERS, TITLES, machine_name, number, when

__all__ = ["all_panels", "panels", "render", "render_all"]

MODELS = ("resnet50", "mobilenet_v3_large", "resnet50 bf16")
OPERATORS = (
    ("roi_align", "2x256x200x304, 1000 boxes, NCHW, forward", "float32"),
    ("nms", "4000 boxes", "float32"),
    ("vector_norm", "300x250x250, dim -1, p = 2, forward", "float32"),
)
GPU_MODELS = ("resnet50 fp16 batch 1", "resnet50 fp16 batch 32")
GPU_OPERATORS = (
    ("deform_conv2d", "6x512x19x34, 256 filters 3x3, masks, forward", "float16"),
    ("nms", "4000 boxes", "float32"),
    ("roi_pool", "2x256x200x304, 1000 boxes, NCHW, forward and backward", "float32"),
)
HEAD = ("| | Saccade | the better peer | over it |", "|---|---|---|---|")
NAMES = {**TITLES, **report_gpu.PEERS}


def render(folder: Path) -> str:
    """The README's tables as Markdown: the newest processor of each maker, and the newest GPU.

    Raises:
        RecordError: As of `render_all`.
    """
    tables = [
        _table(machine_name(results.machine), results, [], [*_networks(results, MODELS)])
        for results in _newest(folder)
    ]
    on_gpu = operators.documents(folder, operators.GPU_FILE)
    for results in _newest_gpu(folder):
        mine = [one for one in on_gpu if _is_of(one, results)]
        rows = [*_networks(results, GPU_MODELS)]
        rows += gpu_detectors.headlines(folder, results.machine["gpu"])
        rows += [row for one in mine for row in _operators(one, GPU_OPERATORS[:1], 1e3, "µs")]
        tables.append(_table(results.machine["gpu"], results, mine, rows))
    return "\n\n".join(tables)


def _newest(folder: Path) -> list[ResultFile]:
    """The newest processor of each maker."""
    makers: dict[str, ResultFile] = {}
    for results in sorted(_whole(folder), key=_generation):
        makers[results.machine["cpu"].partition(" ")[0]] = results
    return [results for _, results in sorted(makers.items())]


def _newest_gpu(folder: Path) -> list[ResultFile]:
    """It alone, if there is one."""
    return sorted(load_all(folder, "cuda"), key=_newness)[-1:]


def _generation(results: ResultFile) -> tuple[int, int, tuple[str, str]]:
    """The processor's, by its maker's count, whatever was measured last."""
    family, model = (int(results.machine.get(name) or 0) for name in ("family", "model"))
    return family, model, _newness(results)


def _newness(results: ResultFile) -> tuple[str, str]:
    """When the last of it was measured; the name, as several may be of a day."""
    last = max(record.taken[:10] for record in results.records)
    return last, results.machine.get("gpu") or machine_name(results.machine)


def _whole(folder: Path) -> Iterator[ResultFile]:
    """Of processors that were measured at all of `MODELS`; others stand in other tables alone."""
    for results in load_all(folder, "latency"):
        if {(name, "latency") for name in MODELS} <= by_key(results).keys():
            yield results


def _is_of(document: operators.Document, results: ResultFile) -> bool:
    return bool(document.gpu == results.machine["gpu"])


def render_all(folder: Path) -> str:
    """A small table for each machine as Markdown: networks, the first answer, operators.

    Raises:
        RecordError: A record breaks its schema, or lacks one of the rows.
    """
    on_cpu, on_gpu = operators.documents(folder), operators.documents(folder, operators.GPU_FILE)
    parts = []
    for results in _whole(folder):
        name = machine_name(results.machine)
        mine = [one for one in on_cpu if one.machine == results.machine]
        starts = [s for s in load_all(folder, "startup") if s.machine == results.machine]
        rows = [*_networks(results, MODELS), *(row for s in starts for row in _first_answer(s))]
        rows += [row for one in mine for row in _operators(one, OPERATORS, 1.0, "ms")]
        parts.append(_table(name, results, mine, rows))
    for results in load_all(folder, "cuda"):
        mine = [one for one in on_gpu if _is_of(one, results)]
        rows = [*_networks(results, GPU_MODELS)]
        rows += gpu_detectors.headlines(folder, results.machine["gpu"])
        rows += [row for one in mine for row in _operators(one, GPU_OPERATORS, 1e3, "µs")]
        parts.append(_table(results.machine["gpu"], results, mine, rows))
    return "\n\n".join(parts)


def _table(name: str, results: ResultFile, mine: list[operators.Document], rows: list[str]) -> str:
    told = f"**{name}**: networks measured {when(results.records)}"
    told += "".join(f", operators beside {operators.versions(one.rows)}" for one in mine)
    return "\n".join((f"{told}.", "", *HEAD, *rows))


def _networks(results: ResultFile, names: tuple[str, ...]) -> Iterator[str]:
    records = by_key(results)
    for case in select(", ".join(names), CASES + GPU_CASES):
        record = records.get((case.name, "latency"))
        if record is not None:
            shape = "x".join(map(str, case.shape))
            yield _row(f"{case.model} {shape}, {case.precision}", record)


def _first_answer(results: ResultFile) -> Iterator[str]:
    """Of one model, from an empty cache, and from one that an earlier start filled."""
    records = by_key(results)
    for (case, measure), cold in records.items():
        if (case, measure) == (MODELS[0], "cold"):
            warm = records[case, "warm"]
            peers = [figure for figure in warm.figures if figure.engine in PEERS]
            better = min(peers, key=lambda figure: figure.median)
            beside = f"{NAMES[better.engine]} {number(better.median)} s"
            for how, record in (("the first time", cold), ("later", warm)):
                figure = record.figure("saccade")
                assert figure is not None, "the suite does without nobody"
                over = operators.ratio_text(better.median / figure.median)
                label = f"first answer of a process, {case}, {how}"
                yield f"| {label} | {number(figure.median)} s | {beside} | {over} |"


def _row(label: str, record: Record) -> str:
    ours = record.figure("saccade")
    assert ours is not None, "every record of the suites has one"
    better = min(_peers(record), key=lambda figure: figure.median)
    times = f"{number(ours.median)} ms | {NAMES[better.engine]} {number(better.median)} ms"
    return f"| {label} | {times} | {operators.ratio_text(better.median / ours.median)} |"


def _peers(record: Record) -> list[Any]:
    return [figure for figure in record.figures if figure.engine in NAMES.keys() - {"saccade"}]


def _operators(
    document: operators.Document, chosen: tuple[tuple[str, str, str], ...], scale: float, unit: str
) -> Iterator[str]:
    rows = {(row["operator"], row["case"], row["dtype"], row["peer"]): row for row in document.rows}
    for (operator, case, dtype, peer), row in rows.items():
        if (operator, case, dtype) in chosen and peer in operators.PEERS:
            ours, theirs = (number(scale * row[key]) for key in ("ours_ms", "peer_ms"))
            label = f"`{operator}`, {case}, {dtype}"
            times = f"{ours} {unit} | {operators.PEERS[peer]} {theirs} {unit}"
            yield f"| {label} | {times} | {operators.ratio_text(row['ratio'])} |"


def panels(folder: Path) -> list[Panel]:
    """How many times as fast as the better peer networks run image by image: the README's machines.

    Raises:
        RecordError: As of `render_all`.
    """
    return [
        *(_on_cpu(results, most=1) for results in _newest(folder)),
        *(_on_gpu(results, most=1) for results in _newest_gpu(folder)),
    ]


def all_panels(folder: Path) -> list[Panel]:
    """The same of every machine, in batches too.

    Raises:
        RecordError: As of `render_all`.
    """
    return [
        *map(_on_cpu, load_all(folder, "latency")),
        *map(_on_gpu, load_all(folder, "cuda")),
    ]


def _on_cpu(results: ResultFile, most: float = math.inf) -> Panel:
    """Of batches up to `most`."""
    records = [r for r in results.records if r.precision == "fp32" and r.shape[0] <= most]
    name = f"{machine_name(results.machine)}, fp32"
    return Panel(name, "the better of ONNX Runtime and OpenVINO", _bars(records))


def _on_gpu(results: ResultFile, most: float = math.inf) -> Panel:
    latencies = [latency for _, latency, _ in report_gpu.rows_of(results)]
    records = [r for r in latencies if r.precision == "fp16" and r.shape[0] <= most]
    engines = [e for e in report_gpu.PEERS if any(r.figure(e) for r in records)]
    peers = " and ".join(report_gpu.PEERS[engine] for engine in engines)
    peers = f"the better of {peers}" if len(engines) > 1 else peers
    return Panel(f"{results.machine['gpu']}, fp16", peers, _bars(records))


def _bars(records: list[Record]) -> tuple[Bar, ...]:
    bars = []
    for record in records:
        ours, peers = record.figure("saccade"), _peers(record)
        if ours is not None and peers:
            batch = f", batch {record.shape[0]}" if record.shape[0] > 1 else ""
            name = record.case.partition(" ")[0] + batch
            bars.append(Bar(name, min(p.median for p in peers) / ours.median))
    return tuple(bars)
