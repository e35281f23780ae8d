"""A report of a model that really runs, and its way through JSON."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from report_samples import report as made_up
from report_samples import step, whole

import saccade
from saccade.errors import OptionError
from saccade.kernels.select import Passed
from saccade.profile import Profile
from saccade.report import Report, collect
from saccade.report.collect import clocked, percentiles_of
from saccade.report.decode import MalformedError, decode
from saccade.report.types import Percentiles, Refused


def model(*, side="S", dtype=TensorProto.FLOAT):
    """Convolutions with an addition between, and a transpose at the end."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "second", pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["d"], "sum"),
        helper.make_node("Softmax", ["d"], ["y"], "soft", axis=1),
    ]
    weights = [(16, 3, 3, 3), (16, 16, 3, 3)]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", dtype, (1, 3, side, side))],
        [helper.make_tensor_value_info("y", dtype, (1, 16, side, side))],
        [
            numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), f"w{i}")
            for i, s in enumerate(weights)
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "net.onnx"
    onnx.save(model(), path)
    return saccade.compile(path, threads=2)


@pytest.fixture(scope="module")
def report(compiled):
    x = np.ones((1, 3, 20, 20), np.float32)
    return compiled.report(x, title="dir/net.onnx", repeat=3, seconds=0)


def test_steps_are_those_of_the_plan_with_their_times(compiled, report):
    plan = compiled.plan((1, 3, 20, 20))
    assert [one.name for one in report.steps] == [one.name for one in plan.steps]
    for one, planned in zip(report.steps, plan.steps, strict=True):
        assert one.kernel == planned.by and one.op == planned.op.title
        assert one.time > 0 and one.floor > 0 and one.estimate > 0
        assert len(one.spans) == len(one.phases) == len(planned.phases)
        assert all(len(phase) == 2 for phase in one.spans), "a span for each thread"
        assert [f"{r.kernel}: {r.reason}" for r in one.refused] == list(planned.reasons)
    assert report.totals.arena == plan.arena_bytes
    assert report.totals.batch == 1


def test_refused_kernels_have_their_estimates(report):
    others = [one for step in report.steps for one in step.refused]
    assert any(one.estimate is not None for one in others)
    assert any(one.estimate is None for one in others)
    assert all(one.measured is None for one in others)


def test_refusals_are_read_back():
    for told in (Passed.slower("conv2d.lattice", 12.34), Passed("pool.direct", "float64: no")):
        assert Passed.read(str(told)) == told
    assert Passed.slower("conv2d.lattice", 12.34).estimate == 12.3
    assert Passed("pool.direct", "float64: no").estimate is None
    assert Passed.read("no kernel is asked: it is a loop") == Passed(
        "", "no kernel is asked: it is a loop"
    )


def test_nodes_of_the_file_lead_to_their_steps(report):
    into = {one.name: one.step for one in report.imported}
    at = {one.name: i for i, one in enumerate(report.steps)}
    assert into["first"] == into["relu"] == at["relu"]
    assert into["second"] == into["sum"] == at["sum"]
    assert {one.shape for one in report.imported if one.name == "relu"} == {"1x16x20x20"}


def test_the_setting_is_told(report):
    about = report.about
    assert about.model == "dir/net.onnx"
    assert about.command == ("--shape x=1x3x20x20", "--threads 2")
    assert about.inputs == ("x float32 1x3x20x20",)
    assert about.precision == "fp32" and about.versions["numpy"] == np.__version__
    assert report.percentiles.p50 > 0 and len(report.times) >= 5


def test_json_and_back(report):
    assert Report.from_json(report.to_json()) == report
    assert Report.from_json(report.to_json(against=whole())) == report


