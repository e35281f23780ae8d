"""The logger `saccade`, and what `SACCADE_LOG` makes of it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.logs import logger

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "upscale" / "model.onnx"


@pytest.fixture
def log(monkeypatch):
    """The logger for a value of `SACCADE_LOG`; as it was, afterwards."""
    plain = logging.getLogger("saccade")
    before = plain.level, plain.propagate, list(plain.handlers)

    def made(level):
        monkeypatch.setenv("SACCADE_LOG", level)
        logger.cache_clear()
        return logger()

    yield made
    plain.setLevel(before[0])
    plain.propagate = before[1]
    plain.handlers[:] = before[2]
    logger.cache_clear()


def test_without_a_level_it_is_a_logger_as_others_are(log, caplog):
    found = log("")
    assert found is logging.getLogger("saccade") and found.propagate
    found.warning("a cache is not used")
    assert caplog.messages == ["a cache is not used"]


@pytest.mark.parametrize(
    ("level", "said"),
    [("debug", "abc"), ("INFO", "bc"), (" warning ", "c"), ("error", ""), ("off", "")],
)
def test_a_level_says_what_is_told_on_standard_error(log, capsys, level, said):
    found = log(level)
    found.debug("a")
    found.info("b")
    found.warning("c")
    assert capsys.readouterr().err == "".join(f"saccade: {one}\n" for one in said)


def test_another_word_is_told(log, caplog):
    assert log("loud").propagate
    assert caplog.messages == [
        "SACCADE_LOG=loud is none of debug, info, warning, error, critical, off"
    ]


def test_what_a_start_does_is_told_at_level_debug(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SACCADE_LOG", raising=False)
    with caplog.at_level(logging.DEBUG, logger="saccade"):
        for _ in range(2):
            saccade.compile(MODEL, threads=1)(np.zeros((1, 3, 17, 23), np.float32))
    cold, warm = (caplog.text.partition("left by a start")[i] for i in (0, 2))
    for told in (r"imported, and rewritten", r"code: 0 read from disk, \d+ compiled in \d+ ms",
                 r"1x3x17x23: \d+ steps, planned in \d+ ms, built in \d+ ms"):  # fmt: skip
        assert re.search(told, cold)
    assert "planned" not in warm and "compiled" not in warm


def test_on_the_command_line_warnings_look_as_notes_do(tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    start = "from saccade.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start, "run", str(MODEL), "--shape", "1x3x5x7"],
        capture_output=True, text=True, check=True,
        env=os.environ | {"SACCADE_CACHE_DIR": str(open_to_all), "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.stderr.startswith("saccade: ") and "does not use it as a cache" in done.stderr
