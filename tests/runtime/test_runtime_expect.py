"""What is prepared once sizes vary: constants of sizes around the first one, and pages."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import resource
import threading
from types import SimpleNamespace
from weakref import ref

import numpy as np
import pytest
from runtime_models import compiled, convolutions, image

from saccade.backends.cpu import backend as cpu
from saccade.backends.cpu.runtime import program, workspace
from saccade.backends.cpu.runtime.results import Results
from saccade.backends.cpu.runtime.workspace import Workspaces
from saccade.backends.cpu.store.constants import unknown_constants
from saccade.engine import Engine
from saccade.errors import PlanError

MB = 1 << 20
FIRST, SECOND, THIRD = image(1, 3, 40, 48), image(1, 3, 31, 50), image(1, 3, 45, 37)


def populates():
    """Whether the system makes pages on request; Linux does since 5.14."""
    memory = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)
    address, nbytes = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes)
    return workspace._libc.madvise(address, nbytes, workspace._MADV_POPULATE_WRITE) == 0


needs_populate = pytest.mark.skipif(not populates(), reason="no MADV_POPULATE_WRITE")


def faults(memory):
    """How many pages, of whatever size, have to be made to write to all of it."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    memory[:: mmap.PAGESIZE] = 1
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


class Ran:
    """In place of a program."""

    def __init__(self, has_run=True):
        self.has_run = has_run


def join():
    for thread in threading.enumerate():
        if thread.name == "saccade-expect":
            thread.join()


@pytest.fixture
def expected(monkeypatch):
    """What was told each time that the backend was to prepare."""
    found = []
    monkeypatch.setattr(cpu.CpuBackend, "expect", lambda _self, needs, *_: found.append(needs))
    return found


def test_the_second_size_and_no_other_says_that_sizes_vary(expected):
    model = compiled(convolutions(), threads=1, cache=False)
    for x in (FIRST, FIRST):
        model(x)
    assert not expected
    for x in (SECOND, THIRD, FIRST):
        model(x)
    (needs,) = expected
    assert len(list(needs())) == 10
    # The output has the image's sizes: what is planned for is around the first of them.
    found = {one.output_bytes[0] / model(FIRST).nbytes for one in needs()}
    assert len(found) == 10 and all(0.25 <= each <= 2.25 for each in found)
    assert any(each < 0.5 for each in found) and any(each > 1.5 for each in found)


def test_what_was_planned_beside_the_first_compilation_is_not_planned_again(expected, monkeypatch):
    model = compiled(convolutions(), threads=1, cache=False)
    planned, real = [], Engine._plan
    monkeypatch.setattr(
        Engine, "_plan", lambda self, laid, sizes: planned.append(sizes) or real(self, laid, sizes)
    )
    model(FIRST)
    assert len(planned) == 11, "its own, and those whose kernels are compiled as well"
    model(SECOND)
    (needs,) = expected
    told = list(needs())
    assert len(told) == 10 and len(planned) == 12, "the second's, and no other"
    for sizes, one in zip(planned[1:11], told, strict=True):
        shape = (1, 3, *list(sizes.values())[-2:])
        assert model.plan(shape).needs.output_bytes == one.output_bytes


