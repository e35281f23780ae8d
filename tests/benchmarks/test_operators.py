from __future__ import annotations

import json

import pytest
from benchmarks.operators import render, render_gpu
from benchmarks.record import RecordError


def row(**changes):
    return {
        "operator": "nms", "case": "1000 boxes", "peer": "torchvision", "dtype": "float32",
        "threads": 2, "ours_ms": 0.05, "peer_ms": 2.5, "ratio": 50.0, "aim": 5.0,
        "taken": "2026-11-21T18:00:00+00:00", "versions": {"torch": "2.15"}, **changes,
    }  # fmt: skip


def write(path, rows):
    machine = {"cpu": "Fast", "family": "1", "model": "2"}
    path.write_text(json.dumps({"machine": machine, "results": rows}))
    return path.parent


def test_dtypes_stand_side_by_side(tmp_path):
    rows = [row(), row(dtype="bfloat16", ours_ms=0.1, ratio=2.25), row(operator="roi_pool")]
    text = render(write(tmp_path / "operators.json", rows))
    head = "### Fast (family 1, model 2)\n\n2 threads, medians; torch 2.15, measured 2026-11-21."
    assert text.startswith(head)
    both = "| nms | 1000 boxes | torchvision | 0.05 | 2.5 | 50x | 0.1 | 2.5 | 2.25x | 5x |  |"
    assert both in text
    assert "| roi_pool | 1000 boxes | torchvision | 0.05 | 2.5 | 50x |  |  |  | 5x |  |" in text


def test_what_bfloat16_gains_is_a_column(tmp_path):
    rows = [row(), row(peer="float32", dtype="bfloat16", ratio=1.625, aim=1.0)]
    lines = render(write(tmp_path / "operators.json", rows)).splitlines()
    assert [line for line in lines if "1000 boxes" in line] == [
        "| nms | 1000 boxes | torchvision | 0.05 | 2.5 | 50x |  |  |  | 5x | 1.62x |"
    ]


@pytest.mark.parametrize("rows", [[], [row(ours_ms=0.0)], [{"operator": "nms"}]])
def test_what_bench_ops_did_not_write_makes_no_table(tmp_path, rows):
    with pytest.raises(RecordError):
        render(write(tmp_path / "operators.json", rows))


def test_small_calls_have_a_table_of_their_own(tmp_path):
    call = row(peer="empty", case="16 boxes", ours_ms=0.03, peer_ms=0.01, over_us=20.0, aim=15.0)
    other = {**call, "dtype": "bfloat16", "over_us": 9.125}
    text = render(write(tmp_path / "operators.json", [row(), call, other]))
    assert "| nms | 16 boxes | 20 | 9.12 | 15 |" in text
    assert "empty" not in text


def test_a_gpus_table_is_in_microseconds_with_its_aims(tmp_path):
    rows = [row(aim_us=100), row(dtype="float16", ours_ms=0.1, ratio=25.0), row(peer="empty")]
    file = tmp_path / "operators_cuda.json"
    file.write_text(json.dumps({"gpu": "Quick", "machine": {}, "results": rows}))
    text = render_gpu(tmp_path)
    assert text.startswith("### Quick\n\nMedians; torch 2.15, measured 2026-11-21.")
    assert (
        "| nms | 1000 boxes | torchvision | 50 | 2500 | 50x | 100 | 100 | 2500 | 25x |  |" in text
    )
    assert len(text.splitlines()) == 7


def test_each_machine_has_a_table_and_only_one(tmp_path):
    write(tmp_path / "operators.json", [row()])
    (tmp_path / "other").mkdir()
    document = {"machine": {"cpu": "Slow", "family": "1", "model": "2"}}
    file = tmp_path / "other" / "operators.json"
    file.write_text(json.dumps({**document, "results": [row(ours_ms=5.0, ratio=0.5)]}))
    fast, slow = render(tmp_path).split("### ")[1:]
    assert fast.startswith("Fast") and "| 50x |" in fast and "| 0.50x |" not in fast
    assert slow.startswith("Slow") and "| 0.50x |" in slow and "| 50x |" not in slow
    write(file, [row()])
    with pytest.raises(RecordError, match=r"two files of operators\.json are of one machine"):
        render(tmp_path)
