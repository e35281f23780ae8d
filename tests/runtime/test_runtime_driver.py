"""The driver and its teams: every thread walks every phase, nobody passes a barrier early."""

import ctypes
import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

from saccade.backends.cpu.codegen.calling import COUNTER_WORDS
from saccade.backends.cpu.codegen.compile import object_code
from saccade.backends.cpu.codegen.language import KernelBuilder
from saccade.backends.cpu.runtime.driver import JOB_WORDS, TEAM_WORDS, driver, nanoseconds_per_tick
from saccade.backends.cpu.runtime.linker import link
from saccade.backends.cpu.runtime.team import FutexTeam, Inline
from saccade.backends.cpu.target import host_target

# Each thread adds 1 to word `thread` of base 0, and to word 8 the number of threads that are not at
# the same count: after a barrier all of them are. Arguments: unused. Context: bases, counters,
# threads, thread, fault, reach.
CODE = """
target triple = "{triple}"
define void @count(ptr %args, ptr %context) {{
entry:
  %bases = load ptr, ptr %context
  %memory = load ptr, ptr %bases
  %threadp = getelementptr i64, ptr %context, i64 3
  %thread = load i64, ptr %threadp
  %widthp = getelementptr i64, ptr %memory, i64 120
  %width = load i64, ptr %widthp
  %mine8 = mul i64 %thread, 8
  %mine = getelementptr i64, ptr %memory, i64 %mine8
  %old = load i64, ptr %mine
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %check ]
  %more = icmp slt i64 %i, %width
  br i1 %more, label %check, label %done
check:
  %i8 = mul i64 %i, 8
  %other = getelementptr i64, ptr %memory, i64 %i8
  %seen = load atomic i64, ptr %other monotonic, align 8
  %ahead = sub i64 %seen, %old
  %low = icmp slt i64 %ahead, 0
  %high = icmp sgt i64 %ahead, 1
  %bad = or i1 %low, %high
  %wrong = zext i1 %bad to i64
  %errors = getelementptr i64, ptr %memory, i64 112
  %ignored = atomicrmw add ptr %errors, i64 %wrong monotonic
  %next = add i64 %i, 1
  br label %head
done:
  %new = add i64 %old, 1
  store atomic i64 %new, ptr %mine monotonic, align 8
  ret void
}}
"""
# Thread 0 stays in it until thread 1 was in `tell`, and stores 1 in word 112 if that never comes.
HOLD = """
target triple = "{triple}"
define void @hold(ptr %args, ptr %context) {{
entry:
  %bases = load ptr, ptr %context
  %memory = load ptr, ptr %bases
  %threadp = getelementptr i64, ptr %context, i64 3
  %thread = load i64, ptr %threadp
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %head, label %done
head:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %told = load atomic i64, ptr %memory acquire, align 8
  %go = icmp ne i64 %told, 0
  br i1 %go, label %done, label %again
again:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 4000000000
  br i1 %more, label %head, label %never
never:
  %errors = getelementptr i64, ptr %memory, i64 112
  store atomic i64 1, ptr %errors monotonic, align 8
  br label %done
done:
  ret void
}}
define void @tell(ptr %args, ptr %context) {{
  %bases = load ptr, ptr %context
  %memory = load ptr, ptr %bases
  %threadp = getelementptr i64, ptr %context, i64 3
  %thread = load i64, ptr %threadp
  %old = atomicrmw add ptr %memory, i64 %thread release
  ret void
}}
define void @late(ptr %args, ptr %context) {{
entry:
  %threadp = getelementptr i64, ptr %context, i64 3
  %thread = load i64, ptr %threadp
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %done, label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %seen = load atomic i64, ptr %threadp monotonic, align 8
  %next = add i64 %i, %seen
  %more = icmp slt i64 %next, 2000000
  br i1 %more, label %head, label %tell
tell:
  call void @tell(ptr %args, ptr %context)
  br label %done
done:
  ret void
}}
"""
ERRORS, WIDTH = 112, 120
FIRST, COUNT = 200, 40
"""Where chunks are counted, and how many there are."""


class Job:
    """`count` phases of one function."""

    def __init__(self, code, count, width):
        self.count = count
        self.memory = np.zeros(256, np.int64)
        self.memory[WIDTH] = width
        self.bases = np.array([self.memory.ctypes.data], np.int64)
        self.counters = np.zeros(count * width * COUNTER_WORDS, np.int64)
        self.fault = np.zeros(8, np.int64)
        self.arguments = np.array([0, 8 * FIRST, 8 * COUNT, COUNT], np.int64)
        self.table = np.array([[code, self.arguments.ctypes.data, True]] * count, np.int64)
        self.words = np.zeros(JOB_WORDS, np.int64)
        arrays = (self.bases, self.counters)
        self.words[:4] = (self.table.ctypes.data, count, *(a.ctypes.data for a in arrays))
        self.words[6] = self.fault.ctypes.data
        self.address = self.words.ctypes.data

    @property
    def claimed(self):
        """How often each chunk was claimed."""
        return self.memory[FIRST : FIRST + COUNT].view(np.float64).tolist()


def emit_claims(k):
    seen, count = k.pointer("seen", "float64"), k.integer("count")
    with k.chunks(count) as chunk:
        seen.store(seen.load(chunk) + 1.0, chunk)


@pytest.fixture(scope="module")
def code():
    target = host_target()
    claim = KernelBuilder("claim", target)
    emit_claims(claim)
    written = [text.format(triple=target.triple) for text in (CODE, HOLD)]
    codes = [object_code(text, target) for text in (*written, str(claim.finish()))]
    return link(codes, ["count", "claim", "hold", "tell", "late"])


