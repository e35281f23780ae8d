"""How variants are timed on a GPU, on what operands, by which process."""

import os
import random
import threading
import time

import numpy as np
import pytest
from cuda_programs import at

import saccade
from saccade.backends.cuda import measuring
from saccade.backends.cuda.codes_ahead import CodesAhead
from saccade.backends.cuda.cubins import CodeKey, code_key
from saccade.backends.cuda.measuring import MeasuringProcess, Timed
from saccade.backends.cuda.operands import StepOperands, TypesOfPacked
from saccade.backends.cuda.runtime import gauge as gauges
from saccade.backends.cuda.runtime.context import DeviceContext
from saccade.backends.cuda.runtime.gauge import Contest, Gauge, Region
from saccade.engine import sizes_of
from saccade.errors import CompileError, DeviceError, OutOfMemoryError
from saccade.kernels.bind import Argument, Phase, Ref, Role
from saccade.processes import Processes
from saccade.testing.fake_driver import FakeDriver

N = 96  # floats of an operand


@pytest.fixture
def driver():
    return FakeDriver(1 << 26)


@pytest.fixture
def gauge(driver, monkeypatch):
    monkeypatch.setattr(gauges, "_NOISE", 1 << 10)
    return Gauge(DeviceContext(driver))


class Made:
    """Code that takes made-up microseconds, and notes what it was given."""

    def __init__(self, driver, micros, log):
        self.now = 0.0
        driver.clock = lambda: self.now
        self.driver, self.log = driver, log
        self.codes = [self.code(i, one) for i, one in enumerate(micros)]

    def code(self, which, micros):
        def kernel(programs, given):
            self.now += micros / 1e6
            x, w = (np.array(at(given[name], N)) for name in "xw")
            self.log.append((which, programs, given["x"], given["y"], x, w))

        return self.driver.host_code("xwy", "n", kernel)

    def variant(self, which, chunks=3, **more):
        places = {"x": Ref(0, 16, 4 * N), "w": Ref(1, 0, 4 * N), "y": Ref(2, 0, 4 * N)}
        arguments = tuple(Argument(n, Role.INPUT, r) for n, r in places.items())
        return ((Phase(None, arguments, {"n": N} | more, chunks), self.codes[which]),)


WEIGHTS = np.arange(N, dtype=np.float32)
REGIONS = (
    Region(16 + 4 * N, noise="float32"), Region(4 * N, WEIGHTS.tobytes()),
    Region(4 * N, read=False),
)  # fmt: skip
NBYTES = 16 + 3 * 4 * N


def test_each_launch_takes_the_next_operands_and_the_median_is_of_one(driver, gauge):
    log = []
    made = Made(driver, (7.0, 3.0), log)
    contest = Contest(REGIONS, (made.variant(0), made.variant(1)), 4, 5 * NBYTES, 8)
    times = gauge.times(contest)
    np.testing.assert_allclose(times, [[7.0] * 4, [3.0] * 4])
    turns = [log[i : i + 12] for i in range(0, len(log), 12)]  # 8, in whole rounds of 6 sets
    assert [turn[0][0] for turn in turns] == [0, 1, 0, 1, 1, 0, 0, 1, 1, 0]
    for turn in turns:
        assert len({which for which, *_ in turn}) == 1
        addresses = [x for _, _, x, *_ in turn]
        assert len(set(addresses)) == 6 and addresses[:6] == addresses[6:]
        assert all(x % 256 == 16 and y % 256 == 0 for _, _, x, y, *_ in turn)
    for _, programs, _, _, x, w in log:
        assert programs == 3
        assert len(set(x)) > 0.9 * N and abs(x).max() <= 1
        np.testing.assert_array_equal(w, WEIGHTS)
    assert driver.graphs == 0
    driver.memory.check()


