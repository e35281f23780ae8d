"""`saccade report`: what it writes, what it prints, and what it refuses before any work."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.report import Report
from saccade.report.page import data_of

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from report_samples import report as made_up
from report_samples import step, whole

QUICK = ("--shape", "1x3x12x16", "--repeat", 2, "--seconds", 0)


@pytest.fixture
def earlier(tmp_path):
    path = tmp_path / "earlier.html"
    path.write_text(whole().to_html(), encoding="utf-8")
    return path


@pytest.fixture
def unused(monkeypatch):
    """Nothing may be compiled."""

    def refuse(*_args, **_options):
        raise AssertionError("something was compiled")

    monkeypatch.setattr(saccade, "compile", refuse)


def test_it_writes_a_page_and_its_data(saccade_cli, model_file, tmp_path):
    page, data = tmp_path / "r1.html", tmp_path / "r1.json"
    result = saccade_cli("report", model_file, *QUICK, "--threads", 1, "-o", page, "--json", data)
    assert result.exit_code == 0, result.stderr
    found = Report.from_json(data_of(page.read_text()))
    assert Report.from_json(data.read_text()) == found
    assert found.about.model == str(model_file) and found.about.threads == 1
    assert found.about.inputs == ("input float32 1x3x12x16",)
    assert found.about.page == str(page) and "--against report.html" not in page.read_text()
    told = " ".join(result.stdout.split())
    assert f"wrote {page}: " in told and f"{model_file}: median " in told


def test_inputs_come_from_files(saccade_cli, model_file, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3, 4, 5), np.float32))
    page = tmp_path / "report.html"
    result = saccade_cli(
        "report", model_file, "--input", tmp_path / "x.npy", "--seconds", 0, "-o", page
    )
    assert result.exit_code == 0, result.stderr
    assert Report.from_json(data_of(page.read_text())).totals.batch == 2


def test_data_alone_goes_to_standard_output(saccade_cli, model_file):
    result = saccade_cli("report", model_file, *QUICK, "--json", "-")
    assert result.exit_code == 0, result.stderr
    assert Report.from_json(result.stdout).steps


def test_an_earlier_report_stands_beside_it(saccade_cli, model_file, earlier, tmp_path):
    page, data = tmp_path / "diff.html", tmp_path / "diff.json"
    result = saccade_cli(
        "report", model_file, *QUICK, "--against", earlier, "-o", page, "--json", data
    )
    assert result.exit_code == 0, result.stderr
    assert "before: median 1.030 ms" in " ".join(result.stdout.split())
    record = json.loads(data.read_text())
    assert record["against"]["about"]["model"] == "models/net.onnx"
    assert {one["name"] for one in record["diff"]["steps"]} >= {"conv1", "conv1/last"}


@pytest.mark.usefixtures("unused")
def test_two_reports_that_are_there_are_compared(saccade_cli, refused, earlier, tmp_path):
    later, page = tmp_path / "later.json", tmp_path / "diff.html"
    later.write_text(made_up(step("conv1", 900.0)).to_json())
    result = saccade_cli("report", later, "--against", earlier, "-o", page)
    assert result.exit_code == 0, result.stderr
    assert Report.from_json(data_of(page.read_text())) == made_up(step("conv1", 900.0))
    # In the place of one that is there, but of none that is read.
    assert saccade_cli("report", later, "--against", earlier, "-o", page).exit_code == 0
    for read in (later, earlier):
        line = refused("report", later, "--against", earlier, "-o", read)
        assert "would take the place of what is read" in line
    # Of a page of two runs the later one counts.
    again = saccade_cli("report", earlier, "--against", page, "-o", tmp_path / "again.html")
    assert again.exit_code == 0, again.stderr


@pytest.mark.usefixtures("unused")
def test_what_cannot_be_written_is_told_first(refused, model_file, tmp_path):
    assert "--output report.html" in refused("report", model_file)
    missing = tmp_path / "nowhere" / "report.html"
    assert "there is no such folder" in refused("report", model_file, "-o", missing)
    assert "this is a folder" in refused("report", model_file, "-o", tmp_path)
    assert "this is the model itself" in refused("report", model_file, "-o", model_file)
    assert "a page goes to a file" in refused("report", model_file, "-o", "-")
    both = tmp_path / "both"
    assert "is the same file" in refused("report", model_file, "-o", both, "--json", both)


@pytest.mark.usefixtures("unused")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("<html></html>", "is no report that can be read"),
        ("\xff\xfe", "is no report that can be read"),
        ("{}", "it is no report of Saccade"),
        ('{"report": {"format": 7}}', "its format is 7, this is format 2"),
        ('{"report": {"format": 2}}', "must have exactly"),
    ],
)
def test_what_is_no_report_is_refused(refused, model_file, tmp_path, content, why):
    other = tmp_path / "other.html"
    if content is not None:
        other.write_text(content, encoding="latin-1")
    line = refused("report", model_file, "--against", other, "-o", tmp_path / "r.html")
    assert f"--against {other}" in line and why in line


@pytest.mark.usefixtures("unused")
def test_a_pipe_is_not_waited_for(refused, model_file, tmp_path):
    os.mkfifo(tmp_path / "pipe.html")
    line = refused("report", model_file, "--against", tmp_path / "pipe.html", "-o", tmp_path / "r")
    assert "a pipe" in line


@pytest.mark.usefixtures("unused")
def test_a_report_is_no_model(refused, earlier, tmp_path):
    page = tmp_path / "r.html"
    assert "--against says which" in refused("report", earlier, "-o", page)
    line = refused("report", earlier, "--shape", "1x3x4x4", "--against", earlier, "-o", page)
    assert "--shape is for models" in line


def test_a_device_that_is_not_there_is_told(refused, model_file, tmp_path):
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    line = refused("report", model_file, *QUICK, "--device", "cuda", "-o", tmp_path / "r.html")
    assert "cuda" in line.lower() or "gpu" in line.lower()
    assert not (tmp_path / "r.html").exists()
