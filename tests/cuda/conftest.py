"""Helper modules of these tests are imported by name; tests of GPUs where none is, or was lost."""

import os
import sys
from functools import cache
from pathlib import Path

import pytest

from saccade.backends.cuda.runtime import bindings
from saccade.errors import DeviceError

sys.path.insert(0, str(Path(__file__).parents[1] / "passes"))

LOST = pytest.StashKey[str]()
"""Which test took the context with it: the process has no GPU from then on."""


@cache
def gpus():
    """How many GPUs there are."""
    try:
        return len(bindings.devices())
    except DeviceError:
        return 0


if not gpus():
    # Before a test imports Triton, which decides then what its functions are, for all that follow.
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if item.get_closest_marker("gpu") and call.excinfo and " was lost (" in str(call.excinfo.value):
        item.config.stash.setdefault(LOST, item.nodeid)
    return report


def pytest_runtest_setup(item):
    if not item.get_closest_marker("gpu"):
        return
    if not gpus():
        pytest.skip("there is no GPU")
    if LOST in item.config.stash:
        lost = item.config.stash[LOST]
        pytest.skip(f"the GPU was lost in {lost}: run the rest with --deselect '{lost}'")