def test_launches_on_operands_of_their_own_run_one_after_the_other(driver, gauge, monkeypatch):
    """As in a program's graph they would not: what is timed would be how many fit side by side."""
    seen, make = [], driver.make_graph

    def spy(launches, waits):
        seen.append((len(launches), [tuple(earlier) for earlier in waits]))
        return make(launches, waits)

    monkeypatch.setattr(driver, "make_graph", spy)
    gauge.times(Contest(REGIONS, (Made(driver, (7.0,), []).variant(0),), 1, 5 * NBYTES, 4))
    ((count, waits),) = seen
    assert count == 6 and waits == [(), (0,), (1,), (2,), (3,), (4,)]


def test_how_often_operands_lie_there(driver, gauge, monkeypatch):
    log = []
    made = Made(driver, (1.0,), log)

    def sets(cold, repetitions=1, most=256):
        monkeypatch.setattr(gauges, "MOST_SETS", most)
        log.clear()
        gauge.times(Contest(REGIONS, (made.variant(0),), 1, cold, repetitions))
        assert len(log) % 2 == 0
        return len({entry[2] for entry in log}), len(log) // 2

    assert sets(0) == (1, 1)
    assert sets(0, 5) == (1, 5)
    assert sets(NBYTES - 1) == (1, 1)
    assert sets(NBYTES) == (2, 2)
    assert sets(10 * NBYTES, 12) == (11, 22)
    assert sets(10 * NBYTES, most=4) == (4, 4)


def test_integers_are_zero_and_steps_without_programs_take_no_time(driver, gauge):
    log = []
    made = Made(driver, (1.0,), log)
    zeros = (Region(16 + 4 * N), *REGIONS[1:])
    times = gauge.times(Contest(zeros, (made.variant(0), made.variant(0, chunks=0)), 2, 0, 2))
    assert not any(entry[4].any() for entry in log)
    np.testing.assert_allclose(times, [[1.0] * 2, [0.0] * 2])


def test_what_goes_wrong_leaves_the_gauge_as_it_was(driver, gauge):
    log = []
    made = Made(driver, (1.0,), log)
    good = Contest(REGIONS, (made.variant(0),), 1, 0, 1)
    foreign = FakeDriver().host_code("xwy", "n", lambda *_: None)
    foreign = type(foreign)("foreign", b"foreign", foreign.parameters, 4, 0)
    ((phase, _),) = made.variant(0)
    with pytest.raises(DeviceError, match="for another GPU"):
        gauge.times(Contest(REGIONS, (((phase, foreign),),), 1, 0, 1))
    with pytest.raises(saccade.SaccadeError, match="takes x, w, y, n, given are"):
        gauge.times(Contest(REGIONS, (made.variant(0, more=1),), 1, 0, 1))
    huge = (Region(1 << 27), *REGIONS[1:])
    with pytest.raises(OutOfMemoryError):
        gauge.times(Contest(huge, (made.variant(0),), 1, 0, 1))
    assert not gauge.lost
    assert measuring.timed_by(gauge, good).micros == pytest.approx(np.ones((1, 1)))

    def last(_programs, _given):
        driver.lose()

    fatal = driver.host_code("xwy", "n", last)
    found = measuring.timed_by(gauge, Contest(REGIONS, (((phase, fatal),),), 1, 0, 1))
    assert found.micros is None and found.lost and "was lost" in found.reason


def test_a_lost_process_is_replaced():
    """One that dies, and one that says that its GPU is gone; not one that ran out of memory."""
    started, closed = [], []
    answers = [Timed(None, "no room"), Timed(None, "gone", lost=True), CompileError("it died"),
               Timed(np.ones((1, 1)))]  # fmt: skip

    class FakeWorker:
        def call(self, function, argument, seconds):
            if function is measuring.open_gauge:
                started.append(argument)
                return None
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def close(self):
            closed.append(self)

    class FakeProcesses:
        def worker(self, module):
            assert module == "saccade.backends.cuda.measuring"
            return FakeWorker()

    process = MeasuringProcess(FakeProcesses())
    found = [process.times(None) for _ in range(4)]
    assert [one.reason for one in found] == ["no room", "gone", "it died", ""]
    assert found[3].micros is not None
    assert (len(started), len(closed)) == (3, 2)
    process.close()
    assert len(closed) == 3


