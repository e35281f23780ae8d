from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.bandwidth import DTYPES, MARKS, NOTES, RESULTS, SIZES, table
from benchmarks.bandwidth_cases import CASES, SWEEPS, moved, sized

from saccade import passes
from saccade.ir import DType
from saccade.ir.verify import verify


@pytest.mark.parametrize("name", CASES)
def test_every_case_moves_about_as_many_bytes_as_asked_for(name):
    for dtype in DTYPES.values():
        sweeps = SWEEPS.get(name, 1)
        graph = passes.run(sized(CASES[name], dtype, SIZES["L3"], sweeps), check=True)
        verify(graph)
        assert np.isclose(moved(graph, sweeps), SIZES["L3"], rtol=0.1)
        assert all(v.dtype is dtype for v in graph.values() if v not in graph.constants)


def test_a_transposed_case_gives_the_caller_channels_last():
    graph = sized(CASES["maximum 2x2, stride 2"], DType.F32, 1 << 20)
    assert graph.inputs[0].shape[3] == graph.outputs[0].shape[3] == 128
    assert graph.inputs[0].shape[1] == 2 * graph.outputs[0].shape[1]


def test_the_table_marks_what_misses_the_aim():
    names = list(CASES)
    shares = {("L2", "float32"): 0.799, ("memory", "bfloat16"): 0.8}
    records = [
        {"case": names[0], "size": size, "dtype": dtype, "share": share}
        for (size, dtype), share in shares.items()
    ]
    lines = table({"records": records}).splitlines()
    assert lines[2] == f"| {names[0]} | **0.80** |  |  |  |  | 0.80 |"
    assert len(lines) == 2 + len(names)


def test_the_table_of_the_notes_is_that_of_the_record():
    document = json.loads(RESULTS.read_text())
    keys = {(r["case"], r["size"], r["dtype"]) for r in document["records"]}
    assert keys == {(c, s, d) for c in CASES for s in SIZES for d in DTYPES}
    begin, end = MARKS
    written = NOTES.read_text().partition(begin)[2].partition(end)[0]
    assert written.strip() == table(document)
