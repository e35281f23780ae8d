"""Tuning for GPUs: what is measured, kept, refused and survived. All times are made up."""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from cuda_tuning import TimedGpu, entries, made_up, use
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.backends.cuda.cubins import Cubins
from saccade.backends.cuda.measuring import Timed
from saccade.backends.cuda.runtime import context
from saccade.bundlefile import open_bundle
from saccade.cli._app import app
from saccade.errors import DeviceError
from saccade.plan import Plan
from saccade.tuning.keys import call_key

sys.path.append(str(Path(__file__).parents[1] / "runtime"))
from runtime_models import convolutions

SHAPE = (1, 3, 20, 18)
TEXT = ("--shape", "x=1x3x20x18", "--precision", "fp16")
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "net.onnx"
    found.write_bytes(convolutions(16).SerializeToString())
    return found


@pytest.fixture
def gpu(monkeypatch):
    found = TimedGpu(made_up)
    use(monkeypatch, found)
    return found


def cli(*arguments):
    from typer.testing import CliRunner  # noqa: PLC0415

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def compiled(path, **options):
    return saccade.compile(path, device="cuda", precision="fp16", **options)


def micros(step):
    """Of a step's code, as it was made up."""
    return sum(made_up(step.kernel, phase.config) for phase in step.phases)


def measured(plan):
    return [step for step in plan.steps if step.measured]


def test_the_fastest_variants_are_kept(path, gpu):
    model, told = compiled(path), []
    untuned = model.plan(SHAPE)
    outcome = model.tune(X, report=told.append)
    assert outcome.whole.faster and outcome.changes and not outcome.failures
    tuned = model.plan(SHAPE)
    assert len(measured(tuned)) == len(outcome.algorithms.entries) > 0
    for before, after in zip(untuned.steps, tuned.steps, strict=True):
        if after.measured:
            assert micros(after) < micros(before)
            assert after.estimate == pytest.approx(micros(after), abs=2e-3)
    best = {}
    for contest in gpu.contests:
        taken = [sum(made_up(*gpu.codes[c.code]) for _, c in v) for v in contest.variants]
        call = tuple(region.nbytes for region in contest.regions[:2])
        best[call] = min(best.get(call, 1e9), *taken)
    assert {round(micros(step), 6) for step in measured(tuned)} <= set(best.values())
    assert "what tune kept, sha256 " + model.algorithms.digest in str(tuned)
    assert Plan.from_json(tuned.to_json()) == tuned
    assert told[-1].remaining == 0 and all(p.remaining >= 0 for p in told)
    gpu.driver.memory.check()


def test_candidates_are_compiled_once_and_measured_once(path, gpu):
    outcome = compiled(path).tune(X)
    assert len(gpu.compiled) == len(set(gpu.compiled))
    explored = [c for c in gpu.contests if c.rounds == 5]
    assert len(explored) == outcome.measured
    assert len({repr((c.regions, c.variants)) for c in explored}) == len(explored)


