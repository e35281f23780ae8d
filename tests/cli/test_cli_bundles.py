"""What `saccade build` writes, in the commands that take models."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx.parser
import pytest

import saccade

TEXT = (
    '<ir_version: 8, opset_import: ["" : 18]> g (float[N, 3, H, W] x) => (float[N, 3, H, W] y)'
    "{ a = Mul(x, x)  y = Relu(a) }"
)


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Paths of temporary files are long."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundles") / "m.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


@pytest.fixture(scope="module")
def bundle(source):
    """Of one size, for a team of one."""
    path = source.with_name("one.saccade")
    saccade.compile(source, threads=1).save(path, {"x": (1, 3, 8, 6)})
    return path


def ran(saccade_cli, *arguments):
    result = saccade_cli(*arguments)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result


def test_build_for_several_machines_and_inspect(saccade_cli, source, tmp_path):
    made, facts = tmp_path / "two.saccade", tmp_path / "facts.json"
    sizes = ("--shape", "1x3x8x6", "--shape", "2x3x8x6")
    machines = ("--machine", "zen4, desktop-avx2", "--threads", "3")
    result = ran(saccade_cli, "build", source, *machines, *sizes, "-o", made)
    assert result.stdout.rstrip().endswith("2 program(s), for zen4, desktop-avx2")
    said = result.stdout.partition(": ")[2].partition(",")[0]
    result = ran(saccade_cli, "inspect", made, "--json", facts)
    lines = result.stdout.splitlines()
    assert f": {said}," in lines[0], "one size, in one unit"
    assert lines[1:] == [
        "for: cpu, fp32, teams of 3",
        "machine: zen4",
        "machine: desktop-avx2",
        "program: x 1x3x8x6",
        "program: x 2x3x8x6",
        "input x: float32 Nx3x8x6",
        "output y: float32 Nx3x8x6",
    ]
    said = json.loads(facts.read_text())
    assert [one["machine"] for one in said["machines"]] == ["zen4", "desktop-avx2"]
    assert said["programs"] == [{"x": [1, 3, 8, 6]}, {"x": [2, 3, 8, 6]}]


def test_of_several_sizes_commands_take_the_first_unless_told(saccade_cli, source, tmp_path):
    made, x = tmp_path / "two.saccade", tmp_path / "x.npy"
    saccade.compile(source, threads=1).save(made, {"x": (1, 3, 8, 6)}, {"x": (2, 3, 4, 5)})
    np.save(x, np.ones((2, 3, 4, 5), np.float32))
    remark = "saccade: of 2 sizes in two.saccade, taking x=1x3x8x6\n"
    quick = ("--rounds", "1", "--seconds", "0")
    for arguments in (
        ("run", made), ("profile", made), ("inspect", made, "--plan"), ("bench", made, *quick),
        ("report", made, "-o", tmp_path / "r.html", "--seconds", "0"),
    ):  # fmt: skip
        assert remark in ran(saccade_cli, *arguments).stderr
    for told in (("--shape", "2x3x4x5"), ("--input", x)):
        result = ran(saccade_cli, "run", made, *told)
        assert "y: float32 2x3x4x5" in result.stdout and remark not in result.stderr


def test_commands_take_the_size_that_a_bundle_has(saccade_cli, bundle, tmp_path):
    assert "y: float32 1x3x8x6" in ran(saccade_cli, "run", bundle).stdout
    assert "Pointwise" in ran(saccade_cli, "profile", bundle).stdout
    assert "Pointwise" in ran(saccade_cli, "inspect", bundle, "--plan").stdout
    assert "Pointwise" in ran(saccade_cli, "inspect", bundle, "--reasons").stdout
    ran(saccade_cli, "report", bundle, "-o", tmp_path / "r.html")
    quick = ("--rounds", "1", "--seconds", "0")
    assert "1 thread(s)" in ran(saccade_cli, "bench", bundle, *quick).stdout


def test_what_takes_the_onnx_file_says_so(refused, bundle, tmp_path):
    file = "is a bundle: this takes the ONNX file that it was built from"
    assert file in refused("compare", bundle, "--against", "reference")
    assert "which no other engine runs" in refused("bench", bundle, "--against", "onnxruntime")
    for command in (["tune"], ["build", "-o", tmp_path / "again.saccade"], ["inspect", "--stages"]):
        said = refused(command[0], bundle, *command[1:])
        assert "holds programs for x=1x3x8x6 alone" in said


def test_a_machine_that_nobody_describes(refused, source, tmp_path):
    said = refused("build", source, "--machine", "zen4,abacus", "-o", tmp_path / "x.saccade")
    assert "machine='abacus' is not one of zen4, " in said