def play(team, job, runs):
    for _ in range(runs):
        job.counters.fill(0)
        team.run(job)


@pytest.fixture(params=["spinning", "yielding", "sleeping"])
def patience(request):
    """Pauses, then pauses and yields: every way to wait has its turn."""
    return {
        "spinning": (600, 5000, 5000, 8000),
        "yielding": (0, 200, 0, 200),
        "sleeping": (0, 0, 0, 0),
    }[request.param]


@pytest.mark.parametrize("width", [2, 3, 4])
def test_nobody_passes_a_barrier_early(code, width, patience):
    team = FutexTeam(width)
    team._words[56:60] = patience
    job = Job(code.addresses["count"], 40, width)
    runs = 60
    with team.lock:
        play(team, job, runs)
    assert job.memory[: width * 8 : 8].tolist() == [40 * runs] * width
    assert job.memory[ERRORS] == 0
    stop(team)


def test_a_thread_goes_on_where_nothing_waits(code):
    """It ends the first phase, with nothing to do, while the other is in it."""
    team = FutexTeam(2)
    job = Job(code.addresses["hold"], 2, 2)
    job.table[1] = code.addresses["tell"], job.arguments.ctypes.data, False
    with team.lock:
        play(team, job, 1)
    assert job.memory[0] == 1 and job.memory[ERRORS] == 0
    stop(team)


def test_all_have_ended_when_a_run_does(code):
    """Even if no phase waits for another one."""
    team = FutexTeam(2)
    job = Job(code.addresses["late"], 3, 2)
    job.table[:, 2] = False
    with team.lock:
        play(team, job, 1)
    assert job.memory[0] == 3
    stop(team)


def stop(team):
    """End the workers (a program's teams live as long as it does)."""
    team._words[24] = 1
    empty = Job(0, 0, team.width)
    empty.words[4], empty.words[5] = team._address, team.width
    driver().run(team._address, empty.address)
    time.sleep(0.05)


@pytest.mark.parametrize("width", [2, 4])
def test_every_chunk_is_claimed_once(code, width, patience):
    team = FutexTeam(width)
    team._words[56:60] = patience
    job = Job(code.addresses["claim"], 5, width)
    with team.lock:
        play(team, job, 30)
    assert job.claimed == [5 * 30] * COUNT
    stop(team)


def test_each_thread_takes_its_own_share_first(code):
    """Alone, a thread of three claims the middle third, then what is left of the others."""
    job = Job(code.addresses["claim"], 1, 3)
    job.counters[[0, COUNTER_WORDS, 2 * COUNTER_WORDS]] = 5, 0, 13
    words = (job.bases.ctypes.data, job.counters.ctypes.data, 3, 1, job.fault.ctypes.data)
    for reach in (1, 3):
        context = np.array([*words, reach], np.int64)
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.addresses["claim"])
        call(job.arguments.ctypes.data, context.ctypes.data)
        others = 1 if reach == 3 else 0
        expected = [0] * 5 + [others] * 8 + [1] * 13 + [0] * 13 + [others]
        assert job.claimed == expected


def test_workers_sleep_when_nothing_runs(code):
    team = FutexTeam(3)
    job = Job(code.addresses["count"], 3, 3)
    with team.lock:
        play(team, job, 2)
        for _ in range(200):
            if team._words[16] == 2:
                break
            time.sleep(0.01)
        assert team._words[16] == 2, "both workers are parked"
        used = time.process_time()
        time.sleep(0.1)
        assert time.process_time() - used < 0.05, "and cost nothing"
        play(team, job, 2)
    assert job.memory[:24:8].tolist() == [12] * 3
    stop(team)


def test_an_inline_team_walks_alone(code):
    job = Job(code.addresses["count"], 7, 1)
    play(Inline(), job, 3)
    assert job.memory[0] == 21 and job.memory[8] == 0
    job = Job(code.addresses["claim"], 2, 1)
    play(Inline(), job, 3)
    assert job.claimed == [6] * COUNT


def test_a_profile_has_a_reading_for_every_phase_and_thread(code):
    team = FutexTeam(2)
    job = Job(code.addresses["count"], 6, 2)
    clock = np.zeros((6, 2, 2), np.int64)
    job.words[7] = clock.ctypes.data
    with team.lock:
        team.run(job)
    assert (clock > 0).all() and (clock[..., 1] >= clock[..., 0]).all()
    assert (clock[1:, :, 0] >= clock[:-1, :, 1].max(axis=1, keepdims=True)).all(), "barriers hold"
    assert 0.01 < nanoseconds_per_tick() < 100
    stop(team)


def test_a_run_lets_go_of_the_interpreter(code):
    """Another Python thread makes progress while a job runs."""
    job = Job(code.addresses["count"], 400_000, 1)
    seen, done = [], threading.Event()

    def watch():
        while not done.is_set():
            seen.append(int(job.memory[0]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    play(Inline(), job, 5)
    done.set()
    watcher.join(30)
    assert len({n for n in seen if 0 < n < 2_000_000}) > 1


def test_team_memory_is_on_its_own_lines():
    team = FutexTeam(2)
    assert team._address % 64 == 0 and len(team._words) == TEAM_WORDS
    assert ctypes.sizeof(ctypes.c_int64) == 8 and os.sched_getaffinity(0)


def test_a_team_that_goes_leaves_its_workers_what_they_read():
    team = FutexTeam(2)
    team._start()
    read = [weakref.ref(array) for array in (team._memory, team._selves)]
    del team
    gc.collect()
    assert all(array() is not None for array in read)
