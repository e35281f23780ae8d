"""Many sizes and many models need no more memory than a few."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from random import Random

import numpy as np
from attack_models import network, picture

import saccade

MIB = 1 << 20


def resident():
    """MiB of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def mappings():
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_calls_over_many_sizes_need_flat_memory(attacked, length):
    path, _ = attacked
    model, random = saccade.compile(path, threads=2), Random("sizes")
    sizes = [(random.randrange(5, 60), random.randrange(5, 60)) for _ in range(25 * length)]
    truth = {}

    def call():
        h, w = random.choice(sizes)
        found = model(picture(1, 3, h, w))
        assert np.array_equal(truth.setdefault((h, w), found), found)

    for _ in range(150):
        call()
    before = resident(), mappings()
    for _ in range(500 * length):
        call()
    assert resident() - before[0] < 24
    assert mappings() - before[1] < 64


def test_models_that_go_leave_nothing(tmp_path, monkeypatch, length):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))

    def one(seed):
        path = tmp_path / "model.onnx"
        path.write_bytes(network(seed, channels=96))  # 0.3 MiB, several times that in packings
        model = saccade.compile(path, threads=2, cache=seed % 2 == 0)
        model(picture(1, 3, 9 + seed % 5, 11))

    for seed in range(6):
        one(seed)
    before = resident(), mappings(), descriptors()
    for seed in range(6, 6 + 10 * length):
        one(seed)
    assert resident() - before[0] < 16
    assert mappings() - before[1] < 64
    assert descriptors() <= before[2]
