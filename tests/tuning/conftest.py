"""Helper modules of these tests are imported by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "layout"))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder of the test's own."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))
    return folder
