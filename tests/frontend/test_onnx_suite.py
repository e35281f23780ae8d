"""ONNX's backend suite: what its page says is true."""

from __future__ import annotations

import re
import unittest
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest

from saccade import onnx_backend
from saccade.errors import DeviceError, InputError
from saccade.testing.onnx_suite import DEVIATIONS, DRAWN, SuiteOutcome, cases, imported, page, ran

PAGE = (Path(__file__).parents[2] / "docs" / "onnx-backend.md").read_text()
STRIDE = 12
"""Every so manieth case is run; all are imported."""
pytestmark = pytest.mark.skipif(
    f"(ONNX {onnx.__version__};" not in PAGE, reason="the page is of another version's suite"
)


@cache
def every_import():
    """What became of each case, by name."""
    return {case.name: imported(case) for case in cases()}


def test_as_many_are_refused_as_the_page_says_and_none_crashes():
    found = every_import()
    refused = Counter(case.operator for case in cases() if found[case.name].refused)
    section = PAGE[PAGE.index("## By operator") : PAGE.index("## By element")]
    rows = re.findall(r"\| `(\w+)` \| (\d+) \| \d+ \| (\d+) \| (\d+) \|", section)
    assert sum(int(passed) + int(no) + int(wrong) for _, passed, no, wrong in rows) == len(found)
    assert {name: int(no) for name, _, no, _ in rows if int(no)} == dict(refused)


@pytest.mark.parametrize("start", range(STRIDE // 3))
def test_what_is_not_refused_gives_the_suites_numbers(start):
    some = [case for case in cases()[3 * start :: STRIDE * 3] if not imported(case).refused]
    assert len(some) > 10
    for case in some:
        outcome = ran(case)
        assert not outcome.refused, (case.name, outcome.refused)
        assert bool(outcome.wrong) == (case.name in DEVIATIONS), (case.name, outcome.wrong)


def test_deviations_are_those_that_there_are():
    for case in cases():
        if case.name in DEVIATIONS:
            assert ran(case).wrong


LEFT = {
    **dict.fromkeys(("test_not_2d", "test_not_3d", "test_not_4d"), "operator set 1"),
    "test_scan_sum": "Scan: ONNX's reference implementation cannot compute this",
}
"""Cases that ONNX's own reference implementation does not help, and why."""
WRAPPED = "test_if_opt"
"""It gives what an Optional holds within a list, where the case has it as it is."""


def test_what_is_refused_runs_by_onnxs_reference():
    refused = [case for case in cases() if every_import()[case.name].refused]
    for case in refused[::STRIDE]:
        outcome = ran(case, allow_reference=True)
        assert LEFT.get(case.name, "") in outcome.refused, (case.name, outcome.refused)
        assert bool(outcome.refused) == (case.name in LEFT), (case.name, outcome.refused)
        odd = case.name in DRAWN or case.name == WRAPPED
        assert bool(outcome.wrong) == odd, (case.name, outcome.wrong)


def test_a_page_counts_what_it_is_given():
    outcomes = {case.name: SuiteOutcome() for case in cases()[:4]}
    first, second, third = list(outcomes)[:3]
    outcomes[first] = SuiteOutcome(refused="Loop: a | b")
    outcomes[second] = SuiteOutcome(wrong="other numbers")
    outcomes[third] = SuiteOutcome(host=2)
    text = page(outcomes, {first: SuiteOutcome(host=1)})
    assert "1 more cases pass, 3 of 4 (75.0%)" in text
    text = page(outcomes, {first: SuiteOutcome(refused="nobody has it")})
    assert "0 more cases pass, 2 of 4 (50.0%)" in text and "| nobody has it | 1 |" in text
    assert "| passed by kernels of ours | 1 | 25.0% |" in text
    assert "| passed, with steps that NumPy computes | 1 | 25.0% |" in text
    assert "| Loop: a / b | 1 |" in text


def test_onnxs_own_runner_takes_the_backend():
    suite = onnx.backend.test.BackendTest(onnx_backend, __name__)
    for name in ("test_add", "test_reduce_sum_keepdims_random", "test_attention_4d"):
        suite.include(f"^{name}_cpu$")
    tests = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(kind) for kind in suite.test_cases.values()
    )
    result = unittest.TestResult()
    tests.run(result)
    assert result.wasSuccessful()
    assert result.testsRun - len(result.skipped) == 3


def floats(*values):
    return np.array(values, np.float32)


def test_nodes_run_alone():
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    assert onnx_backend.run_node(node, [floats(1, 2), floats(0.5, 0.5)])[0].tolist() == [1.5, 2.5]
    assert onnx_backend.run_node(node, {"b": floats(1), "a": floats(2)})[0].tolist() == [3.0]
    double = onnx.helper.make_node("Mul", ["a", "a"], ["c"])
    (result,) = onnx_backend.run_node(double, floats(3), opset_imports={"": 13})
    assert result == 9.0
    with pytest.raises(InputError, match="1 inputs given, the node has 2"):
        onnx_backend.run_node(node, [floats(1)])


def test_models_say_what_does_not_fit():
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node], "g", [onnx.helper.make_tensor_value_info("x", kind, (2,))],
        [onnx.helper.make_tensor_value_info("y", kind, (2,))],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    assert onnx_backend.is_compatible(model)
    rep = onnx_backend.prepare(model)
    with pytest.raises(InputError, match="2 inputs given, the model has 1"):
        rep.run([[1.0], [2.0]])
    with pytest.raises(InputError, match="no option 'fast'"):
        rep.run([[1.0, 2.0]], fast=True)
    model.graph.node[0].op_type = "RandomNormalLike"
    assert not onnx_backend.is_compatible(model)
    with pytest.raises(DeviceError, match="there is no device"):
        onnx_backend.prepare(model, "NPU")


def test_devices_are_those_that_are_here():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("NPU")
