from __future__ import annotations

import pytest
from fake_engine import Engine, save_model
from typer.testing import CliRunner

import saccade
from saccade.cli._app import app


@pytest.fixture
def engine(monkeypatch):
    fake = Engine()
    monkeypatch.setattr(saccade, "compile", fake.compile, raising=False)
    return fake


@pytest.fixture
def saccade_cli():
    """Run the command line: `result.exit_code`, `.stdout`, `.stderr`."""

    def invoke(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


@pytest.fixture
def refused(saccade_cli):
    """Run a command that has to fail with status 2 and one line; returns that line."""

    def invoke(*arguments):
        result = saccade_cli(*arguments)
        assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
        assert isinstance(result.exception, SystemExit), "a traceback reached the user"
        lines = result.stderr.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("saccade: error: ")
        return lines[0]

    return invoke


@pytest.fixture
def model_file(tmp_path):
    return save_model(tmp_path / "tiny.onnx")
