"""The table of detectors on GPUs, from a record with known numbers."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from benchmarks.record import RecordError

from benchmarks import gpu_detectors

RECORD = {
    "gpu": "NVIDIA T1", "shape": [3, 480, 640], "torch": "2.0", "torchvision": "0.1",
    "date": "2026-01-02", "commit": "abc",
    "results": [
        {
            "model": "maskrcnn_resnet50_fpn", "boxes": 100,
            "ms": {"saccade": [4.0, 2.0, 2.0], "torchvision": [3.0], "compiled": [1.0, 1.0]},
            "errors": {"saccade": 1e-3, "torchvision": 2e-3, "compiled": 2e-3},
        }
    ],
}  # fmt: skip


def write(folder, record):
    folder.mkdir(exist_ok=True)
    (folder / gpu_detectors.FILE).write_text(json.dumps(record))


def test_losses_are_shown_beside_the_better_way(tmp_path):
    write(tmp_path, RECORD)
    text = gpu_detectors.render(tmp_path)
    assert "### NVIDIA T1" in text and "torchvision 0.1; measured 2026-01-02 at abc" in text
    row = "| maskrcnn_resnet50_fpn | 100 | 2 | 3 | 1 | 0.50x | 1.0e-03 | 2.0e-03 |"
    assert text.splitlines()[-1] == row
    head = next(line for line in text.splitlines() if "model" in line)
    assert head.count("|") == row.count("|")


def test_each_gpu_has_its_own_table_and_headline(tmp_path):
    write(tmp_path, RECORD)
    write(tmp_path / "t2", {**RECORD, "gpu": "NVIDIA T2"})
    assert gpu_detectors.render(tmp_path).count("###") == 2
    (row,) = gpu_detectors.headlines(tmp_path, "NVIDIA T2")
    assert "2 ms | torchvision, compiled backbone 1 ms | 0.50x |" in row
    assert not gpu_detectors.headlines(tmp_path, "NVIDIA T3")


@pytest.mark.parametrize("gone", ["gpu", "commit", "shape"])
def test_a_record_that_does_not_say_what_it_is_of_is_refused(tmp_path, gone):
    record = copy.deepcopy(RECORD)
    del record[gone]
    write(tmp_path, record)
    with pytest.raises(RecordError, match=gone):
        gpu_detectors.render(tmp_path)


class Scores(np.ndarray):
    """An array that is asked as PyTorch's are."""

    def detach(self):
        return self

    float = cpu = numpy = detach


def scores(*values):
    return np.array(values, np.float32).view(Scores)


def test_scores_that_are_missing_are_errors():
    truth = scores(0.25, 1.0)
    assert gpu_detectors._apart(scores(1.0, 0.25), truth) == 0
    assert gpu_detectors._apart(scores(1.0), truth) == pytest.approx(0.25 / np.hypot(1, 0.25))
    assert gpu_detectors._apart(scores(1.0, 0.5, 0.25), scores()) == 1
    assert gpu_detectors._apart(scores(), scores()) == 0


def test_without_a_record_there_is_no_table(tmp_path):
    with pytest.raises(RecordError, match="no detectors_gpu"):
        gpu_detectors.render(tmp_path)
