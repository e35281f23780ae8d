"""What real models leave on disk, whatever sizes they are run at."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import saccade
from saccade.backends.cpu.store.identity import machine_identity
from saccade.backends.cpu.store.saved import settle

pytestmark = pytest.mark.skipif(machine_identity() is None, reason="no bundles on this machine")

SIZES = {
    "resnet50": [(1, 3, 224, 224), (1, 3, 97, 71), (2, 3, 75, 120), (1, 3, 160, 90)],
    "subpixel_x4": [(1, 3, 64, 64), (1, 3, 97, 71), (3, 3, 75, 120), (1, 3, 33, 190)],
}


@pytest.mark.parametrize("name", SIZES)
def test_all_sizes_take_little_and_start_warm(zoo, image, name, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    path, inputs = zoo.path(name), [image(size) for size in SIZES[name]]
    model = saccade.compile(path, threads=2)
    wanted = [model(x) for x in inputs]
    assert all(np.array_equal(model(x), y) for x, y in zip(inputs, wanted, strict=True))
    settle()
    weights = sum(array.nbytes for array in model._started().graph.constants.values())
    kept = [*tmp_path.rglob("*.graph"), *tmp_path.rglob("*.weights")]
    assert sum(file.stat().st_size for file in kept) <= 2.2 * weights
    del model
    gc.collect()  # or what this process holds would be used
    model = saccade.compile(path, threads=2)
    for x, y in zip(inputs, wanted, strict=True):
        assert np.array_equal(model(x), y)
    assert model._engine is None
