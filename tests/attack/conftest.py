"""Attacks: seeded, short in CI; `SACCADE_ATTACK=20` makes them that many times as long."""

from __future__ import annotations

import os

import pytest
from attack_models import network

LENGTH = int(os.environ.get("SACCADE_ATTACK") or 1)
"""Times as many tries as in CI."""


@pytest.fixture
def length():
    """How many times the tries of CI."""
    return LENGTH


@pytest.fixture
def attacked(tmp_path, monkeypatch):
    """A model's file, and an empty cache that is this process's."""
    path = tmp_path / "model.onnx"
    path.write_bytes(network(channels=64))  # whose spectra have no space on disk
    folder = tmp_path / "cache"
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(folder))
    return path, folder
