"""Processes that are killed at any moment leave a cache that the next one can use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

START = """
import sys, numpy as np, saccade
model = saccade.compile(sys.argv[1], threads=2)
for shape in ((1, 3, 12, 20), (2, 3, 33, 17)):
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    print(model(x).tobytes().hex())
"""


def start(path, folder):
    environment = os.environ | {"SACCADE_CACHE_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", START, str(path)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def told(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def members(session):
    """Processes of a session that are left, but for those that only wait to be reaped."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        state, _, _, own = text.rpartition(")")[2].split()[:4]
        if own == str(session) and state != "Z":
            found.append(int(entry.parent.name))
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_starts_leave_a_sound_cache(attacked, length, how):
    path, folder = attacked
    began = time.monotonic()
    truth = told(start(path, folder / "whole"))
    whole = time.monotonic() - began
    random = Random(f"kills {how}")
    for number in range(4 * length):
        own = folder / f"{number % 3}"
        process = start(path, own)
        time.sleep(random.uniform(0.05, whole))
        process.send_signal(how)
        process.wait(timeout=60)
        process.communicate()
        deadline = time.monotonic() + 20  # children notice that nobody is there
        while members(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not members(process.pid), number
        if number % 3 == 2 or number == 4 * length - 1:
            assert told(start(path, own)) == truth, number
    print("killed:", 4 * length, "starts by", how.name)  # shown by -rP
