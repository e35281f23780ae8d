"""Write the tables of the README from the records: `python -m benchmarks.report [--check]`.

Losses stand beside wins. A case or an engine without a figure is an error, not a gap.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import operators, report_gpu
from benchmarks.cases import Case, cases_of
from benchmarks.record import Figure, Record, RecordError, ResultFile, by_key, load

__all__ = ["main", "render", "replace_section"]

MARKS = ("<!-- results:begin -->", "<!-- results:end -->")
OPERATORS = ("<!-- operators:begin -->", "<!-- operators:end -->")
GPU_OPERATORS = ("<!-- gpu-operators:begin -->", "<!-- gpu-operators:end -->")
GPU = ("<!-- gpu:begin -->", "<!-- gpu:end -->")
ROOT = Path(__file__).parent.parent
PEERS = ("onnxruntime", "openvino")
TITLES = {"saccade": "Saccade", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
DIGITS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the section, or with --check say whether it is up to date (exit status 1 if not)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when out of date")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(arguments)
    try:
        old = options.readme.read_text()
        new = replace_section(old, render(options.results))
        timed = options.results / operators.FILE
        if timed.exists():
            new = replace_section(new, operators.render(timed), OPERATORS)
        timed = options.results / operators.GPU_FILE
        if timed.exists():
            new = replace_section(new, operators.render_gpu(timed), GPU_OPERATORS)
        on_gpu = options.results / report_gpu.FILE
        if on_gpu.exists():
            new = replace_section(new, f"\n{report_gpu.render(on_gpu)}\n", GPU)
    except (OSError, RecordError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    if options.check and old != new:
        print(
            f"benchmarks: {options.readme} is out of date: run python -m benchmarks.report",
            file=sys.stderr,
        )
        return 1
    if not options.check:
        options.readme.write_text(new)
    return 0


def replace_section(text: str, section: str, marks: tuple[str, str] = MARKS) -> str:
    """`text` with what stands between the markers replaced.

    Raises:
        RecordError: The markers are not there, once each and in order.
    """
    begin, end = marks
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise RecordError(f"the page needs one {begin} and one {end} after it")
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    return f"{head}{begin}\n{section}\n{end}{tail}"


def render(folder: Path) -> str:
    """All tables as Markdown; other suites than latency appear once they were measured."""
    latency = load(folder / "latency.json")
    parts = ["\n".join(_latency(latency)), "\n".join(_bf16(latency))]
    for suite, table in MORE.items():
        path = folder / f"{suite}.json"
        if path.exists():
            parts.append("\n".join(table(load(path))))
    return "\n\n".join(parts)


def _latency(results: ResultFile) -> Iterator[str]:
    rows = [
        (case, record) for case, record in _rows(results, "latency") if case.precision == "fp32"
    ]
    yield _circumstances(results, [record for _, record in rows])
    yield ""
    head = ["model", "input", *(f"{TITLES[e]}, ms" for e in TITLES), "over the better peer"]
    yield from _head([*head, "GFLOP/s", "of the floor"])
    for case, record in rows:
        ours, peers = _median(record, "saccade"), [_median(record, peer) for peer in PEERS]
        times = " | ".join(_number(value) for value in (ours, *peers))
        rate = _work(record, "flops") / ours / 1e6
        share = _work(record, "floor_us") / ours / 1e3
        values = f"{_over_the_better(record):.2f}x | {rate:.0f} | {share:.0%}"
        yield f"| {case.model} | {_shape(case)} | {times} | {values} |"
    for case, record in rows:
        if "ncnn" in case.engines:
            ours, theirs = _median(record, "saccade"), _median(record, "ncnn")
            version = next(f.version for f in record.figures if f.engine == "ncnn")
            yield (
                f"\nncnn {version}, which has Winograd too, took {_number(theirs)} ms "
                f"for {case.name} in the same rounds: {theirs / ours:.2f}x."
            )


def _bf16(results: ResultFile) -> Iterator[str]:
    yield "In bf16, beside OpenVINO's bf16 and our own fp32, each row from the same rounds:\n"
    head = ["Saccade bf16, ms", "OpenVINO bf16, ms", "over OpenVINO", "Saccade fp32, ms"]
    yield from _head(["model", "input", *head, "over our fp32", "of the floor"])
    for case, record in _rows(results, "latency"):
        if case.precision != "bf16":
            continue
        ours, peer = _median(record, "saccade"), _median(record, "openvino")
        single = _median(record, "saccade:fp32")
        share = _work(record, "floor_us") / ours / 1e3
        yield (
            f"| {case.model} | {_shape(case)} | {_number(ours)} | {_number(peer)} "
            f"| {peer / ours:.2f}x | {_number(single)} | {single / ours:.2f}x | {share:.0%} |"
        )


def _shape(case: Case) -> str:
    return "x".join(map(str, case.shape))


def _work(record: Record, what: str) -> int:
    try:
        return record.work[what]
    except KeyError as error:
        raise RecordError(f"{record.case}: the record does not state {error}") from None


def _startup(results: ResultFile) -> Iterator[str]:
    yield from _head(
        ["model", "first answer, s: Saccade cold", "warm", *(TITLES[p] for p in PEERS)]
    )
    for (case, cold), (_, warm) in zip(_rows(results, "cold"), _rows(results, "warm"), strict=True):
        values = [_median(cold, "saccade"), _median(warm, "saccade")]
        values += [_median(warm, peer) for peer in PEERS]
        yield f"| {case.name} | {' | '.join(map(_number, values))} |"
    imports = [record for _, record in _rows(results, "import")]
    texts = [
        f"{TITLES[engine]} {_number(min(_median(record, engine) for record in imports))} s"
        for engine in TITLES
    ]
    yield f"\nImporting, beyond NumPy: {', '.join(texts)}."


def _memory(results: ResultFile) -> Iterator[str]:
    yield from _head(["model", *(f"peak memory, MiB: {TITLES[e]}" for e in TITLES)])
    for case, record in _rows(results, "peak_rss"):
        values = [f"{_median(record, engine):.0f}" for engine in TITLES]
        yield f"| {case.name} | {' | '.join(values)} |"


def _threads(results: ResultFile) -> Iterator[str]:
    widths = sorted({record.threads for record in results.records})
    low, high = widths[0], widths[-1]
    speedups = [f"{high} threads over {low}: {TITLES[engine]}" for engine in TITLES]
    ratios = [f"over the better peer, {n} thread{'s' if n > 1 else ''}" for n in (low, high)]
    yield from _head(["model", *speedups, *ratios])
    for (case, few), (_, many) in zip(
        _rows(results, f"threads={low}"), _rows(results, f"threads={high}"), strict=True
    ):
        values = [f"{_median(few, e) / _median(many, e):.2f}x" for e in TITLES]
        values += [f"{_over_the_better(record):.2f}x" for record in (few, many)]
        yield f"| {case.name} | {' | '.join(values)} |"


def _over_the_better(record: Record) -> float:
    return min(_median(record, peer) for peer in PEERS) / _median(record, "saccade")


def _concurrency(results: ResultFile) -> Iterator[str]:
    yield from _head(
        ["model", *(f"runs a second, 8 callers (1 caller): {TITLES[e]}" for e in TITLES)]
    )
    for (case, one), (_, many) in zip(
        _rows(results, "callers=1"), _rows(results, "callers=8"), strict=True
    ):
        values = [f"{_number(_median(many, e))} ({_number(_median(one, e))})" for e in TITLES]
        yield f"| {case.name} | {' | '.join(values)} |"


def _rows(results: ResultFile, measure: str) -> Iterator[tuple[Case, Record]]:
    """Every case of the suite with its record of this measure.

    Raises:
        RecordError: One is missing, or was taken at another shape.
    """
    records = by_key(results)
    for case in cases_of(results.suite):
        record = records.get((case.name, measure))
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


def _circumstances(results: ResultFile, records: Sequence[Record]) -> str:
    versions = {f.engine: f.version for record in records for f in record.figures}
    peers = ", ".join(f"{TITLES[peer]} {versions[peer]}" for peer in PEERS)
    machine = results.machine
    commits = ", ".join(sorted({record.commit for record in records}))
    days = sorted({record.taken[:10] for record in records})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    widest = max(record.threads for record in records)
    peaks = results.peaks
    return (
        f"{machine['cpu']} (family {machine['family']}, model {machine['model']}), "
        f"{widest} threads, fp32, medians; {peers}; measured {when} at {commits}. "
        f"Peak: {peaks['gflops']:.0f} GFLOP/s, {peaks['read_gbs']:.0f} GB/s read."
    )


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"
    yield f"|{'|'.join('---' for _ in cells)}|"


def _number(value: float) -> str:
    """Three significant digits without an exponent."""
    text = f"{value:#.{DIGITS}g}"
    return f"{value:.0f}" if "e" in text else text.rstrip(".")


def _sizes(results: ResultFile) -> Iterator[str]:
    rows = list(_rows(results, "beyond"))
    yield "What the first run at another input size takes beyond its repetition, 40 random sizes a"
    yield "process on an empty cache, median (9 of 10 below), and planning alone:"
    yield _circumstances(results, [record for _, record in rows])
    yield ""
    columns = [f"new size, ms: {TITLES[engine]}" for engine in TITLES]
    yield from _head(["model", *columns, "planning, ms"])
    for (case, beyond), (_, planning) in zip(rows, _rows(results, "planning"), strict=True):
        figures = [_figure(beyond, engine) for engine in TITLES]
        values = [f"{_number(f.median)} ({_number(f.p90)})" for f in figures]
        yield f"| {case.name} | {' | '.join(values)} | {_number(_median(planning, 'saccade'))} |"


def _detectors(results: ResultFile) -> Iterator[str]:
    rows = list(_rows(results, "latency"))
    yield "Whole detectors, from a picture to boxes that stay, on another machine than above:"
    yield _circumstances(results, [record for _, record in rows])
    yield ""
    yield from _head(["model", "input", *(f"{TITLES[e]}, ms" for e in TITLES), "over the better"])
    for case, record in rows:
        known = {figure.engine for figure in record.figures}
        medians = {e: _median(record, e) for e in TITLES if e in known}
        cells = (_number(medians[e]) if e in medians else "-" for e in TITLES)
        better = min(medians[peer] for peer in PEERS if peer in medians)
        ratio = better / medians["saccade"]
        yield f"| {case.model} | {_shape(case)} | {' | '.join(cells)} | {ratio:.2f}x |"


MORE: Mapping[str, Callable[[ResultFile], Iterator[str]]] = {
    "startup": _startup,
    "memory": _memory,
    "threads": _threads,
    "concurrency": _concurrency,
    "sizes": _sizes,
    "detectors": _detectors,
}

if __name__ == "__main__":
    sys.exit(main())
