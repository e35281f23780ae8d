import pytest

from saccade.caches import limit, trust


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch):
    """Each test is a process of its own, as far as warnings and sizes go."""
    monkeypatch.setattr(trust, "_warned", set())
    monkeypatch.setattr(limit, "_counts", {})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own, which is not there yet."""
    folder = tmp_path / "above" / "cache"
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))
    return folder
