"""Memory of large results comes back when, and only when, nobody can see it any more."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

from saccade.backends.cpu.runtime.results import Results
from saccade.backends.cpu.runtime.workspace import fresh_block

LARGE = (9, 1 << 20)  # 36 MiB of float32


def test_memory_comes_back_with_the_last_view():
    results = Results()
    first = results.empty(LARGE, "float32")
    address, view = first.ctypes.data, first[3:, 5].T
    assert first.shape == LARGE and first.dtype == np.float32 and first.flags.writeable
    assert address % 64 == 0 and first.flags.c_contiguous
    del first
    gc.collect()
    other = results.empty(LARGE, "float32")
    assert not np.shares_memory(view, other)
    del view
    gc.collect()
    assert results.empty(LARGE, "float32").ctypes.data == address


def test_a_result_never_has_memory_of_five_times_its_size():
    results = Results()
    address = results.empty((40 << 20, 2), "uint8").ctypes.data
    assert results.empty((16 << 20,), "uint8").ctypes.data != address
    assert results.empty((79 << 20,), "uint8").ctypes.data == address


def test_little_waits_and_goes_when_told():
    results = Results(keep=80 << 20)
    two = [results.empty(LARGE, "float32") for _ in range(3)]
    two.clear()
    assert sum(block.nbytes for block in results._idle) <= 80 << 20
    assert results._idle
    results.clear()
    assert not results._idle


def test_an_array_may_go_while_another_is_taken():
    results = Results()
    array = results.empty(LARGE, "float32")
    with results._lock:
        del array  # would wait for itself otherwise
    assert not results._idle


def test_small_results_are_arrays_of_their_own():
    assert Results().empty((3, 4), "float32").base is None


def test_no_memory_is_a_memory_error(monkeypatch):
    def refuse(_nbytes):
        raise OSError("no")

    monkeypatch.setattr("saccade.backends.cpu.runtime.results.fresh_block", refuse)
    with pytest.raises(MemoryError):
        Results().empty(LARGE, "float32")


def test_threads_never_share_a_result():
    results, failures = Results(), []

    def work(mark):
        for _ in range(30):
            array = results.empty(LARGE, "float32")
            array[:, ::65536] = mark
            if (array[:, ::65536] != mark).any():
                failures.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_model_keeps_no_result_and_drops_what_waits(monkeypatch):
    taken = []

    def fresh(nbytes):
        taken.append(nbytes)
        return fresh_block(nbytes)

    monkeypatch.setattr("saccade.backends.cpu.runtime.results.fresh_block", fresh)
    model = compiled(convolutions(), threads=2)
    x = image(1, 3, 1400, 1400)
    want = model(x).copy()
    assert len(taken) == 1
    kept = model(x)
    for _ in range(3):
        assert model(x).tobytes() == want.tobytes()
    assert kept.tobytes() == want.tobytes()
    assert len(taken) == 2, "one that is kept, and one for all that are dropped"
