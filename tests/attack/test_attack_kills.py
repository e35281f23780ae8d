"""Processes that are killed at any moment leave a cache that the next one can use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

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


def kill(path, folder, how, seconds):
    """Start, and end that with a signal after a while; nothing of it must be left."""
    process = start(path, folder)
    time.sleep(seconds)
    process.send_signal(how)
    process.wait(timeout=60)
    process.communicate()
    deadline = time.monotonic() + 20  # children notice that nobody is there
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not members(process.pid), how


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def test_killed_starts_leave_a_sound_cache(attacked, length):
    """A cache after one of each signal, and one after all of them, in any order."""
    path, folder = attacked
    began = time.monotonic()
    truth = told(start(path, folder / "whole"))
    whole = time.monotonic() - began
    random = Random("kills")
    for turn in range(length):
        histories = [*((how,) for how in SIGNALS), random.sample(SIGNALS, 3)]
        for number, signals in enumerate(histories):
            own = folder / f"{turn}-{number}"
            for how in signals:
                kill(path, own, how, random.uniform(0.05, whole))
            assert told(start(path, own)) == truth, (turn, signals)
    print("killed:", 6 * length, "starts")  # shown by -rP
