"""Records with known numbers."""

from __future__ import annotations

from benchmarks.cases import CASES
from benchmarks.record import SCHEMA, Figure, Record, ResultFile

MEDIANS = {
    "saccade": 2.0, "onnxruntime": 3.0, "openvino": 2.5, "ncnn": 3.5, "saccade:fp32": 2.2,
}  # fmt: skip
MACHINE = {"cpu": "Testor 9000", "family": "1", "model": "2", "cores": 2}


def record(case, suite="latency", measure="latency", unit="ms", *, scale=1.0, threads=2):
    figures = tuple(
        Figure.of(engine, "1.2", unit, [[scale * ms, scale * ms], [scale * ms * 1.1]])
        for engine, ms in MEDIANS.items()
        if engine in case.engines
    )
    work = {"flops": 200_000_000, "bytes": 1_000_000, "arena_bytes": 5, "floor_us": 1500}
    return Record(
        suite, measure, case.name, case.shape, threads, case.precision, "abc",
        "2026-01-02T03:04:05+00:00", 0.5, figures, work,
    )  # fmt: skip


def results(suite, records):
    peaks = {"gflops": 200.0, "read_gbs": 30.0}
    return ResultFile(SCHEMA, suite, MACHINE, peaks, tuple(records))


def latency_results():
    return results("latency", [record(case) for case in CASES])
