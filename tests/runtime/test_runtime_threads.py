"""Calls from many threads, forks, and memory that does not grow."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

from saccade.backends.cpu.runtime.team import shared_team
from saccade.locks import Lock, cached_property, forkless

LIMIT = 60  # seconds after which a test counts as hung


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_eight_callers_at_once(threads):
    model = compiled(convolutions(), threads=threads)
    inputs = [image(1, 3, 10 + i % 3, 12) for i in range(8)]
    wanted = [model(x) for x in inputs]

    def call(i):
        return all(np.array_equal(model(inputs[i]), wanted[i]) for _ in range(60))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8), timeout=LIMIT))


def test_eight_callers_meet_a_model_that_never_ran():
    model = compiled(convolutions(24), threads=2)
    x = image(1, 3, 11, 13)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(model, [x] * 8, timeout=LIMIT))
    assert all(np.array_equal(results[0], r) for r in results)


def test_callers_that_find_the_team_busy_take_turns():
    model = compiled(convolutions(), threads=2)
    x = image(1, 3, 12, 12)
    wanted = model(x)
    team = shared_team(2)
    with ThreadPoolExecutor(4) as pool:
        with team.lock:
            calls = [pool.submit(model, x) for _ in range(4)]
            time.sleep(0.05)
            assert not any(c.done() for c in calls)
        assert all(np.array_equal(c.result(LIMIT), wanted) for c in calls)


def test_a_busy_team_holds_up_nobody_who_needs_none():
    model = compiled(convolutions(), threads=1)
    x = image(1, 3, 12, 12)
    wanted = model(x)
    with shared_team(2).lock:
        assert np.array_equal(model(x), wanted)


def in_child(work):
    """Fork, run `work` in the child, and give whether it returned True in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forks with threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(LIMIT)
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_runs_and_plans(threads):
    model = compiled(convolutions(), threads=threads)
    x = image(1, 3, 14, 14)
    other = image(2, 3, 9, 10)
    wanted = model(x), model(other)
    fresh = compiled(convolutions(), threads=threads)
    fresh(x)

    def work():
        same = np.array_equal(model(x), wanted[0])
        return same and np.array_equal(fresh(other), wanted[1])

    assert in_child(work) == 0
    assert np.array_equal(model(x), wanted[0]), "the parent's team still works"


def test_a_fork_while_another_thread_compiles(monkeypatch, tmp_path):
    """Whatever the other thread holds, the child can run what is there and compile what is not."""
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    ready = compiled(convolutions(), threads=2)
    x = image(1, 3, 14, 14)
    wanted = ready(x)
    busy = compiled(convolutions(40), threads=2)
    compiling = threading.Thread(target=busy, args=(image(1, 3, 16, 16),))
    compiling.start()
    try:
        for delay in (0.0, 0.05, 0.2, 0.3):
            time.sleep(delay)
            assert in_child(lambda: np.array_equal(ready(x), wanted)) == 0
        assert in_child(lambda: busy(image(1, 3, 16, 16)).shape == (1, 5, 16, 16)) == 0
    finally:
        compiling.join(LIMIT)
    assert not compiling.is_alive()
    assert busy(image(1, 3, 16, 16)).shape == (1, 5, 16, 16)


def test_locks_are_free_in_a_child():
    held, taken, done = Lock(), threading.Event(), threading.Event()

    def hold():
        with held:
            taken.set()
            done.wait(LIMIT)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(LIMIT)
    try:
        assert not held.acquire(blocking=False)
        assert in_child(lambda: held.acquire(blocking=False)) == 0
    finally:
        done.set()
        holder.join(LIMIT)


def test_a_fork_waits_for_llvm():
    entered, order = threading.Event(), []

    def link():
        with forkless:
            entered.set()
            time.sleep(0.2)
            order.append("linked")

    linking = threading.Thread(target=link)
    linking.start()
    entered.wait(LIMIT)
    assert in_child(lambda: order == ["linked"] and forkless.acquire(blocking=False)) == 0
    linking.join(LIMIT)


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


MEASURED = """
import sys
sys.path.insert(0, {folder!r})
from runtime_models import compiled, convolutions, image
from test_runtime_threads import resident
x = image(1, 3, 6, 6)
{body}
"""


def grown(body):
    """What a process of its own prints: what other tests left behind grows by itself."""
    script = MEASURED.format(folder=str(Path(__file__).parent), body=body)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize("threads", [1, 2])
def test_ten_thousand_calls_need_no_more_memory(threads):
    body = f"""
model = compiled(convolutions(), threads={threads})
for _ in range(500):
    model(x)
before = resident()
for _ in range(10_000):
    model(x)
print(resident() - before)
"""
    assert grown(body) < 1 << 20


def test_models_that_go_give_their_memory_back():
    body = """
sizes = []
for _ in range(3):
    for _ in range(4):
        compiled(convolutions(), threads=1)(x)
    sizes.append(resident())
print(sizes[2] - sizes[1])
"""
    assert grown(body) < 4 << 20


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from runtime_models import compiled, convolutions, image
model = compiled(convolutions(), threads=3)
for _ in range(20):
    y = model(image(1, 3, 12, 12))
print(float(abs(y).sum()) > 0)
"""


def test_processes_end_cleanly_while_workers_spin():
    script = SCRIPT.format(folder=str(Path(__file__).parent))
    for _ in range(6):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


class Slow:
    @cached_property
    def value(self):
        started.set()
        finish.wait(LIMIT)
        return object()


started, finish = threading.Event(), threading.Event()


def test_a_fork_while_another_thread_computes_a_property():
    computing = threading.Thread(target=lambda: Slow().value)
    computing.start()
    started.wait(LIMIT)

    def in_the_child():
        finish.set()
        mine = Slow()
        return mine.value is mine.value

    try:
        assert in_child(in_the_child) == 0
    finally:
        finish.set()
        computing.join(LIMIT)