def test_tuned_variants_are_told_with_their_times(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    onnx.save(model(side=16), tmp_path / "net.onnx")
    compiled = saccade.compile(tmp_path / "net.onnx", threads=1)
    x = np.ones((1, 3, 16, 16), np.float32)
    outcome = compiled.tune(x)
    found = compiled.report(x, repeat=1, seconds=0)
    engine = compiled._started()
    plan = compiled.plan((1, 3, 16, 16))
    measured = {one.kernel for of in engine.measured(plan) for one in of}
    assert outcome.measured and measured
    chosen = {one.kernel for one in found.steps}
    told = {r.kernel for one in found.steps for r in one.refused if r.measured is not None}
    assert measured - chosen <= told


def test_a_bundle_has_all_but_the_graph_of_the_file(compiled, tmp_path):
    path = tmp_path / "net.saccade"
    compiled.save(path, {"x": (1, 3, 20, 20)})
    found = saccade.compile(path).report(np.ones((1, 3, 20, 20), np.float32), repeat=1, seconds=0)
    assert found.imported == () and found.steps and found.blocks
    assert any("before fusion is not known" in one for one in found.about.remarks)


def test_a_gpu_has_one_row_and_tells_of_its_code(monkeypatch):
    """Of a plan for one, with made-up times: there may be none here."""
    compiled = saccade.compile(model(side=16), device="cuda", machine="h200", precision="fp16")
    plan = compiled.plan((1, 3, 16, 16))
    phases = [(step, phase) for step in plan.steps for phase in step.phases]
    readings = [
        (step, phase, np.array([[[9e3 * i, 9e3 * i + 5e3]]]))
        for i, (step, phase) in enumerate(phases)
    ]
    facts = [{"registers": 90 + i} for i in range(len(phases))]
    profile = Profile.of(plan, readings, plan.speeds, facts, 30.0)
    monkeypatch.setattr(collect, "describe_machine", lambda device: {"gpu": f"a {device} one"})
    found = collect.report_of(
        "net", profile, (20, (0.02,) * 30), compiled._options, compiled._started
    )
    assert Report.from_json(found.to_json()) == found
    assert found.about.device == "cuda" and found.about.machine == {"gpu": "a cuda one"}
    assert found.about.command[-2:] == ("--device cuda", "--precision fp16")
    assert found.totals.whole == 30.0 and found.totals.queued == 20
    assert [one.time for one in found.steps] == [5.0 * len(one.phases) for one in found.steps]
    assert found.steps[0].facts[0] == {"registers": 90}
    assert {len(phase) for one in found.steps for phase in one.spans} == {1}
    assert found.blocks


def test_a_model_without_steps_has_a_report():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (0, 3))
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, (0, 3))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [out])
    nothing = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = saccade.compile(nothing).report(np.ones((0, 3), np.float32), repeat=1, seconds=0)
    assert Report.from_json(found.to_json()) == found
    assert "saccade-report" in found.to_html()


def test_options_are_checked_before_anything_runs(compiled):
    x = np.ones((1, 3, 20, 20), np.float32)
    with pytest.raises(OptionError, match="seconds must be"):
        compiled.report(x, seconds=-1)
    with pytest.raises(OptionError, match="repeat must be"):
        compiled.report(x, repeat=0)


def test_names_of_nodes_are_escaped():
    odd = model(side=8)
    odd.graph.node[1].name = "bad\u202e\x1b name"
    found = saccade.compile(odd).report(np.ones((1, 3, 8, 8), np.float32), repeat=1, seconds=0)
    names = [one.name for one in (*found.steps, *found.imported)]
    assert any("\\u202e\\x1b" in name for name in names)
    assert all(name.isprintable() for name in names)


def test_a_few_samples_are_taken_in_any_case():
    times = iter(range(100))
    queued, found = clocked(lambda: None, lambda _run, _count: float(next(times)), 7, 0.0)
    assert queued == 7 and found == (1.0, 2.0, 3.0, 4.0, 5.0), "the first one warms up"


def test_percentiles():
    found = percentiles_of([float(n) for n in range(1, 101)])
    assert (found.least, found.most, found.p50, found.mean) == (1.0, 100.0, 50.5, 50.5)
    assert found.p90 == pytest.approx(90.1) and found.p99 == pytest.approx(99.01)


def damaged(change):
    record = json.loads(made_up(step()).to_json())
    change(record["report"])
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "no report of Saccade"),
        ('{"report": 3}', "no report of Saccade"),
        ("{", "Expecting property name"),
        ("[" * 100_000, "nested too deeply"),
        (damaged(lambda r: r.update(format=99)), "format is 99, this is format 2"),
        (damaged(lambda r: r.pop("steps")), "must have exactly"),
        (damaged(lambda r: r.update(more=1)), "must have exactly"),
        (damaged(lambda r: r["steps"][0].update(time="x")), "time is str, not float"),
        (damaged(lambda r: r["steps"][0].update(host=1)), "host is int, not bool"),
        (damaged(lambda r: r.update(times=[float("nan")])), "no finite number"),
        (damaged(lambda r: r["steps"][0].update(spans=[[[1.0]]])), "must have 2 elements"),
        (damaged(lambda r: r["about"].update(machine=[])), "machine is no mapping"),
        (damaged(lambda r: r.update(blocks={})), "blocks is no list"),
        (damaged(lambda r: r["totals"].update(whole="x")), "whole is str, not float or NoneType"),
        (damaged(lambda r: r["steps"][0].update(reads=[1])), "a step reads what there is not"),
        (damaged(lambda r: r["steps"][0].update(reads=[-2])), "a step reads what there is not"),
        (damaged(lambda r: r.update(times=[])), "of no run"),
    ],
)
def test_what_is_no_report_is_refused_with_a_reason(text, why):
    with pytest.raises(ValueError, match=why):
        Report.from_json(text)


def test_records_are_decoded_exactly():
    refused = {"kernel": "k", "reason": "r", "estimate": 3, "measured": None}
    assert decode(Refused, refused) == Refused("k", "r", 3.0, None)
    with pytest.raises(MalformedError, match="kernel is int, not str"):
        decode(Refused, refused | {"kernel": 3})
    assert replace(decode(Refused, refused), kernel="") != refused
    assert isinstance(percentiles_of([1.0]), Percentiles)
