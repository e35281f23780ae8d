"""Reports of real models: pages of at most 2 MB, and an arena that is the planner's."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from saccade.report import Report
from saccade.report.page import LARGEST, data_of

SHAPES = {
    "resnet50": (1, 3, 224, 224),
    "densenet121": (1, 3, 224, 224),
    "shufflenet_v2_x1_0": (1, 3, 224, 224),
    "fasterrcnn_resnet50_fpn": (3, 480, 640),
}


@pytest.fixture(scope="module", params=SHAPES)
def report(request, zoo):
    image = np.full(SHAPES[request.param], 0.5, np.float32)
    return zoo.compiled(request.param).report(image, title=request.param, repeat=1, seconds=0)


def test_pages_are_small_even_of_two_runs(report):
    page = report.to_html(against=report)
    assert len(page.encode()) <= LARGEST
    assert Report.from_json(data_of(page)) == report, "nothing is left out"


def test_the_arena_is_the_planners(report):
    blocks, totals = report.blocks, report.totals
    live = [
        sum(one.nbytes for one in blocks if one.first <= i <= one.last)
        for i in range(len(report.steps))
    ]
    # The planner aligns each value.
    assert 0.99 * totals.live <= max(live) <= totals.live
    assert max(one.offset + one.nbytes for one in blocks) <= totals.arena
    assert not [
        (a, b)
        for a, b in combinations(blocks, 2)
        if a.first <= b.last and b.first <= a.last
        and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
    ]  # fmt: skip


def test_every_step_has_its_time_and_most_nodes_a_step(report):
    assert all(step.time > 0 for step in report.steps if step.phases)
    into = [node.step is not None for node in report.imported]
    assert sum(into) > 0.9 * len(into)
