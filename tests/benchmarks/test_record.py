from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from benchmarks.cases import CASES
from benchmarks.record import Figure, RecordError, load, merge, save
from samples import record, results


def test_records_survive_the_file(tmp_path, complete):
    save(tmp_path / "sub" / "latency.json", complete)
    assert load(tmp_path / "sub" / "latency.json") == complete


def test_a_figure_summarises_all_runs_and_keeps_the_rounds():
    figure = Figure.of("saccade", "1", "ms", [[4.0, 2.0], [9.0], [1.0, 1.0]])
    assert figure.rounds == (3.0, 9.0, 1.0)
    assert (figure.median, figure.min, figure.q1, figure.q3, figure.runs) == (2.0, 1.0, 1.0, 4.0, 5)
    assert figure.p90 == pytest.approx(7.0)


def at(path, value):
    """A change of one place of the JSON document."""

    def change(document):
        place = document
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


FIGURE = ("records", 0, "figures", 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (at(("schema",), 2), "schema 2, expected 1"),
        (at(("suite",), "speed"), "unknown suite 'speed'"),
        (at(("machine",), None), "file: expected"),
        (at(("extra",), 1), "file: expected"),
        (at(("records", 0, "commit"), None), r"records\[0\]: expected"),
        (at(("records", 0, "threads"), "2"), r"records\[0\]\.threads: '2' is no int"),
        (at(("records", 0, "threads"), True), r"threads: True is no int"),
        (at(("records", 0, "shape"), [1.5]), r"shape\[0\]: 1\.5 is no int"),
        (at(("records", 0, "work", "flops"), 1.5), r"work\.flops: 1\.5 is no int"),
        (at(("records", 0, "suite"), "memory"), "suite 'memory' in a file of 'latency'"),
        (at(("records", 0, "figures"), []), "no figures"),
        (at((*FIGURE, "engine"), "openvino"), "an engine is there twice"),
        (at((*FIGURE, "median"), 0.0), "no positive number"),
        (at((*FIGURE, "median"), float("nan")), "no positive number"),
        (at((*FIGURE, "rounds"), [1.0, float("inf")]), "no positive number"),
        (at((*FIGURE, "min"), 2.5), "quantiles are out of order"),
        (at((*FIGURE, "p90"), 1.0), "quantiles are out of order"),
        (at((*FIGURE, "unit"), "us"), "no unit, no runs or no rounds"),
        (at((*FIGURE, "runs"), 0), "no unit, no runs or no rounds"),
        (at((*FIGURE, "rounds"), []), "no unit, no runs or no rounds"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(tmp_path, complete, change, says):
    document = json.loads(json.dumps(dataclasses.asdict(complete)))
    change(document)
    path = tmp_path / "latency.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RecordError, match=says):
        load(path)


def test_a_truncated_file_names_itself(tmp_path):
    (tmp_path / "latency.json").write_text('{"schema": 1,')
    with pytest.raises(RecordError, match=r"latency\.json"):
        load(tmp_path / "latency.json")


def test_nothing_broken_is_ever_written(tmp_path, complete):
    twice = dataclasses.replace(complete, records=(complete.records[0],) * 2)
    with pytest.raises(RecordError, match="there twice"):
        save(tmp_path / "latency.json", twice)
    assert not (tmp_path / "latency.json").exists()


def test_merging_replaces_the_cases_measured_again(complete):
    again = record(CASES[1], scale=2.0)
    merged = merge(complete, results("latency", [again]))
    assert [one.case for one in merged.records] == [case.name for case in CASES]
    assert merged.records[1] == again
    assert merged.records[0] == complete.records[0]
    assert merge(None, complete) is complete


def test_results_of_two_machines_do_not_mix(complete):
    machine = copy.deepcopy(complete.machine) | {"cpu": "Other"}
    with pytest.raises(RecordError, match="another machine"):
        merge(complete, dataclasses.replace(complete, machine=machine))
