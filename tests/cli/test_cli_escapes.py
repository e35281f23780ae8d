"""Commands print no name of a file in a form that a terminal would obey."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))
from hostile_names import TRAP, is_safe, supported, unsupported

SHAPE = "1x3x6x8"


@pytest.fixture
def hostile(tmp_path):
    path = tmp_path / "a\x1b[31mb.onnx"
    path.write_bytes(supported().SerializeToString())
    return path


FORMS = [
    ("inspect",),
    ("inspect", "--stages"),
    ("inspect", "--stage", "frontend"),
    ("inspect", "--stage", "fuse_pointwise"),
    ("inspect", "--plan"),
    ("inspect", "--reasons"),
    ("run", "--device", "reference"),
    ("run",),
    ("run", "--output", "out"),
    ("profile", "--repeat", "1"),
    ("compare", "--against", "reference"),
    ("compare", "--against", "reference", "--layers"),
]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_commands_are_safe(form, hostile, saccade_cli, monkeypatch):
    monkeypatch.chdir(hostile.parent)
    command, *more = form
    for shape in ([], ["--shape", SHAPE]):
        result = saccade_cli(command, hostile, *more, "--threads", "1", *shape)
        assert result.exit_code == 0, result.stderr
        assert is_safe(result.stdout)
        assert is_safe(result.stderr)


def test_what_caches_hold_is_safe(hostile, saccade_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))
    assert saccade_cli("run", hostile, "--threads", "1", "--shape", SHAPE).exit_code == 0
    listed = saccade_cli("cache", "ls")
    assert listed.exit_code == 0 and is_safe(listed.stdout)
    assert "x1b[" in listed.stdout, "the name of its input"
    (tmp_path / "cache" / "objects" / f"{TRAP}.bin").write_bytes(b"")
    found = saccade_cli("cache", "verify")
    assert found.exit_code == 1 and is_safe(found.stdout) and "x1b[" in found.stdout


@pytest.mark.parametrize("place", unsupported())
@pytest.mark.parametrize("command", ["inspect", "run"])
def test_refusals_are_safe(command, place, tmp_path, saccade_cli):
    path = tmp_path / "a\x1b[31mb.onnx"
    path.write_bytes(unsupported()[place].SerializeToString())
    result = saccade_cli(command, path, "--threads", "1")
    assert result.exit_code == 2
    assert is_safe(result.stderr)
    assert result.stderr.startswith("saccade: error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", f"missing{TRAP}.onnx"),
        (f"com{TRAP}mand",),
        ("inspect", "model.onnx", f"--op{TRAP}tion"),
        ("inspect", "model.onnx", "--stage", TRAP),
        ("inspect", "model.onnx", "--device", TRAP),
        ("run", "model.onnx", "--input", f"{TRAP}.npy"),
        ("run", "model.onnx", "--shape", f"{TRAP}=1x2"),
        ("run", "model.onnx", "--output", f"out{TRAP}.gif"),
        ("compare", "model.onnx", "--against", TRAP),
    ],
)
def test_what_was_typed_is_safe_too(arguments, tmp_path, saccade_cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(supported(), "model.onnx")
    result = saccade_cli(*arguments)
    assert result.exit_code == 2
    assert is_safe(result.stderr)
