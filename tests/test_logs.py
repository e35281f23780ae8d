"""The logger `saccade`, and what `SACCADE_LOG` makes of it."""

from __future__ import annotations

import logging

import pytest

from saccade.logs import logger


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
