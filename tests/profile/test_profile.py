"""What clock readings become: times by step and kernel, shares, and a peer's times beside them."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from layout_graphs import RELU, Builder, plan_of
from onnx import TensorProto, helper

from saccade.cli._peer_layers import owners
from saccade.kernels.cpu.machine import machine
from saccade.profile import PeerLayer, PeerLayers, Profile, StepTime
from saccade.profile.text import _facts as cells
from saccade.testing.targets import ZEN4

STEP = StepTime("conv1", "conv2d.any", "", 2.0, (1.0, 1.0), 1.0, 1, 1, 0.5)


@pytest.fixture
def plan():
    b = Builder((1, 8, 16, 16))
    return plan_of(b.graph(b.add(RELU, b.conv(b.conv(b.inputs[0], 8), 8, taps=1))))


def readings(plan, spans):
    """One run on two threads: for each step, (start, end) of either thread in microseconds."""
    return [
        (step, phase, 1000.0 * np.array([pair], float))
        for step, pair in zip(plan.steps, spans, strict=True)
        for phase in step.phases
    ]


@pytest.fixture
def profile(plan):
    assert all(len(step.phases) == 1 for step in plan.steps), "the times below are of one phase"
    spans = [((10 + 30 * i, 30 + 30 * i), (10 + 30 * i, 20 + 30 * i)) for i in range(9)]
    return Profile.of(plan, readings(plan, spans[: len(plan.steps)]), machine(ZEN4))


def test_shares_tell_imbalance_from_barriers(profile):
    count = len(profile.steps)
    whole = 2 * (30 * count - 10)  # 20 µs a step on two threads, 10 µs between steps
    assert profile.total == pytest.approx(whole / 2)
    assert profile.shares.working == pytest.approx(30 * count / whole)
    assert profile.shares.imbalance == pytest.approx(10 * count / whole)
    assert profile.shares.barriers == pytest.approx(20 * (count - 1) / whole)
    assert all(s.microseconds == pytest.approx(20) for s in profile.steps)
    assert all(s.busy == pytest.approx(0.75) for s in profile.steps)


def test_families_add_up_to_the_steps(profile):
    for kernel in {s.kernel for s in profile.steps}:
        members = [s for s in profile.steps if s.kernel == kernel]
        (family,) = (f for f in profile.families if f.kernel == kernel)
        assert family.steps == len(members)
        assert family.microseconds == pytest.approx(20 * len(members))
        assert family.flops == sum(s.flops for s in members)
    times = [f.microseconds for f in profile.families]
    assert times == sorted(times, reverse=True)


def test_rates_are_of_the_operator(profile):
    step = profile.steps[0]
    assert step.gflops == pytest.approx(step.flops / 20e3)
    assert step.gbytes == pytest.approx(step.bytes / 20e3)
    assert step.roofline == pytest.approx(step.floor / 20)


def test_what_more_than_the_roofline_means_is_told_where_there_is_any(profile):
    assert "above 100%" not in profile.table()
    first = replace(profile.steps[0], floor=30.0)
    assert "150%" in (text := replace(profile, steps=(first, *profile.steps[1:])).table())
    assert text.splitlines()[-1].startswith("roofline above 100%: ")


def test_a_peer_stands_beside_the_steps_that_match(profile):
    first = profile.steps[0].name
    layers = (
        PeerLayer(("fused", first), "conv", 30.0),
        PeerLayer((first,), "bias", 10.0),
        PeerLayer(("elsewhere",), "reorder", 7.0),
    )
    peer = PeerLayers("openvino 1", layers)
    times, left = peer.beside(s.name for s in profile.steps)
    assert times == {first: 40.0}
    assert left == layers[2:]
    text = profile.table(peer)
    assert "2.00" in text.splitlines()[1], "40 µs of theirs over 20 of ours"
    assert "7.0 without a match" in text and "elsewhere" in text
    assert json.loads(profile.to_json(peer))["peer"]["engine"] == "openvino 1"
    assert "openvino" not in profile.table()


def test_nodes_belong_to_the_step_that_they_were_fused_into(tmp_path, profile):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Add", ["a", "b"], ["c"], "add"),
        helper.make_node("Relu", ["c"], ["d"], "relu"),
        helper.make_node("Sigmoid", ["d"], ["e"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xwb"],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [1])],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    found = owners(tmp_path / "m.onnx", {"relu", "e"})
    assert found == {"conv": "relu", "add": "relu", "relu": "relu", "e": "e"}
    peer = PeerLayers("p", (PeerLayer(("conv", "add"), "conv", 5.0),)).of_steps(found)
    assert peer.beside(["relu"]) == ({"relu": 5.0}, ())


def test_a_trace_has_a_row_per_thread(profile):
    events = json.loads(profile.to_chrome_trace())["traceEvents"]
    assert {e["tid"] for e in events} == {0, 1}
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == 2 * len(profile.steps)
    assert spans[0]["ts"] == 0.0 and spans[0]["dur"] == pytest.approx(20)
    assert spans[1]["dur"] == pytest.approx(10)


def told(plan):
    """A phase's facts each: of the first step's code it is not known how many registers it has."""
    return [{"registers": 90 + i, "limit": "shared"} if i else {} for i in range(len(plan.steps))]


def test_facts_are_columns_and_stand_in_the_trace(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100000")
    spans = [((30 * i, 30 * i + 20),) for i in range(len(plan.steps))]
    found = Profile.of(plan, readings(plan, spans), machine(ZEN4), told(plan))
    head, first, second = found.table().splitlines()[:3]
    assert head.split()[-2:] == ["registers", "limit"]
    assert "  91  shared  conv2d." in second and "shared" not in first
    # Below the row where there is no room beside it.
    monkeypatch.setenv("COLUMNS", "60")
    narrow = found.table()
    assert "limit" not in narrow.splitlines()[0] and "registers 91; limit shared" in narrow
    assert json.loads(found.to_json())["steps"][1]["facts"] == [
        {"registers": 91, "limit": "shared"}
    ]
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    assert [e["args"].get("registers") for e in events if e["ph"] == "X"][:2] == [None, 91]


def test_steps_are_called_by_operator_and_node(profile, plan):
    assert [f"{s.op} {s.name}" for s in profile.steps] == [
        f"{s.op.title} {s.name}" for s in plan.steps
    ]
    assert f"\n{profile.steps[1].op} {profile.steps[1].name} " in profile.table()


def test_configs_are_whole_in_any_width(profile, plan, monkeypatch):
    for width in (80, 100_000):
        monkeypatch.setenv("COLUMNS", str(width))
        words = ["".join(text.split()) for text in (profile.table(), str(plan))]
        for step in profile.steps:
            assert all("".join(step.config.split()) in text for text in words)
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, profile.table().partition("\n\n")[0].splitlines())) <= 80


def test_phases_that_agree_share_a_cell():
    steps = [replace(STEP, facts=({"warps": 4}, {"warps": n})) for n in (4, 8)]
    assert [cells(step, ["warps", "absent"]) for step in steps] == [("4", ""), ("4+8", "")]


def test_rates_of_fast_machines_are_told_by_10_to_the_12(plan):
    spans = [((30 * i, 30 * i + 20),) for i in range(len(plan.steps))]
    fast = replace(machine(ZEN4), flops=6.7e7)
    found = Profile.of(plan, readings(plan, spans), fast)
    assert found.tera and "TFLOP/s" in found.table() and "TB/s" in found.table()
    assert "GFLOP/s" not in found.table()
    assert f" {found.steps[0].gflops / 1e3:.1f} " in found.table().splitlines()[1]


def test_a_whole_run_is_told_where_steps_ran_one_by_one(plan, profile):
    spans = [((30 * i, 30 * i + 20),) for i in range(len(plan.steps))]
    found = Profile.of(plan, readings(plan, spans), machine(ZEN4), (), 123.4)
    assert found.table().endswith("a run launched at once takes 123.4 µs")
    assert json.loads(found.to_json())["whole_us"] == 123.4
    assert "at once" not in profile.table()


def test_nothing_native_is_said(plan):
    assert "nothing to time" in str(Profile.of(plan, [], machine(ZEN4)))
