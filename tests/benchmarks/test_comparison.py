"""What docs/comparison.md says of the records is so; a record that changes may change the page."""

import pytest
from benchmarks.record import load_all
from benchmarks.report import RESULTS, ROOT
from benchmarks.report_cpu import PEERS

from benchmarks import operators, report_gpu

PAGE = (ROOT / "docs" / "comparison.md").read_text()


def row(start):
    """The second cell of the row that begins like this."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {start} |")]
    return line.split(" | ")[1]


def ratios(suite, measure, peers=PEERS, *, more_is_better=False, precision="fp32"):
    """For each record and peer how many times better ours is."""
    for results in load_all(RESULTS, suite):
        for record in results.records:
            if record.measure == measure and record.precision == precision:
                ours = record.figure("saccade").median
                for peer in filter(None, map(record.figure, peers)):
                    yield ours / peer.median if more_is_better else peer.median / ours


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("latency on CPUs, float32", ratios("latency", "latency")),
        ("latency on CPUs, bfloat16", ratios("latency", "latency", precision="bf16")),
        ("whole detectors", ratios("detectors", "latency")),
        ("eight callers at once", ratios("concurrency", "callers=8", more_is_better=True)),
    ],
)
def test_ahead(start, found):
    found = list(found)
    assert found and ("ahead" in row(start)) == (min(found) > 1), found


@pytest.mark.parametrize(
    ("start", "found"),
    [("another input size", ratios("sizes", "beyond"))],
)
def test_behind(start, found):
    found = list(found)
    assert found and ("**" in row(start)) == (max(found) < 1), found


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("first answer, later", ratios("startup", "warm")),
        ("peak memory of a process", ratios("memory", "peak_rss")),
    ],
)
def test_ahead_but_for_a_few(start, found):
    """Which are behind by a few hundredths, and named."""
    found = sorted(found)
    assert "ahead" in row(start) and "**behind**" in row(start)
    assert 0.8 < found[0] < 1 < found[len(found) // 5], found


def test_a_first_answer_is_several_times_behind():
    """Peers' starts are the same ones whether our cache is empty or not; by most networks."""
    found = []
    for results in load_all(RESULTS, "startup"):
        by_measure = {(r.case, r.measure): r for r in results.records}
        for (case, measure), cold in by_measure.items():
            if measure == "cold":
                warm = by_measure[case, "warm"]
                better = min(warm.figure(peer).median for peer in PEERS)
                found.append(cold.figure("saccade").median / better)
    found.sort()
    assert ("**behind** both" in row("first answer, empty cache")) == (found[0] > 1)
    assert found[len(found) // 3] > 2


def test_gpus_and_operators():
    for results in load_all(RESULTS, "cuda"):
        for _, latency, _ in report_gpu.rows_of(results):
            assert latency.figure("inductor").median > latency.figure("saccade").median
    said = row("operators of PyTorch")
    assert "on CPUs" in said and "and on an H200; on an H100 a few are **behind**" in said
    for name in (operators.FILE, operators.GPU_FILE):
        for document in operators.documents(RESULTS, name):
            peers = [r for r in document.rows if r["peer"] in ("torchvision", "torch")]
            behind = [r for r in peers if r["ratio"] < 1]
            assert len(behind) < len(peers) / 10, (name, behind)
            assert bool(behind) == ("H100" in document.gpu)
            assert all(r["ratio"] > 0.985 for r in behind)
