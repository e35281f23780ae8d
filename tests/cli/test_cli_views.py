"""profile, inspect, and what all commands have in common."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from fake_engine import FakePlan, Info

from saccade.errors import Unsupported, UnsupportedModelError
from saccade.kernels.cpu import CPU_KERNELS
from saccade.version import VERSION

pytestmark = pytest.mark.usefixtures("engine")

COMMANDS = ("run", "bench", "tune", "profile", "report", "inspect", "compare")


def test_profile_prints_and_writes(saccade_cli, engine, model_file, tmp_path):
    result = saccade_cli(
        "profile", model_file, "--shape", "1x3x4x5", "--repeat", 7,
        "--json", tmp_path / "p.json", "--trace", tmp_path / "t.json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "conv1 12.5 µs\n"
    ((arrays, repeat),) = engine.model.calls
    assert [array.shape for array in arrays] == [(1, 3, 4, 5)]
    assert repeat == 7
    assert json.loads((tmp_path / "p.json").read_text()) == {"steps": []}
    assert json.loads((tmp_path / "t.json").read_text()) == {"traceEvents": []}


def test_profile_refuses_a_peer_that_does_not_time_its_layers(refused, model_file):
    line = refused("profile", model_file, "--shape", "1x3x4x5", "--against", "onnxruntime")
    assert "'onnxruntime' is not one of openvino" in line


@pytest.mark.usefixtures("engine")
def test_profile_refuses_a_peer_that_is_not_on_the_device(refused, model_file):
    line = refused(
        "profile", model_file, "--shape", "1x3x4x5", "--against", "openvino", "--device", "cuda"
    )
    assert "openvino is timed on the cpu only, not on 'cuda'" in line


def test_profile_takes_files(saccade_cli, engine, model_file, tmp_path):
    array = np.ones((1, 3, 2, 2), np.float32)
    np.save(tmp_path / "x.npy", array)
    assert saccade_cli("profile", model_file, "--input", tmp_path / "x.npy").exit_code == 0
    np.testing.assert_array_equal(engine.model.calls[0][0][0], array)


def test_inspect_shows_each_view(saccade_cli, model_file):
    views = {
        ("--stages",): "import\nfuse\n",
        ("--stage", "fuse"): "graph after fuse\n",
        ("--plan", "--shape", "1x3x8x8"): "plan at {'input': (1, 3, 8, 8)}\n",
        ("--reasons", "--shape", "1x3x8x8"): (
            "Conv2d conv1: conv2d.direct, chosen: 12.5 µs estimated\n"
            "    conv2d.winograd: stride 2\n"
            "    conv2d.depthwise: groups 1\n"
            "Conv2d pool1: pool.direct, chosen: 12.5 µs estimated\n"
            "Conv2d odd1: reference, chosen: on the host\n"
            "    pointwise.chain: float64\n"
        ),
        ("--assembly", "*1", "--shape", "1x3x8x8"): (
            "conv1, phase 1 of 2:\n*1 at {'input': (1, 3, 8, 8)}\nret\n"
            "conv1, phase 2 of 2:\nret\n"
            "odd1: no code, it runs on the host or is a view\n"
        ),
    }
    for arguments, text in views.items():
        result = saccade_cli("inspect", model_file, *arguments)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == text


def test_inspect_begins_with_a_summary(saccade_cli, model_file):
    result = saccade_cli("inspect", model_file, "--shape", "1x3x8x8")
    assert result.exit_code == 0, result.stderr
    lines = " ".join(result.stdout.split())
    size = model_file.stat().st_size
    assert lines == (
        f"{model_file}: {size} B, opset 18, made by an unnamed producer "
        "operators: 2 (Neg 1, Relu 1) "
        "parameters: 0 in 0 tensors, 0 B "
        "a run at input 1x3x8x8: 0.006 GFLOP in 3 steps, 4.0 KiB of memory for what is between "
        "them, estimated 0.037 ms "
        "input input: float32 Nx3xHxW output output: float32 Nx3xHxW stages: import, fuse"
    )


def test_a_summary_of_sizes_that_nobody_told(saccade_cli, engine, model_file):
    engine.model.inputs = (Info("input", "float32", ("A", "B")),)
    result = saccade_cli("inspect", model_file)
    assert result.exit_code == 0, result.stderr
    assert "a run: not known (input 'input' has shape AxB: choose sizes" in result.stdout


def test_the_fake_plan_speaks_of_kernels_that_there_are():
    """And as plans do: a string for a reason."""
    steps = FakePlan({}).steps
    said = [reason.partition(": ")[0] for step in steps for reason in step.reasons]
    assert {*said, *(step.kernel for step in steps)} - {None} <= {one.name for one in CPU_KERNELS}


def test_inspect_plans_as_another_machine_would(saccade_cli, engine, model_file):
    shown = ("inspect", model_file, "--plan", "--shape", "1x3x8x8")
    for machine in ("sapphire-rapids", None):
        given = () if machine is None else ("--machine", machine)
        assert saccade_cli(*shown, *given).exit_code == 0
        assert engine.machine == machine


def test_inspect_refuses_unknown_and_contradicting_views(refused, model_file):
    assert "'magic' is not one of import, fuse" in refused(
        "inspect", model_file, "--stage", "magic"
    )
    assert "choose one of" in refused("inspect", model_file, "--plan", "--reasons")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_is_not_supported_fits_the_terminal(
    saccade_cli, engine, model_file, monkeypatch, width
):
    monkeypatch.setenv("COLUMNS", str(width))
    remedy = "none by options: export the model without it"
    engine.error = UnsupportedModelError(
        [
            Unsupported("org.acme.Strange", "FLOAT", "no such operator", 2, ("a", "b"), remedy),
            Unsupported("Loop", "-", "control flow", 1, ()),
        ]
    )
    lines = saccade_cli("inspect", model_file).stderr.splitlines()
    assert lines[0] == "saccade: error: 3 node(s) of this model are not supported:"
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert f"no such operator; what could be done: {remedy}; first nodes: a, b" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(saccade_cli, command):
    result = saccade_cli(command, "--help")
    assert result.exit_code == 0
    assert "MODEL" in result.stdout


@pytest.mark.parametrize("command", [(), *[(c,) for c in (*COMMANDS, "cache")], ("cache", "ls")])
def test_help_is_short_as_well(saccade_cli, command):
    assert saccade_cli(*command, "-h").stdout == saccade_cli(*command, "--help").stdout != ""


def test_the_package_runs_as_the_command():
    result = subprocess.run(
        [sys.executable, "-m", "saccade", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"saccade {VERSION}\n"


def test_the_command_line_imports_nothing_heavy():
    """Only what typer itself brings may be loaded before a command runs."""
    code = (
        "import sys, typer, saccade; before = set(sys.modules); import saccade.cli._app; "
        "print(*(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"numpy", "onnx", "PIL", "rich", "llvmlite", "onnxruntime", "openvino"}
    ours = {name for name in loaded if name.startswith("saccade.")}
    commands = {
        f"saccade.cli.{name}"
        for name in (
            *COMMANDS, "bench_ops", "build", "cache", "warm", "_app", "_memory", "_options",
            "_outputs", "_print", "_quiet", "_shape_texts",
        )
    }  # fmt: skip
    assert ours <= commands | {"saccade.cli", "saccade.errors", "saccade.tables"}
