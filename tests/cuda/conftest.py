"""Helper modules of these tests are imported by name; what a lost GPU means for later tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "passes"))

LOST = pytest.StashKey[str]()
"""Which test took the context with it: the process has no GPU from then on."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if item.get_closest_marker("gpu") and call.excinfo and " was lost (" in str(call.excinfo.value):
        item.config.stash.setdefault(LOST, item.nodeid)
    return report


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and LOST in item.config.stash:
        lost = item.config.stash[LOST]
        pytest.skip(f"the GPU was lost in {lost}: run the rest with --deselect '{lost}'")