def test_a_size_that_an_earlier_start_left_is_the_first(expected, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE_DIR", str(tmp_path))
    compiled(convolutions(), threads=1)(FIRST)
    later = compiled(convolutions(), threads=1)
    later(FIRST)
    assert later._engine is None
    later(SECOND)
    (needs,) = expected
    assert next(iter(needs())).output_bytes == later.plan((1, 3, 21, 24)).needs.output_bytes


def engine_and_plan():
    model = compiled(convolutions(), threads=1, cache=False)
    return model, model._started(), model.plan(FIRST.shape)


def missing(engine, plan):
    return unknown_constants(engine.identity, plan.needs.constants)


def test_what_plans_read_is_packed_and_programs_take_it(monkeypatch):
    monkeypatch.setattr(cpu, "_RECENT", 100.0)
    model, engine, plan = engine_and_plan()
    assert len(missing(engine, plan)) > 1
    engine.backend.expect(lambda: [plan.needs], engine.graph, engine.identity, Ran())
    join()
    assert not missing(engine, plan)
    wanted = compiled(convolutions(), threads=1, cache=False, exact=True)(FIRST)
    np.testing.assert_allclose(model(FIRST), wanted, rtol=1e-4, atol=1e-4)
    ours = {id(array) for array in model._program((FIRST.shape,)).constants if array.size}
    assert ours <= set(engine.backend._recent._arrays)


def test_the_first_run_of_the_second_size_is_waited_for(monkeypatch):
    model, engine, _ = engine_and_plan()
    later, happened = Ran(has_run=False), []

    def sleep(_seconds):
        happened.append("slept")
        later.has_run = len(happened) == 3

    def needs():
        happened.append("asked")
        return ()

    monkeypatch.setattr(program, "sleep", sleep)
    monkeypatch.setattr(program, "monotonic", lambda: 0.0)
    engine.backend.expect(needs, engine.graph, engine.identity, later)
    join()
    assert happened == ["slept"] * 3 + ["asked"]
    first = model._program((FIRST.shape,))
    assert not first.has_run
    model(FIRST)
    assert first.has_run


def test_a_program_that_is_gone_or_takes_long_is_not_waited_for(monkeypatch):
    gone = Ran(has_run=False)
    waiting = ref(gone)
    del gone
    with monkeypatch.context() as patched:
        patched.setattr(program, "sleep", pytest.fail)
        program.wait_for_run(waiting)
    endless = Ran(has_run=False)
    clock = itertools.count()
    monkeypatch.setattr(program, "monotonic", lambda: next(clock) / 10)
    program.wait_for_run(ref(endless))
    assert 10 <= next(clock) <= 13


def test_nothing_is_let_go_of_for_it(monkeypatch):
    monkeypatch.setattr(cpu, "_RECENT", 0.5)
    _, engine, plan = engine_and_plan()
    engine.backend.expect(lambda: [plan.needs], engine.graph, engine.identity, Ran())
    join()
    assert missing(engine, plan)
    assert engine.backend._recent.room >= 0


def test_what_fails_is_left_to_whoever_needs_it(monkeypatch, capfd):
    monkeypatch.setattr(cpu, "_RECENT", 100.0)
    model, engine, plan = engine_and_plan()

    def needs():
        yield plan.needs
        raise PlanError("too large")

    engine.backend.expect(needs, engine.graph, engine.identity, Ran())
    join()
    assert not missing(engine, plan)

    def none_left(*_args):
        raise MemoryError

    monkeypatch.setattr(cpu, "expect_runs", none_left)
    engine.backend.expect(lambda: [plan.needs], engine.graph, engine.identity, Ran())
    join()
    assert capfd.readouterr().err == ""
    model(FIRST)


@needs_populate
def test_pages_of_a_growing_arena_are_there_and_keep_what_they_hold():
    spaces = Workspaces(reserve=4)
    block = spaces.take(4 * MB)
    memory = block.array(12 * MB)
    memory[: 4 * MB] = 7
    assert faults(memory[10 * MB :]) > 0
    spaces.expect(10 * MB)
    assert faults(memory[4 * MB : 10 * MB]) == 0
    assert (memory[1 : 4 * MB : mmap.PAGESIZE] == 7).all()
    spaces.give_back(block)
    assert spaces.take(10 * MB).address == block.address


def test_an_arena_without_space_is_left_alone():
    spaces = Workspaces(reserve=4)
    spaces.expect(4 * MB)  # nobody took any
    block = spaces.take(4 * MB)
    spaces.expect(1 << 40)
    del block
    spaces.expect(4 * MB)  # it is gone


@pytest.mark.parametrize("left", [False, True])
def test_no_result_s_memory_waits_where_no_program_is_left(monkeypatch, left):
    plan = compiled(convolutions(), threads=1, cache=False).plan((1, 3, 900, 900))
    results, one = Results(), SimpleNamespace(tables=SimpleNamespace(arena_bytes=1))
    monkeypatch.setattr(program, "_results", results)
    monkeypatch.setattr(program, "_alive", [one] if left else [])
    monkeypatch.setattr(program, "_arenas", Workspaces(reserve=4))
    program.expect_runs([plan.needs])
    assert bool(results._idle) is left


@needs_populate
def test_a_result_of_the_size_that_was_expected_finds_its_pages():
    results = Results()
    results.expect(24 * MB)
    (block,) = results._idle
    array = results.empty((20 * MB,), "uint8")
    assert array.ctypes.data == block.address and faults(array) == 0
    results.expect(1 * MB)
    assert not results._idle