def test_a_process_without_a_gpu_says_so(monkeypatch):
    processes = Processes()
    try:
        with pytest.raises(DeviceError, match="device cuda"):
            MeasuringProcess(processes).times(Contest((), (), 1, 0, 1))
    finally:
        processes.close()


def test_a_worker_keeps_what_calls_leave():
    processes = Processes()
    worker = processes.worker("random")
    try:
        worker.call(os.chdir, "/")
        assert worker.call(os.path.abspath, "x") == "/x"
        assert worker.call(random.seed, 3) is None
        assert worker.call(round, 2.5, 60.0) == 2
        with pytest.raises(CompileError, match=r"ran _exit died \(status 3\)"):
            worker.call(os._exit, 3)
        worker.close()
        worker = processes.worker("time")
        with pytest.raises(CompileError, match="ran sleep was ended: it took longer than 1 s"):
            worker.call(time.sleep, 600.0, 1.0)
    finally:
        worker.close()
        processes.close()


class SlowCubins:
    """Code that is made batch by batch, when the test says so."""

    def __init__(self):
        self.compiled, self.batches, self.go = 0, [], threading.Semaphore(0)

    def attempt(self, keys, processes):
        assert self.go.acquire(timeout=60)
        self.batches.append(list(keys))
        self.compiled += len(keys)
        return {key: "no" if key.config == 3 else key for key in keys}


def test_code_is_made_ahead_in_order(monkeypatch):
    monkeypatch.setattr("saccade.backends.cuda.codes_ahead.default_threads", lambda: 1)
    cubins = SlowCubins()
    codes, keys = CodesAhead(cubins, None), [CodeKey("k", i, ()) for i in range(12)]
    assert codes.seconds_left() == 0
    codes.announce([*keys[:10], *keys[:3]])
    assert codes.seconds_left() == pytest.approx(10 * 0.4)
    cubins.go.release()
    found = codes.get(keys[1:4])
    assert found == {keys[1]: keys[1], keys[2]: keys[2], keys[3]: "no"}
    assert 0 < codes.seconds_left() < 10 * 0.4
    codes.announce([])  # the second batch may have begun, the third has not
    cubins.go.release(2)
    assert codes.get([keys[11]]) == {keys[11]: keys[11]}
    assert keys[9] not in [key for batch in cubins.batches for key in batch]
    codes.close()
    assert codes.seconds_left() == 0


@pytest.mark.parametrize("name", ["shufflenet_v2_x1_0", "mobilenet_v3_large"])
def test_operands_need_the_code_of_the_program(filled, name):
    """Steps over slices and of every kind, bound apart, ask for what the plan's phases do."""
    model = saccade.compile(
        filled(name), device="cuda", machine="h200", precision="fp16", cache=False
    )
    engine, shapes = model._started(), [(1, 3, 96, 96)]
    sizes = sizes_of(engine.graph, shapes)
    laid = engine._lay_out(sizes, lambda *_: True)
    plan = engine._plan(laid, sizes)
    constants = {value.name: array for value, array in engine.graph.constants.items()}
    types = TypesOfPacked(constants)
    for step, planned in zip(laid.steps, plan.steps, strict=True):
        operands = StepOperands(laid, step, constants, types)
        bound = operands.bind(planned.kernel, step.launches)
        assert bound.keys == tuple(code_key(planned.kernel, p) for p in planned.phases)
        assert [p.chunks for p in bound.phases] == [p.chunks for p in planned.phases]
        for phase, other in zip(bound.phases, planned.phases, strict=True):
            assert phase.integers == other.integers
            for own, its in zip(phase.arguments, other.arguments, strict=True):
                assert (own.name, own.ref.nbytes) == (its.name, its.ref.nbytes)
                region = operands.regions[own.ref.base]
                assert 0 <= own.ref.offset <= own.ref.offset + own.ref.nbytes <= region.nbytes
                assert region.read or own.role is not Role.INPUT
    kinds = {region.noise for region in operands.regions}
    assert "float16" in kinds
