"""One model, input, machine and options give the same bits, whatever happened before."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import contextmanager
from random import Random

import numpy as np
import pytest

import saccade

SIZES = {
    "resnet50": [(1, 3, 64, 64), (2, 3, 75, 71), (1, 3, 110, 90)],
    "mobilenet_v3_large": [(1, 3, 64, 64), (3, 3, 75, 90), (1, 3, 33, 150)],
}
ANSWER = """
import sys, hashlib, numpy as np, saccade
model = saccade.compile(sys.argv[1], threads=int(sys.argv[2]))
for text in sys.argv[3:]:
    shape = tuple(map(int, text.split("x")))
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    print(text, hashlib.sha256(np.ascontiguousarray(model(x)).tobytes()).hexdigest())
"""
"""What a process of its own says of some sizes."""


def digest(model, x):
    results = model.run({model.inputs[0].name: x}).values()
    return hashlib.sha256(b"".join(r.tobytes() for r in results)).hexdigest()


@contextmanager
def busy(spinners):
    """The machine while other processes want its cores."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(spinners)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


class Histories:
    """Answers of a model after any history; folders are caches that the test made."""

    def __init__(self, path, sizes, image, folder, monkeypatch):
        self.path, self.sizes, self.image = path, sizes, image
        self.folder, self.monkeypatch = folder, monkeypatch
        self.first = {}

    def play(self, random, cold):
        """One model: a cache, a width of the team, an order of sizes and a load by chance."""
        kept = random.random() < 0.7
        name = f"cold{cold}" if random.random() < 0.5 else "warm"
        self.monkeypatch.setenv("SACCADE_CACHE_DIR", str(self.folder / name))
        threads = random.choice([1, 2, 2, 3, 4, 7])
        order = random.sample(self.sizes, len(self.sizes))
        load = random.choice([0, 0, 1])
        told = f"cache {name if kept else None}, {threads} thread(s), sizes {order}, load {load}"
        with busy(load):
            model = saccade.compile(self.path, threads=threads, cache=kept)
            for shape in order:
                found = digest(model, self.image(shape))
                assert self.first.setdefault(shape, found) == found, f"{shape} after {told}"


@pytest.mark.parametrize("name", SIZES)
def test_no_history_changes_a_bit(zoo, image, name, tmp_path, monkeypatch):
    histories = Histories(zoo.path(name), SIZES[name], image, tmp_path, monkeypatch)
    random = Random(f"histories of {name}")
    for cold in range(5):
        histories.play(random, cold)


def test_sizes_do_differ(zoo, image):
    """The test above would find nothing if every answer were the same."""
    model = zoo.compiled("mobilenet_v3_large")
    assert len({digest(model, image(shape)) for shape in SIZES["mobilenet_v3_large"]}) == 3


def test_simultaneous_cold_starts_agree(zoo, tmp_path):
    texts = ["x".join(map(str, shape)) for shape in SIZES["mobilenet_v3_large"][:2]]
    environment = os.environ | {"SACCADE_CACHE_DIR": str(tmp_path)}
    path = str(zoo.path("mobilenet_v3_large"))
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", ANSWER, path, str(threads), *order],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for threads in (1, 2, 3) for order in (texts, texts[::-1])
    ]  # fmt: skip
    told = [sorted(start.communicate(timeout=300)[0].split("\n")) for start in starts]
    assert [start.returncode for start in starts] == [0] * 6
    assert all(one == told[0] for one in told) and len(told[0]) == 3


def test_what_is_in_memory_may_change_tiles_but_no_bits(zoo, image):
    """A size takes other tiles where it is the second one: the answer is that of the first."""
    path = zoo.path("resnet50")
    alone, after = (saccade.compile(path, threads=2, cache=False) for _ in range(2))
    for shape in SIZES["resnet50"][1:]:
        after(image(shape))
    x = image(SIZES["resnet50"][0])
    plans = [model._program((x.shape,)).plan for model in (alone, after)]
    codes = [[phase.config for step in plan.steps for phase in step.phases] for plan in plans]
    assert codes[0] != codes[1]
    assert [s.kernel for s in plans[0].steps] == [s.kernel for s in plans[1].steps]
    assert np.array_equal(alone(x), after(x))
