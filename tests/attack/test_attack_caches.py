"""Whatever lies in the cache: the answer is right, nothing is raised, nothing hangs, no litter."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import warnings
from collections import Counter
from random import Random

import numpy as np
import pytest
from attack_models import image

import saccade
from saccade.backends.cpu.store.saved import settle

SHAPES = ((1, 3, 12, 20), (2, 3, 33, 17))
KINDS = [
    "bundles/*.program", "bundles/*.signature", "bundles/*.weights", "digests/*.digest",
    "graphs/*.graph", "key/*", "objects/*.bin",
]  # fmt: skip
"""What a start leaves; choices and times come with tuning."""
SECONDS = 60  # that one answer may take at most


def answers(path):
    model = saccade.compile(path, threads=2)
    found = [model(image(*shape)) for shape in SHAPES]
    del model
    gc.collect()  # constants are held as long as some program is
    settle()  # what is kept beside a run would be kept while the next attack makes space
    return found


def entries(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def kind(path, folder):
    """Where an entry lies, and what it is."""
    return f"{path.relative_to(folder).parts[0]}/*{path.suffix}"


def flip(random, path, _):
    content = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 1, 2, 8])):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def cut(random, path, _):
    os.truncate(path, random.randrange(path.stat().st_size))


def grow(random, path, _):
    with path.open("ab") as file:
        file.write(random.randbytes(random.choice([1, 7, 4096])))


def noise(random, path, _):
    path.write_bytes(random.randbytes(path.stat().st_size))


def empty(_, path, __):
    path.write_bytes(b"")


def swap(random, path, folder):
    other = random.choice(entries(folder))
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def fifo(_, path, __):
    path.unlink()
    os.mkfifo(path)


def link(_, path, folder):
    target = folder.parent / f"moved-{path.name}"
    path.replace(target)
    path.symlink_to(target)


def directory(_, path, __):
    path.unlink()
    path.mkdir()


def open_to_all(_, path, __):
    path.chmod(0o666)


def unreadable(_, path, __):
    path.chmod(0)


def open_folder(_, path, __):
    path.parent.chmod(0o777)


def gone(_, path, __):
    path.unlink()


WAYS = (
    flip, flip, flip, cut, grow, noise, empty, swap, fifo, link, directory, open_to_all, unreadable,
    open_folder, gone,
)  # fmt: skip


class TooLongError(Exception):
    """An answer hangs."""


@pytest.fixture
def bounded():
    def late(*_):
        raise TooLongError

    before = signal.signal(signal.SIGALRM, late)
    yield lambda: signal.alarm(SECONDS)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_corrupt_entries_change_no_answer(attacked, length, bounded, tmp_path):
    path, folder = attacked
    truth = answers(path)
    assert all(np.array_equal(a, b) for a, b in zip(truth, answers(path), strict=True))
    sound = tmp_path / "sound"
    shutil.copytree(folder, sound)
    kinds = sorted({kind(entry, folder) for entry in entries(folder)})
    assert kinds == KINDS
    for told, found in corrupted(path, folder, sound, kinds, 45 * length, bounded):
        assert all(np.array_equal(a, b) for a, b in zip(truth, found, strict=True)), told


def test_corrupt_choices_are_not_taken(attacked, length, bounded, tmp_path):
    """Then they are the usual ones: whatever the search found, there are two answers at most."""
    path, folder = attacked
    truth = answers(path)
    model = saccade.compile(path, threads=2)
    assert model.tune(image(*SHAPES[0])).measured
    del model
    tuned = answers(path)
    sound = tmp_path / "sound"
    shutil.copytree(folder, sound)
    kinds = ["algorithms/*.json", "timings/*.jsonl"]
    for told, found in corrupted(path, folder, sound, kinds, 10 * length, bounded):
        for one, *allowed in zip(found, truth, tuned, strict=True):
            assert any(np.array_equal(one, other) for other in allowed), told


def corrupted(path, folder, sound, kinds, tries, bounded):
    """What a sound cache becomes, one entry at a time: what was done, and the answers."""
    random, tried = Random("corrupt entries"), Counter()
    for number in range(tries):
        shutil.rmtree(folder)
        shutil.copytree(sound, folder)
        wanted = kinds[number % len(kinds)]
        way = random.choice(WAYS)
        entry = random.choice([one for one in entries(folder) if kind(one, folder) == wanted])
        tried[wanted] += 1
        told = f"{number}: {way.__name__} {entry.relative_to(folder)}"
        way(random, entry, folder)
        bounded()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that something is not used
            found = answers(path)
        assert not list(folder.rglob(".new-*")), told
        yield told, found
    print("corrupted:", dict(tried))  # shown by -rP
