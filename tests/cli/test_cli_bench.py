from __future__ import annotations

import json

import numpy as np
import pytest
from fake_processes import FakeProcess

from saccade.cli import _bench_session
from saccade.cli._rounds import quantile, summarize


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(_bench_session, "EngineProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "log", [])
    monkeypatch.setattr(FakeProcess, "outputs", {})
    monkeypatch.setattr(
        FakeProcess,
        "times",
        {
            "saccade": [[2.0, 1.0, 3.0], [2.0, 2.0]],
            "onnxruntime": [[3.0, 3.0, 5.0], [3.0]],
            "openvino": [[1.0], [1.0]],
        },
    )
    return FakeProcess


def bench(saccade_cli, path, *more):
    return saccade_cli("bench", path, "--shape", "1x3x4x4", "--rounds", 2, "--threads", 1, *more)


def test_the_json_has_exactly_the_documented_schema(saccade_cli, processes, model_file, tmp_path):
    file = tmp_path / "bench.json"
    result = bench(saccade_cli, model_file, "--against", "onnxruntime,openvino", "--json", file)
    assert result.exit_code == 0, result.stderr
    document = json.loads(file.read_text())
    assert list(document) == [
        "model", "shape", "threads", "precision", "machine", "results", "ratios"
    ]  # fmt: skip
    assert document["model"] == str(model_file)
    assert document["shape"] == {"input": [1, 3, 4, 4]}
    assert document["threads"] == 1
    assert document["precision"] == "fp32"
    assert document["machine"]["cpu"]
    assert document["results"] == [
        {
            "engine": "saccade", "version": "saccade-1.0",
            "median_ms": 2.0, "p90_ms": pytest.approx(2.6), "min_ms": 1.0, "runs": 5,
        },
        {
            "engine": "onnxruntime", "version": "onnxruntime-1.0",
            "median_ms": 3.0, "p90_ms": pytest.approx(4.4), "min_ms": 3.0, "runs": 4,
        },
        {
            "engine": "openvino", "version": "openvino-1.0",
            "median_ms": 1.0, "p90_ms": 1.0, "min_ms": 1.0, "runs": 2,
        },
    ]  # fmt: skip
    assert document["ratios"] == {"onnxruntime": 1.5, "openvino": 0.5}
    assert "1.50x" in result.stdout
    assert "0.50x" in result.stdout


def test_rounds_alternate_and_outputs_come_first(saccade_cli, processes, model_file):
    assert bench(saccade_cli, model_file, "--against", "onnxruntime").exit_code == 0
    engines = ("saccade", "onnxruntime")
    opening = [(event, engine) for engine in engines for event in ("open", "idle")]
    rounds = [("round", engine) for _ in range(2) for engine in engines]
    assert processes.log[: len(opening) + len(rounds)] == opening + rounds
    assert sorted(processes.log[-2:]) == [("close", "onnxruntime"), ("close", "saccade")]


def test_different_outputs_are_not_timed(saccade_cli, processes, model_file, tmp_path):
    processes.outputs["openvino"] = np.full((1, 3, 4, 4), 1.001, np.float32)
    file = tmp_path / "bench.json"
    result = bench(saccade_cli, model_file, "--against", "onnxruntime,openvino", "--json", file)
    assert result.exit_code == 1
    assert "output 0 differs from openvino's (relative L2 9.99e-04)" in result.stderr
    assert "onnxruntime" not in result.stderr
    assert not [event for event, _ in processes.log if event == "round"]
    assert not file.exists()


def test_without_peers_there_are_no_ratios(saccade_cli, processes, model_file, tmp_path):
    file = tmp_path / "bench.json"
    assert bench(saccade_cli, model_file, "--json", file).exit_code == 0
    document = json.loads(file.read_text())
    assert document["ratios"] == {}
    assert [row["engine"] for row in document["results"]] == ["saccade"]


def test_bench_refuses_in_one_line(refused, model_file, tmp_path):
    peer = refused("bench", model_file, "--against", "tensorrt")
    assert "--against 'tensorrt' is not one of onnxruntime, openvino" in peer
    ours = refused("bench", model_file, "--against", "saccade:bf16")
    assert "the other way round, --precision bf16 --against saccade:fp32 times both" in ours
    assert "does not fit" in refused("bench", model_file, "--shape", "1x4x4")
    assert "no such file" in refused("bench", tmp_path / "missing.onnx")
    assert "--rounds" in refused("bench", model_file, "--rounds", 0)


def test_quantiles_interpolate():
    assert [quantile([1.0, 2.0, 3.0, 5.0], q) for q in (0, 0.25, 0.5, 0.9, 1)] == [
        1.0, 1.75, 2.5, pytest.approx(4.4), 5.0
    ]  # fmt: skip
    assert quantile([7.0], 0.9) == 7.0


def test_statistics_are_over_all_runs_and_rounds_are_kept():
    stats = summarize([[4.0, 2.0], [9.0], [1.0, 1.0]])
    assert (stats.median_ms, stats.min_ms, stats.runs) == (2.0, 1.0, 5)
    assert stats.round_medians_ms == (3.0, 9.0, 1.0)
    assert (stats.q1_ms, stats.q3_ms) == (1.0, 4.0)
