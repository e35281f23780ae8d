"""The suite of GPUs with made-up engines, and the table of made-up records."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.cases import GPU_CASES
from benchmarks.record import SCHEMA, Figure, Record, RecordError, ResultFile, by_key, load, save
from benchmarks.report_gpu import FILE, render

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from fake_processes import FakeProcess
from test_suite import save_model

from benchmarks import suite
from saccade.cli import _bench_session
from saccade.errors import SaccadeError

HERE = {
    "cpu": "Testor 9000", "gpu": "NVIDIA Test", "gpu_multiprocessors": "7",
    "gpu_driver": "580.1", "cuda": "13.0",
}  # fmt: skip


def record(case, measure="latency", *, engines=None, scale=1.0):
    medians = engines or {"saccade": 0.2, "inductor": 0.3}
    unit = "ms" if measure == "latency" else "relative L2"
    figures = tuple(
        Figure.of(name, "1.2", unit, [[0.9 * ms * scale, ms * scale, 1.1 * ms * scale]])
        for name, ms in medians.items()
    )
    work = {"flops": 2, "bytes": 1, "arena_bytes": 5, "floor_us": 150}
    return Record(
        "cuda", measure, case.name, case.shape, 2, case.precision, "abc",
        "2026-01-02T03:04:05+00:00", 0.5, figures, work,
    )  # fmt: skip


def results(records):
    return ResultFile(SCHEMA, "cuda", HERE, {}, tuple(records))


@pytest.fixture
def whole(tmp_path):
    """A record of all cases, of times and of errors."""
    save(
        tmp_path / FILE,
        results(record(c, m) for c in GPU_CASES for m in ("latency", "error")),
    )
    return tmp_path


def test_the_cases_are_distinct():
    assert len({case.name for case in GPU_CASES}) == len(GPU_CASES)
    assert len({(c.model, c.shape, c.precision) for c in GPU_CASES}) == len(GPU_CASES)


def test_the_table_has_every_case(whole):
    text = render(whole)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "input" not in line]
    assert len(rows) == len(GPU_CASES)
    assert rows[0] == (
        "| resnet50 | 1x3x224x224 | fp16 | 200 ± 5.0% | 300 ± 5.0% | 1.50x | 75% "
        "| 2.0e-01 | 3.0e-01 |"
    )
    assert "NVIDIA Test (7 multiprocessors, driver 580.1, CUDA 13.0)" in text
    assert "Saccade 1.2, torch.compile 1.2;" in text
    assert "Measured 2026-01-02 at abc." in text
    assert "Not measured" not in text and "over torch.compile" in text


def test_losses_are_shown_and_so_is_what_was_not_measured(tmp_path):
    first, second, third = GPU_CASES[:3]
    slow = {"saccade": 0.4, "inductor": 0.3, "onnxruntime": 0.2}
    alone = record(second, engines={"saccade": 0.2})
    save(tmp_path / FILE, results([record(first, engines=slow), alone, record(first, "error")]))
    text = render(tmp_path)
    assert "| 400 ± 5.0% | 300 ± 5.0% | 200 ± 5.0% | 0.50x |" in text
    assert "| 200 ± 5.0% | – | – | – | 75% | – | – | – |" in text
    assert "over the better peer" in text
    assert f"Not measured: {third.name}, " in text


def test_records_of_something_else_make_no_table(tmp_path):
    path = tmp_path / FILE
    save(path, results([dataclasses.replace(record(GPU_CASES[0]), shape=(2, 3, 9, 9))]))
    with pytest.raises(RecordError, match="measured on something else"):
        render(tmp_path)
    save(path, results([record(GPU_CASES[0], engines={"inductor": 1.0})]))
    with pytest.raises(RecordError, match="no figure of saccade"):
        render(tmp_path)
    save(path, results([dataclasses.replace(record(GPU_CASES[0]), case="other")]))
    with pytest.raises(RecordError, match="no case of the suite"):
        render(tmp_path)
    save(path, dataclasses.replace(results([record(GPU_CASES[0])]), machine={"cpu": "x"}))
    with pytest.raises(RecordError, match="does not state 'gpu_multiprocessors'"):
        render(tmp_path)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the suite with made-up engines on small cases; status and records."""
    cases = tuple(
        dataclasses.replace(GPU_CASES[i], model="tiny", shape=(1, 3, 4, 4)) for i in range(3)
    )
    monkeypatch.setattr(suite, "select", lambda names, cases_: cases)
    monkeypatch.setattr(suite, "describe_machine", lambda device: HERE)
    monkeypatch.setattr(_bench_session, "EngineProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "log", [])
    monkeypatch.setattr(FakeProcess, "outputs", {})
    monkeypatch.setattr(
        FakeProcess, "times", {"saccade": [[2.0, 1.0], [2.0]], "inductor": [[3.0], [3.0]]}
    )
    save_model(tmp_path / "tiny.onnx")

    def run(*more):
        out = tmp_path / "out"
        status = suite.main(
            [
                "--models", str(tmp_path), "--device", "cuda", "--rounds", "2", "--abreast", "2",
                "--results", str(out), *more,
            ]
        )  # fmt: skip
        return status, load(out / FILE) if (out / FILE).exists() else None

    return run


def test_a_run_leaves_times_and_errors(run):
    near = np.full((1, 3, 4, 4), 1.001, np.float32)
    FakeProcess.outputs["inductor"] = near
    status, found = run("--commit", "abc")
    assert status == 0 and found.machine == HERE
    names = [case.name for case in GPU_CASES[:3]]
    assert list(by_key(found)) == [(n, m) for n in names for m in ("latency", "error")]
    times, errors = found.records[:2]
    assert [f.engine for f in times.figures] == ["saccade", "inductor"]
    assert times.figures[0].median == 2.0 and times.commit == "abc"
    assert errors.figures[0].median == 1e-12
    assert errors.figures[1].median == pytest.approx(1e-3, rel=1e-3)
    first = next(event for event in FakeProcess.log if event[0] == "round")
    opened = FakeProcess.log[: FakeProcess.log.index(first)]
    assert opened.count(("open", "torch:fp64")) == 2, "two cases are open, none is timed before"
    assert opened.count(("close", "torch:fp64")) == 2
    assert opened.count(("open", "saccade")) == opened.count(("open", "inductor")) == 2


def test_a_case_that_fails_does_not_take_the_others(run, capsys, monkeypatch):
    FakeProcess.outputs["inductor"] = np.full((1, 3, 4, 4), 1.5, np.float32)
    status, found = run()
    assert status == 1 and found is None
    said = capsys.readouterr().err
    assert said.count("outputs differ: inductor by") == 3

    whole, count = FakeProcess.open, []

    def refuse(self, inputs, cores):
        count.append(self.spec.engine)
        if count.count("saccade") == 1 and self.spec.engine == "saccade":
            raise SaccadeError("no kernel")
        return whole(self, inputs, cores)

    FakeProcess.outputs.clear()
    monkeypatch.setattr(FakeProcess, "open", refuse)
    status, found = run("--abreast", "1")
    assert status == 1 and len(found.records) == 4
    assert f"benchmarks: {GPU_CASES[0].name}: no kernel" in capsys.readouterr().err


def test_bundles_are_taken_where_there_are_some(run, tmp_path, monkeypatch):
    seen, whole = [], FakeProcess.open

    def remember(self, inputs, cores):
        seen.append((self.spec.engine, self.spec.bundle))
        return whole(self, inputs, cores)

    monkeypatch.setattr(FakeProcess, "open", remember)
    (tmp_path / "tiny_fp16.saccade").write_bytes(b"")
    assert run("--bundles", str(tmp_path))[0] == 0
    assert {bundle for _, bundle in seen} == {str(tmp_path / "tiny_fp16.saccade")}
    seen.clear()
    assert run("--bundles", str(tmp_path / "out"))[0] == 0
    assert {bundle for _, bundle in seen} == {""}
