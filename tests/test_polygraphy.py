"""The plug-in of Polygraphy, in the real tool: an installed package as far as the tool can tell."""

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import saccade
from saccade.options import Options

pytest.importorskip("polygraphy")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packages" / "polygraphy-saccade"
TOOL = "import sys; from polygraphy.tools import main; sys.exit(main())"
SHAPE = "image:[1,3,12,9]"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A path for Python on which the package lies as pip would have put it."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    (group, names), *rest = project["entry-points"].items()
    assert not rest
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    lines = [f"{name} = {where}" for name, where in names.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    return os.pathsep.join(map(str, (site, PACKAGE, ROOT / "src", *sys.path)))


@pytest.fixture
def tool(installed):
    def run(*words, code=TOOL):
        return subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300,
            check=False, cwd=ROOT, env={**os.environ, "PYTHONPATH": installed},
        )  # fmt: skip

    return run


def upscale(*words):
    return ("run", "examples/upscale/model.onnx", "--input-shapes", SHAPE, *words)


def test_it_agrees_with_onnx_runtime(tool):
    done = tool(*upscale("--saccade", "--onnxrt", "--atol", "1e-4", "--iterations", "2"))
    assert done.returncode == 0, done.stderr
    assert "saccade-runner-N0" in done.stdout and "onnxrt-runner-N0" in done.stdout
    assert "Passed: 2/2 iterations" in done.stdout


def test_options_arrive_and_what_differs_fails(tool):
    """bfloat16 has three digits: if it were not taken, the outputs would agree."""
    options = ("--saccade-precision", "bf16", "--saccade-threads", "1", "--atol", "1e-4")
    done = tool(*upscale("--saccade", *options, "--onnxrt"))
    assert done.returncode == 1
    assert "Pass Rate: 0.00%" in done.stdout + done.stderr


def test_every_tensor_can_be_an_output(tool):
    done = tool(*upscale("--saccade", "--onnxrt", "--atol", "1e-4", "--onnx-outputs", "*"))
    assert done.returncode == 0, done.stderr
    outputs = re.search(r"All outputs matched . Outputs: \[(.*)\]", done.stdout).group(1)
    assert len(outputs.split(", ")) > 3


def test_a_generated_script_does_the_same(tool):
    words = ("--saccade", "--saccade-exact", "--onnxrt", "--atol", "1e-4", "--gen-script", "-")
    script = tool(*upscale(*words)).stdout
    assert re.search(r"= ModelFromOnnx\('.*model\.onnx', exact=True\)", script)
    done = tool(code=script)
    assert done.returncode == 0 and "Pass Rate: 100.00%" in done.stdout, done.stderr


def test_a_mistake_is_told_without_a_traceback(tool):
    done = tool(*upscale("--saccade", "--saccade-precision", "fp99"))
    assert done.returncode == 1
    assert "[!] Saccade: precision='fp99' is not one of fp32" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.syspath_prepend(PACKAGE)
    return importlib.import_module("polygraphy_saccade")


def test_every_option_exists(plugin):
    known = {*signature(saccade.compile).parameters, *Options.__dataclass_fields__}
    assert set(plugin.OPTIONS) <= known - {"source", "more"}


def test_types_sizes_and_arrays_as_polygraphy_has_them(plugin):
    types = {"a": TensorProto.INT64, "b": TensorProto.BOOL, "c": TensorProto.FLOAT16}
    inputs = [helper.make_tensor_value_info(n, t, ["N", 2]) for n, t in types.items()]
    names = [f"{name}2" for name in types]
    nodes = [helper.make_node("Identity", [n], [o]) for n, o in zip(types, names, strict=True)]
    outputs = [
        helper.make_tensor_value_info(n, t, ["N", 2])
        for n, t in zip(names, types.values(), strict=True)
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    feeds = {"a": np.array([[1, 2]]), "b": np.array([[True, False]]),
             "c": np.array([[0.5, -2]], np.float16)}  # fmt: skip
    made = plugin.ModelFromOnnx(model.SerializeToString(), cache=False)
    with plugin.SaccadeRunner(made) as runner:
        metadata = runner.get_input_metadata(use_numpy_dtypes=False)
        assert {n: str(m.dtype) for n, m in metadata.items()} == {
            "a": "int64", "b": "bool", "c": "float16"
        }  # fmt: skip
        assert all(tuple(meta.shape) == (None, 2) for meta in metadata.values())
        results = runner.infer(feeds)
        assert runner.last_inference_time() > 0
    for name, value in feeds.items():
        assert np.array_equal(results[f"{name}2"], value)
    assert not hasattr(runner, "model")


def test_its_readme_s_command_runs(tool):
    page = (PACKAGE / "README.md").read_text()
    (line,) = re.findall(r"^polygraphy (run examples/.*)$", page, re.MULTILINE)
    done = tool(*shlex.split(line))
    assert done.returncode == 0, done.stderr


def test_it_is_short():
    assert len((PACKAGE / "polygraphy_saccade.py").read_text().splitlines()) <= 150
