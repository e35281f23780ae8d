"""Operators run with bounds checks in every second process of tests, without in the others."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="session", autouse=True)
def _checked(worker_id):
    """The library of operators reads this when it is first used."""
    os.environ["SACCADE_CHECKED"] = "1" if worker_id == "gw1" else "0"
