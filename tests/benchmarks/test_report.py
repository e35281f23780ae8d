from __future__ import annotations

import dataclasses

import pytest
from benchmarks.cases import CASES
from benchmarks.record import RecordError, save
from benchmarks.report import MARKS, main, render, replace_section
from samples import record, results

BEGIN, END = MARKS


@pytest.fixture
def folder(tmp_path, complete):
    save(tmp_path / "results" / "latency.json", complete)
    return tmp_path / "results"


@pytest.fixture
def readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\ntail\n")
    return path


def run(readme, folder, *more):
    return main(["--readme", str(readme), "--results", str(folder), *more])


def test_the_table_has_every_case_and_the_right_numbers(folder):
    text = render(folder)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "model" not in line]
    assert len(rows) == len(CASES)
    # 0.2 GFLOP in 2 ms: 100 GFLOP/s; the floor is 1.5 ms; the better peer takes 2.5 ms.
    numbers = "2.00 | 3.00 | 2.50 | 1.25x | 100 | 75% |"
    assert rows[0] == f"| resnet50 | 1x3x224x224 | {numbers}"
    assert rows[1] == f"| resnet50 | 8x3x224x224 | {numbers}"
    assert "| resnet50 | 1x3x224x224 | 2.00 | 2.50 | 1.25x | 2.20 | 1.10x | 75% |" in rows
    assert "ncnn 1.2, which has Winograd too, took 3.50 ms for vgg16" in text
    assert "in the same rounds: 1.75x." in text
    assert "Testor 9000 (family 1, model 2), 2 threads, fp32" in text
    assert "ONNX Runtime 1.2, OpenVINO 1.2; measured 2026-01-02 at abc." in text


def test_losses_are_shown(tmp_path, complete):
    first = complete.records[0]
    slow = tuple(
        dataclasses.replace(f, median=f.median * 2, q3=f.q3 * 2, p90=f.p90 * 2)
        if f.engine == "saccade"
        else f
        for f in first.figures
    )
    records = (dataclasses.replace(first, figures=slow), *complete.records[1:])
    save(tmp_path / "latency.json", dataclasses.replace(complete, records=records))
    assert "| 4.00 | 3.00 | 2.50 | 0.62x |" in render(tmp_path)


def test_a_missing_case_engine_or_shape_is_an_error(tmp_path, complete):
    first, *rest = complete.records
    path = tmp_path / "latency.json"
    save(path, dataclasses.replace(complete, records=tuple(rest)))
    with pytest.raises(RecordError, match="no latency record of resnet50"):
        render(tmp_path)
    reshaped = dataclasses.replace(first, shape=(2, 3, 224, 224))
    save(path, dataclasses.replace(complete, records=(reshaped, *rest)))
    with pytest.raises(RecordError, match="no latency record of resnet50"):
        render(tmp_path)
    alone = dataclasses.replace(first, figures=first.figures[:2])
    save(path, dataclasses.replace(complete, records=(alone, *rest)))
    with pytest.raises(RecordError, match="no figure of openvino"):
        render(tmp_path)
    workless = dataclasses.replace(first, work={})
    save(path, dataclasses.replace(complete, records=(workless, *rest)))
    with pytest.raises(RecordError, match="does not state 'flops'"):
        render(tmp_path)


def test_the_other_suites_follow(folder):
    startup = [
        record(case, "startup", state, "s", scale=scale)
        for case in CASES
        for state, scale in (("cold", 1.0), ("warm", 0.1), ("import", 0.01))
    ]
    save(folder / "startup.json", results("startup", startup))
    memory = [record(case, "memory", "peak_rss", "MiB", scale=100.0) for case in CASES]
    save(folder / "memory.json", results("memory", memory))
    threads = [
        record(case, "threads", f"threads={width}", "ms", scale=scale, threads=width)
        for case in CASES
        for width, scale in ((1, 1.8), (2, 1.0))
    ]
    save(folder / "threads.json", results("threads", threads))
    callers = [
        record(case, "concurrency", f"callers={count}", "1/s", scale=scale)
        for case in CASES
        for count, scale in ((1, 100.0), (8, 150.0))
    ]
    save(folder / "concurrency.json", results("concurrency", callers))
    sizes = [
        record(case, "sizes", what, "ms", scale=scale)
        for case in CASES
        for what, scale in (("beyond", 10.0), ("planning", 4.0))
    ]
    save(folder / "sizes.json", results("sizes", sizes))
    text = render(folder)
    assert "| resnet50 | 2.00 | 0.200 | 0.300 | 0.250 |" in text
    assert "Importing, beyond NumPy: Saccade 0.0200 s, ONNX Runtime 0.0300 s" in text
    assert "| resnet50 | 200 | 300 | 250 |" in text
    assert "| resnet50 | 1.80x | 1.80x | 1.80x | 1.25x | 1.25x |" in text
    assert "| resnet50 | 300 (200) | 450 (300) | 375 (250) |" in text
    assert "| deeplabv3_mobilenet | 20.0 (21.6) | 30.0 (32.4) | 25.0 (27.0) | 8.00 |" in text


def test_the_section_is_replaced_and_nothing_else(readme, folder):
    assert run(readme, folder) == 0
    text = readme.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\ntail\n")
    assert "old" not in text
    assert render(folder) in text


def test_check_fails_until_the_page_is_up_to_date(readme, folder, capsys):
    before = readme.read_text()
    assert run(readme, folder, "--check") == 1
    assert "is out of date" in capsys.readouterr().err
    assert readme.read_text() == before
    assert run(readme, folder) == 0
    assert run(readme, folder, "--check") == 0
    readme.write_text(readme.read_text().replace("1.25x", "2.25x", 1))
    assert run(readme, folder, "--check") == 1


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused(text):
    with pytest.raises(RecordError, match="needs one"):
        replace_section(text, "table")


def test_without_records_nothing_is_written(readme, tmp_path, capsys):
    before = readme.read_text()
    assert run(readme, tmp_path / "none") == 1
    assert "latency.json" in capsys.readouterr().err
    assert readme.read_text() == before
