"""What the machine reaches at most: where looks look."""

from itertools import pairwise

import pytest

from saccade.backends.cpu.runtime.peaks import Peaks
from saccade.backends.cpu.target import host_target

MIB = 1 << 20


@pytest.fixture
def seen(monkeypatch):
    """Peaks of 4 MiB, and what its loops were called with: kind, source, sink, rounds."""
    calls = []

    def recorder(_, kind):
        return lambda *arguments: calls.append((kind, *arguments))

    peaks = Peaks(host_target(), 4 * MIB)
    monkeypatch.setattr(Peaks, "_function", recorder)
    return peaks, calls


def test_looks_take_one_part_after_the_other(seen):
    peaks, calls = seen
    peaks.read(4 * MIB, 2, looks=6, parts=4)
    places = sorted({at for _, at, _, _ in calls})
    assert len(calls) == 12 and len(places) == 8  # two threads, four parts
    sizes = {rounds * peaks._step for *_, rounds in calls}
    assert all(b - a >= size for a, b in pairwise(places) for size in sizes)
    assert places[-1] - places[0] > 3 * MIB


def test_copies_stay_within_their_part(seen):
    peaks, calls = seen
    start = peaks._buffer.ctypes.data
    peaks.copy(4 * MIB, 1, looks=2, parts=2)
    assert [(at - start, to - start) for _, at, to, _ in calls] == [
        (0, MIB),
        (2 * MIB, 3 * MIB),
    ]
    assert all(rounds * peaks._step <= MIB for *_, rounds in calls)
