"""tune, and what other commands make of its files. Real engine, tiny model."""

from __future__ import annotations

import json
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.backends.cpu.processor import this_machine
from saccade.kernels.cpu import all_kernels
from saccade.layout import assign
from saccade.opdefs import Conv2d
from saccade.tuning import Algorithms, Bounds, TunedCall
from saccade.tuning.candidates import candidates
from saccade.tuning.keys import call_key


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache of these tests' own; compiled code is shared between them."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))
    yield
    for kept in (folder / "algorithms").glob("*.json"):
        kept.unlink()


@pytest.fixture
def network(tmp_path):
    """x [1, 16, 20, 20] -> two convolutions."""
    rng = np.random.default_rng(0)

    def weights(name, shape):
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, name="first"),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "w1"], ["y"], name="second"),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 48, "H", "W"])],
        [weights("w0", (32, 16, 3, 3)), weights("w1", (48, 32, 1, 1))],
    )
    opset = [helper.make_opsetid("", 18)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def good(result):
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result


SHAPE = ("--shape", "x=1x16x20x20", "--threads", "2")


def counts(result):
    """Variants measured and variants known from before."""
    words = next(line for line in result.stdout.splitlines() if "variants measured" in line).split()
    return int(words[words.index("variants") - 1]), int(words[words.index("known") - 1])


def test_tune_end_to_end(saccade_cli, network, tmp_path):
    """Cut short, it keeps what it measured; run again, it goes on."""
    file = tmp_path / "algorithms.json"
    begin = good(saccade_cli("tune", network, *SHAPE, "--seconds", 1, "--export-algorithms", file))
    assert "ms after" in begin.stdout or "the default choices stay" in begin.stdout
    assert begin.stderr == ""
    assert json.loads(file.read_text())["version"] == 1
    measured, known = counts(begin)
    assert known == 0
    assert "no time was left" in begin.stdout
    assert counts(good(saccade_cli("tune", network, *SHAPE, "--seconds", 0))) == (0, measured)


def choices_for(network, tmp_path):
    """A file that chooses another variant than the default for each convolution."""
    engine = saccade.compile(network, threads=2)._started()
    sizes = {"N": 1, "H": 20, "W": 20}
    laid = assign(engine.graph, sizes, engine.backend, threads=2)
    entries = []
    for step in laid.steps:
        if not isinstance(step.op, Conv2d):
            continue
        kernels = [k for k in all_kernels() if isinstance(step.op, k.ops)]
        way = next(
            w
            for w in candidates(step.call, kernels, Bounds(within=9.0))
            if w.launches != step.launches
        )
        key = call_key(step.call)
        entries.append(TunedCall(step.name, key, way.kernel.name, way.id, way.rank, 3.0, 3.0, ()))
    file = tmp_path / "mine.json"
    file.write_text(Algorithms("cpu", this_machine(), tuple(entries)).to_json())
    return file


def test_imported_choices_are_taken(saccade_cli, network, tmp_path):
    file = choices_for(network, tmp_path)
    take = ("--import-algorithms", file)
    plan = good(saccade_cli("inspect", network, "--plan", *SHAPE, *take))
    assert plan.stdout.count("3.0*") == 2
    assert "(2 measured*)" in plan.stdout
    default = good(saccade_cli("inspect", network, "--plan", *SHAPE))
    assert "*" not in default.stdout
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(1).standard_normal((1, 16, 20, 20)).astype(np.float32))
    results = []
    for i, more in enumerate([(), take]):
        output = tmp_path / f"y{i}.npy"
        run = good(
            saccade_cli("run", network, "--input", x, "--threads", 2, "--output", output, *more)
        )
        assert run.stderr == ""
        results.append(np.load(output))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)
    profile = good(saccade_cli("profile", network, *SHAPE, "--repeat", 2, *take))
    assert profile.stderr == ""


def test_choices_that_do_not_fit_are_named_and_the_default_is_taken(saccade_cli, network, tmp_path):
    file = choices_for(network, tmp_path)
    take = ("--import-algorithms", file)
    other = ("--shape", "x=1x16x24x20", "--threads", "2")
    for command in ("run", "profile"):
        result = good(saccade_cli(command, network, *other, *take))
        lines = result.stderr.splitlines()
        assert len(lines) == 2
        assert all(line.startswith("saccade: warning: default taken for ") for line in lines)
        assert all("other sizes, storage or settings" in line for line in lines)
    reasons = good(saccade_cli("inspect", network, "--reasons", *other, *take))
    assert reasons.stdout.count("tuned choice not taken for") == 2


def test_tune_tries_imported_choices(saccade_cli, network, tmp_path):
    file = choices_for(network, tmp_path)
    result = good(saccade_cli("tune", network, *SHAPE, "--seconds", 1, "--import-algorithms", file))
    assert "variants measured" in result.stdout


@pytest.mark.parametrize("command", ["run", "bench", "profile", "inspect", "tune"])
def test_a_malformed_file_is_one_error(refused, network, tmp_path, command):
    file = tmp_path / "broken.json"
    file.write_text('{"version": 1')
    line = refused(command, network, *SHAPE, "--import-algorithms", file)
    assert "broken.json is not a file of algorithms" in line


def test_what_tune_refuses(refused, network, tmp_path):
    line = refused("tune", network, *SHAPE, "--import-algorithms", tmp_path / "none.json")
    assert "none.json" in line
    line = refused("tune", network, *SHAPE, "--export-algorithms", tmp_path / "no" / "a.json")
    assert "there is no such folder" in line
    assert "no such file" in refused("tune", tmp_path / "none.onnx")


def test_ctrl_c_says_how_far_it_came_and_the_same_command_goes_on(
    network, saccade_cli, monkeypatch
):
    waves = set()

    @contextmanager
    def stopped(_title):
        def report(progress):
            waves.update({progress.text} if progress.text.endswith("more candidate(s)") else ())
            if len(waves) > 4:  # compiled and timed, twice
                raise KeyboardInterrupt

        yield report

    with monkeypatch.context() as patched:
        patched.setattr("saccade.cli._progress.measuring", stopped)
        result = saccade_cli("tune", network, *SHAPE)
    assert result.exit_code == 130 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("saccade: interrupted: after ") and "more candidate(s)" in line
    assert line.endswith("measurements are kept: the same command goes on there")
    assert counts(good(saccade_cli("tune", network, *SHAPE, "--seconds", 0)))[1] > 0
