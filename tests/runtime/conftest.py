"""Helper modules of these tests are imported by name; an empty cache."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "layout")]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of caches of this test alone."""
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    return tmp_path
