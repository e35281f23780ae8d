"""Tables of the CPU suites, one for each machine, from the records of `python -m benchmarks.suite`.

Losses stand beside wins. A case or an engine without a figure is an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.cases import Case, cases_of
from benchmarks.record import Figure, Record, RecordError, ResultFile, by_key, load_all

__all__ = [
    "PEERS",
    "TITLES",
    "circumstances",
    "machine_name",
    "number",
    "over_the_better",
    "render",
    "rows_of",
    "when",
]

PEERS = ("onnxruntime", "openvino")
TITLES = {"saccade": "Saccade", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
DIGITS = 3


def render(folder: Path) -> str:
    """All tables as Markdown: a heading for each suite that was measured, below it each machine's.

    Raises:
        RecordError: There is no record of latency, or a record lacks a case or an engine.
    """
    parts = []
    for suite, tables in SUITE_TABLES.items():
        found = load_all(folder, suite)
        if suite == "latency" and not found:
            raise RecordError(f"{folder}: no latency.json")
        for title, table in tables.items():
            parts += [f"## {title}"] if found else []
            parts += filter(None, (_of_machine(results, table) for results in found))
    return "\n\n".join(parts)


def _of_machine(results: ResultFile, table: Callable[[ResultFile], Iterator[str]]) -> str:
    told, lines = circumstances(results, results.records), list(table(results))
    head = (f"### {machine_name(results.machine)}", "", told, "")
    return "\n".join((*head, *lines)) if lines else ""


def _latency(results: ResultFile) -> Iterator[str]:
    rows = [
        (case, record) for case, record in rows_of(results, "latency") if case.precision == "fp32"
    ]
    head = ["model", "input", *(f"{TITLES[e]}, ms" for e in TITLES), "over the better peer"]
    yield from _head([*head, "GFLOP/s", "of the floor"])
    for case, record in rows:
        ours, peers = _median(record, "saccade"), [_median(record, peer) for peer in PEERS]
        times = " | ".join(number(value) for value in (ours, *peers))
        rate = _work(record, "flops") / ours / 1e6
        share = _work(record, "floor_us") / ours / 1e3
        values = f"{over_the_better(record):.2f}x | {rate:.0f} | {share:.0%}"
        yield f"| {case.model} | {_shape(case)} | {times} | {values} |"
    for case, record in rows:
        ncnn = record.figure("ncnn")
        if ncnn is not None:
            ours, theirs, version = _median(record, "saccade"), ncnn.median, ncnn.version
            yield (
                f"\nncnn {version}, which has Winograd too, took {number(theirs)} ms "
                f"for {case.name} in the same rounds: {theirs / ours:.2f}x."
            )


def _bf16(results: ResultFile) -> Iterator[str]:
    rows = [row for row in rows_of(results, "latency") if row[0].precision == "bf16"]
    if not rows:
        return
    yield "Beside OpenVINO's bf16 and our own fp32, each row from the same rounds.\n"
    head = ["Saccade bf16, ms", "OpenVINO bf16, ms", "over OpenVINO", "Saccade fp32, ms"]
    yield from _head(["model", "input", *head, "over our fp32", "of the floor"])
    for case, record in rows:
        ours, peer = _median(record, "saccade"), _median(record, "openvino")
        single = _median(record, "saccade:fp32")
        share = _work(record, "floor_us") / ours / 1e3
        yield (
            f"| {case.model} | {_shape(case)} | {number(ours)} | {number(peer)} "
            f"| {peer / ours:.2f}x | {number(single)} | {single / ours:.2f}x | {share:.0%} |"
        )


def _shape(case: Case) -> str:
    return "x".join(map(str, case.shape))


def _work(record: Record, what: str) -> int:
    try:
        return record.work[what]
    except KeyError as error:
        raise RecordError(f"{record.case}: the record does not state {error}") from None


def _startup(results: ResultFile) -> Iterator[str]:
    ours = ("first answer, s: Saccade cold", "with compiled kernels", "warm")
    yield from _head(["model", *ours, *(TITLES[p] for p in PEERS)])
    known = by_key(results)
    for (case, cold), (_, warm) in zip(
        rows_of(results, "cold"), rows_of(results, "warm"), strict=True
    ):
        made = known.get((case.name, "kernels"))
        values = [
            number(_median(cold, "saccade")),
            number(_median(made, "saccade")) if made else "-",
        ]
        values += [number(_median(warm, engine)) for engine in TITLES]
        yield f"| {case.name} | {' | '.join(values)} |"
    imports = [record for _, record in rows_of(results, "import")]
    texts = [
        f"{TITLES[engine]} {number(min(_median(record, engine) for record in imports))} s"
        for engine in TITLES
    ]
    yield f"\nImporting, beyond NumPy: {', '.join(texts)}."


def _memory(results: ResultFile) -> Iterator[str]:
    ours, *peers = (TITLES[engine] for engine in TITLES)
    yield from _head(["model", f"peak memory, MiB: {ours}", "with an empty cache", *peers])
    known = by_key(results)
    for case, record in rows_of(results, "peak_rss"):
        cold = known.get((case.name, "peak_rss_cold"))
        first, *others = (f"{_median(record, engine):.0f}" for engine in TITLES)
        empty = f"{_median(cold, 'saccade'):.0f}" if cold else "-"
        yield f"| {case.name} | {' | '.join((first, empty, *others))} |"


def _threads(results: ResultFile) -> Iterator[str]:
    widths = sorted({record.threads for record in results.records})
    low, high = widths[0], widths[-1]
    speedups = [f"{high} threads over {low}: {TITLES[engine]}" for engine in TITLES]
    ratios = [f"over the better peer, {n} thread{'s' if n > 1 else ''}" for n in (low, high)]
    yield from _head(["model", *speedups, *ratios])
    for (case, few), (_, many) in zip(
        rows_of(results, f"threads={low}"), rows_of(results, f"threads={high}"), strict=True
    ):
        values = [f"{_median(few, e) / _median(many, e):.2f}x" for e in TITLES]
        values += [f"{over_the_better(record):.2f}x" for record in (few, many)]
        yield f"| {case.name} | {' | '.join(values)} |"


def over_the_better(record: Record) -> float:
    """How many times the better peer's time is ours."""
    return min(_median(record, peer) for peer in PEERS) / _median(record, "saccade")