def test_layers_that_are_equal_are_measured_once(gpu, tmp_path):
    rng = np.random.default_rng(0)
    names = ["x", "a", "b", "c", "y"]
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3)).astype(np.float32), f"w{i}")
        for i in range(4)
    ]
    nodes = [
        helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], pads=[1] * 4, name=f"n{i}")
        for i in range(4)
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 12, 12]) for n in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    path, opset = tmp_path / "chain.onnx", [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    outcome = compiled(path).tune(np.zeros((1, 8, 12, 12), np.float32))
    assert len(outcome.calls) == 3
    assert len([c for c in gpu.contests if c.rounds == 5]) == outcome.measured
    assert ("n1", "n2") in [change.steps for change in outcome.changes]


def test_later_models_find_what_was_kept(path, gpu):
    first = compiled(path)
    outcome = first.tune(X)
    second = compiled(path)
    assert second.plan(SHAPE) == first.plan(SHAPE)
    again = second.tune(X)
    assert (again.measured, again.remembered) == (0, outcome.measured)
    other = compiled(path).plan((2, 3, 20, 18))
    assert not measured(other) and not other.refused


def test_another_gpu_finds_nothing_of_it(path, gpu, tmp_path, monkeypatch):
    compiled(path).tune(X)
    shutil.rmtree(tmp_path / "cache" / "cubins")  # of the fake's code, which is its own
    use(monkeypatch, TimedGpu(made_up, name="NVIDIA H100 80GB HBM3"))
    model = compiled(path)
    assert not measured(model.plan(SHAPE))
    outcome = model.tune(X)
    assert outcome.remembered == 0 and outcome.measured
    assert dict(outcome.algorithms.machine) == {"gpu": "NVIDIA H100", "arch": "sm_90"}


def test_a_run_that_was_cut_off_goes_on(path, gpu, monkeypatch):
    real, calls = gpu.times, []

    def cut_off(contest):
        calls.append(contest)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return real(contest)

    monkeypatch.setattr(gpu, "times", cut_off)
    with pytest.raises(KeyboardInterrupt):
        compiled(path).tune(X)
    monkeypatch.setattr(gpu, "times", real)
    outcome = compiled(path).tune(X)
    assert 0 < outcome.remembered < 12
    assert outcome.algorithms.entries


def test_a_budget_ends_it(path, gpu, monkeypatch):
    outcome = compiled(path).tune(X, seconds=0.0)
    assert outcome.skipped and not outcome.measured and not outcome.algorithms.entries


def test_what_cannot_be_run_costs_only_itself(path, gpu, monkeypatch):
    """Some code is refused by the GPU, some takes it along, some is not even code."""
    real, kinds = gpu.times, {}

    def fragile(contest):
        key = contest.variants[1][0][1].code
        kind = kinds.setdefault(key, ("", "", "refused", "lost")[len(kinds) % 4])
        return Timed(None, f"it is {kind}", kind == "lost") if kind else real(contest)

    monkeypatch.setattr(gpu, "times", fragile)
    plain, made = Cubins._compiled, []

    def some(cubins, keys, processes):
        for key, code in zip(keys, plain(cubins, keys, processes), strict=True):
            made.append(key)
            yield "it is no code" if len(made) > 10 and len(made) % 9 == 0 else code

    monkeypatch.setattr(Cubins, "_compiled", lambda *given: list(some(*given)))
    outcome = compiled(path).tune(X)
    for reason in ("refused", "lost", "no code"):
        assert any(f"it is {reason}" in one for one in outcome.failures), reason
    assert outcome.algorithms.entries and outcome.whole.faster
    good = outcome.measured
    monkeypatch.setattr(gpu, "times", real)
    monkeypatch.setattr(Cubins, "_compiled", plain)
    again = compiled(path).tune(X)
    assert again.remembered == good and again.measured and not again.failures


def test_choices_travel_to_a_machine_without_a_gpu(path, gpu, tmp_path, monkeypatch):
    file, bundle = tmp_path / "mine.json", tmp_path / "net.saccade"
    result = cli("tune", path, "--device", "cuda", *TEXT, "--export-algorithms", file)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "ms after" in result.stdout and result.stderr == ""
    chosen = entries(file)
    assert chosen
    here = compiled(path).plan(SHAPE)
    monkeypatch.delitem(context._opened, 0)
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "another machine"))
    there = compiled(path, machine="h200", algorithms=file).plan(SHAPE)
    assert there.steps == here.steps and not there.refused
    assert {step.name for step in measured(there)} == set(chosen)
    built = cli("build", path, "--device", "cuda", "--machine", "h200", *TEXT,
                "--import-algorithms", file, "-o", bundle)  # fmt: skip
    assert built.exit_code == 0 and built.stderr == "", (built.output, built.exception)
    content = bytes(open_bundle(bundle).read("0/plan/0")).decode()
    assert f"{len(chosen)} step(s) as tuned: mine.json, sha256 " in content
    assert compiled(path, machine="h200").plan(SHAPE) != there


def test_choices_of_another_gpu_are_refused(path, gpu, tmp_path, monkeypatch):
    file, bundle = tmp_path / "mine.json", tmp_path / "net.saccade"
    cli("tune", path, "--device", "cuda", *TEXT, "--export-algorithms", file)
    monkeypatch.delitem(context._opened, 0)
    plan = compiled(path, machine="h100", algorithms=file).plan(SHAPE)
    assert not measured(plan)
    (refusal,) = plan.refused
    assert "measured on another machine: gpu NVIDIA H200, here NVIDIA H100" in refusal
    assert "as tuned" not in str(plan)
    built = cli("build", path, "--device", "cuda", "--machine", "h100", *TEXT,
                "--import-algorithms", file, "-o", bundle)  # fmt: skip
    assert built.exit_code == 0
    assert "warning: default taken for all" in built.stderr and "H200" in built.stderr


def test_a_described_gpu_that_is_not_here_is_not_tuned(path, gpu):
    with pytest.raises(saccade.OptionError, match="machine='a100' cannot be tuned on this NVIDIA"):
        compiled(path, machine="a100").tune(X)
    assert compiled(path, machine="h200").tune(X, seconds=0.0).skipped


def test_without_a_gpu_there_is_one_error(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda", None)
    result = cli("tune", path, "--device", "cuda", *TEXT)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "saccade: error: device cuda needs the package cuda-bindings: pip install 'saccade[cuda]'"
    ]
    with pytest.raises(DeviceError, match="needs the package cuda-bindings"):
        compiled(path, machine="h200").tune(X)


def test_what_products_round_to_is_part_of_a_call(path):
    keys = []
    for precision in ("fp32", "tf32"):
        model = saccade.compile(path, device="cuda", machine="h200", precision=precision)
        engine = model._started()
        laid = engine._lay_out({"N": 1, "H": 20, "W": 18}, lambda *_: True)
        keys.append({call_key(step.call) for step in laid.steps})
    assert not keys[0] & keys[1]
