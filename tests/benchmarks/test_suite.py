from __future__ import annotations

import numpy as np
import onnx
import pytest
from benchmarks.cases import CASES, Case, select
from benchmarks.models import prepare
from benchmarks.record import by_key, load
from onnx import TensorProto, helper

from benchmarks import device_sizes, new_sizes, peaks, suite
from saccade.errors import SaccadeError

FILL = """
import shutil, sys
shutil.copy(sys.argv[1], sys.argv[2])
with open(sys.argv[2], "ab") as file:
    file.write(b"filled")
"""


def save_model(path):
    image = ["N", 3, "H", "W"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, image)],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def test_the_cases_are_distinct():
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({(case.model, case.shape, case.precision) for case in CASES}) == len(CASES)


def test_cases_are_chosen_by_name():
    assert select("") == CASES
    assert select("vgg16, resnet50 batch 8") == (CASES[6], CASES[1])
    with pytest.raises(ValueError, match="no case 'vgg19'; there are resnet50, "):
        select("vgg19")


def test_complete_models_are_taken_as_they_are(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"a")
    assert prepare(tmp_path, ["a", "a"], tmp_path / "s") == {"a": tmp_path / "a.onnx"}
    assert not (tmp_path / "s").exists()


def test_weightless_models_are_filled_once(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"a ")
    (tmp_path / "fill.py").write_text(FILL)
    paths = prepare(tmp_path, ["a"], tmp_path / "s")
    assert paths["a"].read_bytes() == b"a filled"
    (tmp_path / "fill.py").write_text("raise SystemExit(1)")
    assert prepare(tmp_path, ["a"], tmp_path / "s") == paths
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["a.onnx"]


def test_a_missing_model_fails_the_run_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(suite.peaks, "measure", lambda threads: pytest.fail("measured"))
    save_model(tmp_path / "resnet50.onnx")
    arguments = ["--models", str(tmp_path), "--cases", "resnet50,vgg16"]
    assert suite.main([*arguments, "--results", str(tmp_path / "out")]) == 1
    assert "has no vgg16.onnx" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Run suites on one small model by a peer, and return the exit status and the results."""
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(suite.peaks, "measure", lambda threads: {"gflops": 1.0, "read_gbs": 1.0})
    monkeypatch.setattr(suite, "select", lambda names, cases: (Case("tiny", "tiny", (1, 3, 8, 8)),))
    save_model(tmp_path / "tiny.onnx")

    def run(suites, engines="onnxruntime", *more):
        out = tmp_path / "out"
        status = suite.main(
            [
                "--models", str(tmp_path), "--suites", suites, "--engines", engines,
                "--threads", "2", "--rounds", "1", "--seconds", "0", "--results", str(out), *more,
            ]
        )  # fmt: skip
        return status, {path.stem: load(path) for path in out.glob("*.json")}

    return run


@pytest.mark.parametrize(
    ("name", "measures", "unit"),
    [
        ("latency", ["latency"], "ms"),
        ("threads", ["threads=1", "threads=2"], "ms"),
        ("concurrency", ["callers=1", "callers=8"], "1/s"),
        ("startup", ["cold", "warm", "import"], "s"),
        ("memory", ["peak_rss"], "MiB"),
        ("sizes", ["beyond"], "ms"),
    ],
)
def test_each_suite_leaves_valid_records(tiny, name, measures, unit):
    status, files = tiny(name)
    assert status == 0
    results = files[name]
    assert list(by_key(results)) == [("tiny", measure) for measure in measures]
    for record in results.records:
        assert [figure.engine for figure in record.figures] == ["onnxruntime"]
        assert {figure.unit for figure in record.figures} == {unit}
        assert record.shape == (1, 3, 8, 8)
        assert record.commit


def test_first_answers_with_compiled_kernels_are_ours_alone(tiny, tmp_path):
    status, files = tiny("startup", "saccade,onnxruntime", "--kernels", str(tmp_path))
    assert status == 0
    records = by_key(files["startup"])
    engines = {what: [f.engine for f in one.figures] for (_, what), one in records.items()}
    both = ["saccade", "onnxruntime"]
    assert engines == {"cold": both, "warm": both, "import": both, "kernels": ["saccade"]}


def test_memory_is_that_of_starts_not_of_looking_for_the_machines_speeds(tiny):
    """Which takes more than a tiny model; with an empty cache it is ours alone."""
    status, files = tiny("memory", "saccade,onnxruntime")
    assert status == 0
    records = by_key(files["memory"])
    engines = {what: [f.engine for f in one.figures] for (_, what), one in records.items()}
    assert engines == {"peak_rss": ["saccade", "onnxruntime"], "peak_rss_cold": ["saccade"]}
    for record in records.values():
        assert record.figure("saccade").median < 110


def test_new_sizes_are_the_same_for_all_engines_and_planning_is_timed(tmp_path):
    save_model(tmp_path / "tiny.onnx")
    shape = (1, 3, 9, 12)
    around = new_sizes.sizes_around(shape, 200, 3)
    assert around == new_sizes.sizes_around(shape, 200, 3) != new_sizes.sizes_around(shape, 200, 4)
    assert {size[:2] for size in around} == {(1, 3)}
    assert {size[2] for size in around} == set(range(4, 14))
    assert {size[3] for size in around} == set(range(6, 19))
    version, costs = new_sizes.costs_of("saccade", tmp_path / "tiny.onnx", shape, 2, 3)
    assert version
    assert {what: len(times) for what, times in costs.items()} == {"beyond": 40, "planning": 24}
    with pytest.raises(SaccadeError, match="ended with"):
        new_sizes.costs_of("saccade", tmp_path / "missing.onnx", shape, 2, 3)
    with pytest.raises(SaccadeError, match="not of 'ncnn'"):
        new_sizes.costs_of("ncnn", tmp_path / "tiny.onnx", shape, 2, 3)


def test_an_engine_that_fails_fails_the_run(tiny, capsys):
    status, files = tiny("latency", "onnxruntime,unheard")
    assert status == 1
    assert "engine 'unheard' is not one of" in capsys.readouterr().err
    assert files == {}


def test_an_unknown_suite_fails_the_run(tiny, capsys):
    assert tiny("speed")[0] == 1
    assert "no suite 'speed'; there are latency, startup" in capsys.readouterr().err


def test_peaks_are_plausible(monkeypatch):
    monkeypatch.setattr(peaks, "READ_BYTES", 4 << 20)
    monkeypatch.setattr(peaks, "LOOKS", 2)
    measured = peaks.measure(1)
    assert set(measured) == {"gflops", "read_gbs"}
    assert np.isfinite(list(measured.values())).all()
    assert min(measured.values()) > 0.1


def test_what_sizes_cost_on_a_device_is_told_for_both_rounds(tmp_path, capsys):
    save_model(tmp_path / "tiny.onnx")
    device_sizes.main([str(tmp_path / "tiny.onnx"), "1x3x9x12", "--device", "cpu"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["10", "most"]
    assert len(rows) == 6
    for row in rows:
        least, median, _, most = map(float, row.split()[-4:])
        assert least <= median <= most
    assert "kernels to get: beyond" in rows[0] and "kernels loaded: beyond" in rows[3]