def _concurrency(results: ResultFile) -> Iterator[str]:
    yield from _head(
        ["model", *(f"runs a second, 8 callers (1 caller): {TITLES[e]}" for e in TITLES)]
    )
    for (case, one), (_, many) in zip(
        rows_of(results, "callers=1"), rows_of(results, "callers=8"), strict=True
    ):
        values = [f"{number(_median(many, e))} ({number(_median(one, e))})" for e in TITLES]
        yield f"| {case.name} | {' | '.join(values)} |"


def rows_of(results: ResultFile, measure: str) -> Iterator[tuple[Case, Record]]:
    """Every case of the suite with its record of this measure.

    Of first answers and memory those that were measured: records may be older than cases. A machine
    that does not multiply bfloat16 has no records of it.

    Raises:
        RecordError: One is missing, or was taken at another shape.
    """
    records = by_key(results)
    for case in cases_of(results.suite):
        record = records.get((case.name, measure))
        unable = case.precision == "bf16" and "avx512_bf16" not in results.machine.get("flags", ())
        if record is None and (unable or results.suite in {"startup", "memory"}):
            continue
        if record is None or record.shape != case.shape:
            raise RecordError(f"{results.suite}: no {measure} record of {case.name}")
        yield case, record


def _median(record: Record, engine: str) -> float:
    return _figure(record, engine).median


def _figure(record: Record, engine: str) -> Figure:
    figure = record.figure(engine)
    if figure is None:
        raise RecordError(f"{record.case}, {record.measure}: no figure of {engine}")
    return figure


def machine_name(machine: Mapping[str, str]) -> str:
    """The processor, as headings have it."""
    return f"{machine['cpu']} (family {machine['family']}, model {machine['model']})"


def when(records: Sequence[Record]) -> str:
    """Days and commits of records."""
    commits = ", ".join(sorted({record.commit for record in records}))
    days = sorted({record.taken[:10] for record in records})
    return f"{days[0] if days[0] == days[-1] else f'{days[0]} to {days[-1]}'} at {commits}"


def circumstances(results: ResultFile, records: Sequence[Record]) -> str:
    """What a table's figures have in common, in a sentence."""
    versions = {f.engine: f.version for record in records for f in record.figures}
    peers = ", ".join(f"{TITLES[peer]} {versions[peer]}" for peer in PEERS if peer in versions)
    widest = max(record.threads for record in records)
    peaks = results.peaks
    return (
        f"{widest} threads, medians; {peers}; measured {when(records)}. "
        f"Peak: {peaks['gflops']:.0f} GFLOP/s, {peaks['read_gbs']:.0f} GB/s read."
    )


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"
    yield f"|{'|'.join('---' for _ in cells)}|"


def number(value: float) -> str:
    """Three significant digits without an exponent."""
    text = f"{value:#.{DIGITS}g}"
    return f"{value:.0f}" if "e" in text else text.rstrip(".")


def _sizes(results: ResultFile) -> Iterator[str]:
    rows = list(rows_of(results, "beyond"))
    yield "What the first run at another input size takes beyond its repetition, 40 random sizes a"
    yield "process on an empty cache, median (9 of 10 below), and planning alone:"
    yield ""
    columns = [f"new size, ms: {TITLES[engine]}" for engine in TITLES]
    yield from _head(["model", *columns, "planning, ms"])
    for (case, beyond), (_, planning) in zip(rows, rows_of(results, "planning"), strict=True):
        figures = [_figure(beyond, engine) for engine in TITLES]
        values = [f"{number(f.median)} ({number(f.p90)})" for f in figures]
        yield f"| {case.name} | {' | '.join(values)} | {number(_median(planning, 'saccade'))} |"


def _detectors(results: ResultFile) -> Iterator[str]:
    rows = list(rows_of(results, "latency"))
    yield "From a picture to boxes that stay."
    yield ""
    yield from _head(["model", "input", *(f"{TITLES[e]}, ms" for e in TITLES), "over the better"])
    for case, record in rows:
        known = {figure.engine for figure in record.figures}
        medians = {e: _median(record, e) for e in TITLES if e in known}
        cells = (number(medians[e]) if e in medians else "-" for e in TITLES)
        better = min(medians[peer] for peer in PEERS if peer in medians)
        ratio = better / medians["saccade"]
        yield f"| {case.model} | {_shape(case)} | {' | '.join(cells)} | {ratio:.2f}x |"


SUITE_TABLES: Mapping[str, Mapping[str, Callable[[ResultFile], Iterator[str]]]] = {
    "latency": {"Latency in float32": _latency, "Latency in bfloat16": _bf16},
    "detectors": {"Whole detectors": _detectors},
    "startup": {"First answer": _startup},
    "memory": {"Memory": _memory},
    "threads": {"One thread and several": _threads},
    "concurrency": {"Several callers": _concurrency},
    "sizes": {"Another input size": _sizes},
}
