"""Many sizes and many models need no more memory than a few."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from random import Random

import numpy as np
import pytest
from attack_models import image, network

import saccade

MIB = 1 << 20


@pytest.fixture
def flat():
    """Call it with a bound, in MiB, and that of descriptors, once before and once after."""
    before = []

    def look(more=0, files=None):
        now = resident(), mappings(), descriptors()
        before.append(now)
        print("resident MiB, mappings, descriptors:", now)  # shown by -rP
        assert now[0] - before[0][0] <= more
        assert now[1] - before[0][1] < 64
        assert files is None or now[2] <= before[0][2] + files

    return look


def resident():
    """MiB of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def mappings():
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_calls_over_many_sizes_need_flat_memory(attacked, length, flat):
    path, _ = attacked
    model, random = saccade.compile(path, threads=2), Random("sizes")
    sizes = [(random.randrange(5, 60), random.randrange(5, 60)) for _ in range(25 * length)]
    truth = {}

    def call():
        h, w = random.choice(sizes)
        found = model(image(1, 3, h, w))
        assert np.array_equal(truth.setdefault((h, w), found), found)

    for _ in range(150):
        call()
    flat()
    for _ in range(500 * length):
        call()
    print(500 * length, "calls over", len(truth), "sizes")
    flat(more=24)


def test_models_that_go_leave_nothing(tmp_path, monkeypatch, length, flat):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path / "cache"))

    def one(seed):
        path = tmp_path / "model.onnx"
        path.write_bytes(network(seed, channels=96))  # 0.3 MiB, several times that in packings
        model = saccade.compile(path, threads=2, cache=seed % 2 == 0)
        model(image(1, 3, 9 + seed % 5, 11))

    for seed in range(6):
        one(seed)
    flat()
    for seed in range(6, 6 + 10 * length):
        one(seed)
    print(10 * length, "models")
    flat(more=16, files=0)
